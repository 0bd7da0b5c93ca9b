"""The requests of one pass over a model: forward through its stretches, and backward through them."""

import functools
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from dsgen.families.tape.moments import BACKWARD, FORWARD
from dsgen.memory.activations import execution, recorded
from dsgen.memory.buckets import arrivals
from dsgen.memory.replaying.gathering import Gathering
from dsgen.memory.replaying.offloaded_inputs import COPIES, OffloadedInputs
from dsgen.memory.replaying.requests import Handle, Requests
from dsgen.memory.replaying.stretches import (
    BORN,
    ENDED,
    FREED,
    HANDED,
    LEFT,
    LOST,
    NORMED,
    REACHED,
    RETURNED,
    Happening,
    StretchRequests,
    stretch_requests,
)
from dsgen.memory.runs import Run
from dsgen.memory.together import runs_of
from dsgen.memory.trained import AFTER, BEFORE, narrow_adapters, trained
from dsgen.strategies.buffers import EIGHT_BITS

__all__ = ["ModelPasses", "ModelRequests", "Taker", "model_requests"]


class ModelRequests(NamedTuple):
    """What a pass asks for, in bytes.

    Attributes:
        hidden: What the embedding makes.
        beside: Tables, masks and variables beside it.
        blocks: The blocks, in order.
        head: What comes behind them.
        gradients: Those of the embedding and of what is beside it, in the order in which backward makes them.
        tied: The last of them is added to the head's, which waits for it.
        asked: What the embedding makes, and its gradient, stay until the next forward has ended.
        offloads: What goes into a block waits in the node's RAM.
        clears: Whoever moves it there empties the allocator's cache before each pass: bitsandbytes has been imported.
    """

    hidden: int
    beside: tuple[int, ...]
    blocks: tuple[StretchRequests, ...]
    head: StretchRequests
    gradients: tuple[int, ...]
    tied: bool
    asked: bool
    offloads: bool
    clears: bool


class Taker(Protocol):
    """Who takes the weights' gradients; `gathering` is who gathers the weights for a pass, at stage 3."""

    gathering: Gathering | None

    def take(self, gradient: Handle, size: int) -> None:
        """Take a weight's gradient."""

    def turn(self) -> None:
        """Forward is over, and backward begins."""


@functools.lru_cache(maxsize=32)
def model_requests(run: Run, micro_batch: int) -> ModelRequests | None:
    """What a pass asks for; None of a model with an encoder."""
    training, model = run.training, run.model
    ways = (training.method, run.checkpointing, training.chunked_loss, training.lora_rank, training.lora_targets)
    embeds = training.lora_train_embeddings and training.method != "full"
    narrow = narrow_adapters(training)
    rest = (run.told and training.method != "full", run.single, training.lora_dropout > 0, embeds, narrow)
    on = execution(model, run.precision, training.attention, run.seq_len, run.tp, *ways, *rest)
    made = recorded(on, run.checkpointing, run.told, run.offloads)
    if made is None:
        return None
    kinds: dict[tuple[int, bool], StretchRequests] = {}  # equal blocks share a record
    blocks = []
    for one, again in made.blocks:
        if (id(one), again) not in kinds:
            kinds[id(one), again] = stretch_requests(one, again, micro_batch, run.reentrant)
        blocks.append(kinds[id(one), again])
    tensors = trained(model, *run.trains)
    outer = [index for index, _ in arrivals(tensors, runs_of(run)) if tensors.blocks[index] == BEFORE]
    return ModelRequests(
        *(
            made.hidden[0] + made.hidden[1] * micro_batch,
            tuple(fixed + each * micro_batch for fixed, each in made.beside),
        ),
        tuple(blocks),
        stretch_requests(made.head, False, micro_batch),
        tuple(tensors.numels[index] * on.item for index in outer),
        tensors.tied and outer[-1:] == [tensors.table],
        made.asked,
        run.offloads,
        run.offloads and (training.method == "qlora" or training.optimizer == EIGHT_BITS),
    )


class ModelPasses:
    """Passes over a model, one behind the other."""

    def __init__(self, requests: Requests, workspace: int = 0) -> None:
        self.requests, self.workspace = requests, workspace
        self._idle = [FORWARD, BACKWARD]  # whose threads have multiplied nothing yet
        self._staying: list[Handle] = []  # what the loss of the last pass refers to
        self._waits = False  # whether the next gradient is that of a head that is the embedding too
        self._waiting: list[Handle] = []  # it, once it is there
        self._away: OffloadedInputs | None = None

    def run(self, model: ModelRequests, taker: Taker) -> None:
        """One pass."""
        requests = self.requests
        stretches = (*model.blocks, model.head)
        requests.give(*self._staying)
        self._staying = []
        if model.clears:
            requests.empty_cache()
        self._away = away = OffloadedInputs(requests, model.hidden, model.asked) if model.offloads else None
        if taker.gathering is not None:
            taker.gathering.embed()
        entry = first = requests.take(model.hidden)
        if taker.gathering is not None:
            taker.gathering.embedded()
        tables = requests.together(model.beside)
        held: list[dict[int, Handle]] = []
        for block, stretch in enumerate(stretches):
            place = block if block < len(model.blocks) else AFTER
            there = {stretch.entry: entry}
            if away:
                away.enter(entry, place == AFTER)
            self._play(stretch.forward, there, {stretch.result}, taker, place, FORWARD)
            if away and place != AFTER:
                there.pop(stretch.entry)
            entry = there.get(stretch.result, 0)
            held.append(there)
        taker.turn()
        gradient = self._back(model, stretches, held, taker)
        requests.give(*tables)
        self._staying = [gradient, first] if model.asked else []
        if taker.gathering is not None:
            taker.gathering.turn()
        self._embed(model.gradients, taker, 0 if model.asked else gradient)

    def _back(
        self,
        model: ModelRequests,
        stretches: Iterable[StretchRequests],
        held: list[dict[int, Handle]],
        taker: Taker,
    ) -> Handle:
        """Backward through the stretches: the gradient of what the embedding has made."""
        requests, away = self.requests, self._away
        gradient: Handle = 0
        last = len(held) - 1
        for block, (stretch, there) in reversed(list(enumerate(zip(stretches, held, strict=True)))):
            if block < last:
                there.pop(stretch.result, None)  # it went into the next stretch, which has given it back
            if not block and model.asked:
                there.pop(stretch.entry, None)  # it stays
            if stretch.given:
                if block < last:
                    there[stretch.given] = gradient
                self._waits = block == last and model.tied
                place = block if block < last else AFTER
                if away and block < last:
                    there[stretch.entry] = away.bring()
                self._play(stretch.backward, there, {stretch.passed}, taker, place, BACKWARD)
                gradient = there.pop(stretch.passed, 0)
                if away and block < last:
                    away.leave(there.pop(stretch.entry))
            requests.give(*there.values())
        if away:
            away.go_on()
        return gradient

    def _play(
        self,
        happenings: Iterable[Happening],
        there: dict[int, Handle],
        stays: set[int],
        taker: Taker,
        block: int,
        thread: int,
    ) -> None:
        requests, gathering = self.requests, taker.gathering
        take, give_one = requests.take, requests.give_one
        for what, one, two in happenings:
            if what == BORN:
                if one not in there:
                    there[one] = take(two)
            elif what == FREED:
                if one not in stays and one in there:
                    give_one(there.pop(one))
            elif what == HANDED:
                gradient = there.pop(one, 0)
                if self._waits:
                    self._waits, self._waiting = False, [gradient]
                else:
                    taker.take(gradient, two)
            elif what == REACHED:
                if gathering is not None:
                    gathering.reach(block, one, two)
            elif what == LEFT:
                if gathering is not None:
                    gathering.leave(block, one, two)
            elif what == NORMED:
                if gathering is not None:
                    gathering.go_on()
            elif what == LOST:
                if gathering is not None:
                    gathering.lose()
            elif what == RETURNED:
                there[one] = take(two, COPIES)
            elif what == ENDED:
                if self._away:
                    self._away.go_on()
            elif thread in self._idle:
                self._idle.remove(thread)
                requests.set_aside(self.workspace)

    def _embed(self, gradients: tuple[int, ...], taker: Taker, passed: Handle) -> None:
        """The gradients of the embedding and of what is beside it, from that of what they make."""
        requests = self.requests
        last = len(gradients) - 1
        for place, size in enumerate(gradients):
            gradient = requests.take(size)
            if place == last:
                requests.give(passed)
            if self._waiting and place == last:  # autograd adds them up
                both = requests.take(size)
                requests.give(*self._waiting, gradient)
                self._waiting, gradient = [], both
            taker.take(gradient, size)
        if last < 0:
            requests.give(passed)
