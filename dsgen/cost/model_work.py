"""The work of one micro-batch on one GPU: what a model's parts compute, move and dispatch, forward and backward.

A part is recorded once on a tape that notes its work, and stands for all that equal it.
"""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from dsgen.families import family_of
from dsgen.families.tape.engine import backward
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Block, Forward, InStack, Stacks
from dsgen.families.tape.graph import STREAM
from dsgen.families.tape.moments import Size
from dsgen.families.tape.tape import TEMPORARIES, Node, Tape, Tensor
from dsgen.families.tape.work import NO_WORK, Work, WorkTape, summed
from dsgen.memory.activations.encoded import in_stack, kinds
from dsgen.memory.activations.executions import execution
from dsgen.memory.modules import modules
from dsgen.shapes.profiles import Model

__all__ = ["ModelWork", "PartWork", "work"]

_CACHED = 4096  # models times ways to run them


class PartWork(NamedTuple):
    """The work of one part of a model: what comes before the blocks, a block, or head and loss.

    Attributes:
        name: before, dense, sparse, other or head; of an encoder and a decoder as in memory.activations.encoded.
        repeats: How many equal ones follow each other.
        forward: Of one of them.
        again: Of its second forward, before its backward; nothing without checkpointing.
        backward: Of its backward.
        modules: Modules that run in it and hold parameters, which DeepSpeed's hooks fetch at stage 3: what is gathered
            whole is one.
        called: Layers of experts that are called besides, one by one, and are gathered with others.
    """

    name: str
    repeats: int
    forward: Work
    again: Work
    backward: Work
    modules: int
    called: int = 0


class ModelWork(NamedTuple):
    """The work of a model, part by part in the order of forward."""

    parts: tuple[PartWork, ...]

    @property
    def forward(self) -> Work:
        """Of all parts."""
        return self._total(lambda part: part.forward)

    @property
    def again(self) -> Work:
        """Of all second forwards."""
        return self._total(lambda part: part.again)

    @property
    def backward(self) -> Work:
        """Of all backwards, without the second forwards."""
        return self._total(lambda part: part.backward)

    def _total(self, chosen: Callable[[PartWork], Work]) -> Work:
        total = NO_WORK
        for part in self.parts:
            total = total.plus(chosen(part), part.repeats)
        return total


def work(
    model: Model,
    *,
    precision: str,
    attention: str,
    seq_len: int,
    tp: int = 1,
    method: str = "full",
    checkpointing: bool = False,
    chunked_loss: bool = False,
    lora_rank: int = 16,
    lora_targets: tuple[str, ...] = ("all-linear",),
    zero3: bool = False,
    single: bool = False,
    drops: bool = False,
    embeddings: bool = False,
    narrow: bool = False,
    target_len: int | None = None,
    reentrant: bool = False,
) -> ModelWork:
    """What a model's forward and backward do; arguments and errors are those of `activations`."""
    ways = (tp, method, checkpointing, chunked_loss, lora_rank, lora_targets, zero3, single, drops)
    targets = target_len or seq_len
    trains, again = embeddings and method != "full", reentrant and checkpointing
    thin = narrow or not zero3 or method != "lora"  # no other adapters are ever wide
    return _work(model, precision, attention, seq_len, *ways, trains, thin, targets, again)


@functools.lru_cache(maxsize=_CACHED)
def _work(
    model: Model,
    precision: str,
    attention: str,
    seq_len: int,
    tp: int,
    method: str,
    checkpointing: bool,
    chunked_loss: bool,
    lora_rank: int,
    lora_targets: tuple[str, ...],
    zero3: bool,
    single: bool,
    drops: bool,
    embeddings: bool,
    narrow: bool,
    target_len: int,
    reentrant: bool,
) -> ModelWork:
    """As `work`, whose arguments may be left out."""
    ways = (tp, method, checkpointing, chunked_loss, lora_rank, lora_targets, zero3, single, drops, embeddings, narrow)
    on = execution(model, precision, attention, seq_len, *ways)
    forward = family_of(model).forward
    # AutoTP splits tensors and leaves the modules; spelled as memory asks for them, so that one answer serves both.
    running = modules(model, method, lora_rank, lora_targets, 1, embeddings, False, False)
    named = [sum(bool(module.tensors) for module in inside) for _, inside in running.parts]
    tape = WorkTape()
    hidden, *_ = forward.before(tape, on)
    parts = [_over(tape, hidden).part("before", 1, named[0])]
    if isinstance(forward, Forward):
        blocks = _blocks(forward, on, hidden, checkpointing, named)
        parts += (part._replace(again=part.forward) for part in blocks) if reentrant else blocks
        late_on = on
    else:
        late_on = on._replace(seq_len=target_len, source_len=on.seq_len)
        parts += _stacks(forward, on, late_on, hidden, checkpointing, named)
    shape = Tensor(late_on.rows, hidden.width, hidden.item, None)
    asks = parts[-1].backward != NO_WORK
    head = _run(forward.head, late_on, shape, asks, (model.vocab_size, model.vocab_size // tp))
    parts.append(_with_shared(head.part("head", 1, named[-1]), on))
    return ModelWork(tuple(parts))


def _blocks(forward: Forward, on: Execution, hidden: Tensor, again: bool, named: list[int]) -> Iterator[PartWork]:
    """The blocks of a decoder."""
    model = on.model
    dense = model.dense_layers if model.experts else model.layers
    asks = hidden.edge is not None or again
    place = 0
    for name, count in forward.order(dense, model.layers - dense):
        left = count
        while left:
            # Whether checkpointing asks for a gradient is in `asks`, and the loss is behind all blocks.
            plain = on._replace(asks=False, chunked=False)
            done = _run(forward.body(name), plain, hidden, asks)
            narrow = _run(forward.body(name), plain._replace(masked=True), hidden, asks) if on.windowed else done
            # The first block gets what asks for no gradient where the embedding is frozen; what it trains asks for one.
            repeats = left if asks or not done.asks else 1
            asks = asks or done.asks
            alike = name, repeats, named[1 + place], again
            yield from _windowed(done.part(*alike), narrow.part(*alike), on, place)
            left -= repeats
            place += repeats


def _stacks(
    stacks: Stacks, on: Execution, late_on: Execution, hidden: Tensor, again: bool, named: list[int]
) -> Iterator[PartWork]:
    """The blocks of an encoder and of a decoder, and what is between them."""
    place = 0
    for name, count in kinds(on.model):
        between = name == "between"
        setting_of = late_on if name.startswith("decoder") or between else on
        body = stacks.between if between else _placed(stacks, in_stack(name, again))
        length = late_on.rows if name.startswith("decoder") else on.rows
        shape = Tensor(length, hidden.width, hidden.item, None)
        done = _run(body, setting_of, shape, hidden.edge is not None or not name.endswith("first"))
        yield done.part(name, count, named[1 + place], again and not between)
        place += count


def _placed(stacks: Stacks, place: InStack) -> Block:
    return lambda tape, on, hidden: stacks.block(tape, on, hidden, place)


class _Run(NamedTuple):
    """The work of a part that has run forward and backward; whether it asks for a gradient."""

    forward: Work
    again: Work
    backward: Work
    asks: bool

    def part(self, name: str, repeats: int, inside: int, again: bool = False) -> PartWork:
        """So many of it, with or without a second forward."""
        return PartWork(name, repeats, self.forward, self.again if again else NO_WORK, self.backward, inside)


def _run(
    body: Callable[[Tape, Execution, Tensor], Tensor],
    on: Execution,
    shape: Tensor,
    asks: bool,
    vocabulary: tuple[int, ...] = (),
) -> _Run:
    """A part behind hidden states that ask for a gradient or not."""
    return _recorded(body, on, shape.rows, shape.width, shape.item, asks, vocabulary)


@functools.lru_cache(maxsize=256)
def _recorded(
    body: Callable[[Tape, Execution, Tensor], Tensor],
    on: Execution,
    rows: Size,
    width: int,
    item: int,
    asks: bool,
    vocabulary: tuple[int, ...],
) -> _Run:
    """As `_run`, of what the record depends on."""
    tape = WorkTape(vocabulary, on.zero3)
    hidden = tape.make(rows, width, item)
    if asks:
        hidden.edge = (Node(0, (), None, lambda *_: []), 0)
    made = body(tape, on, hidden)
    return _over(tape, made)


def _over(tape: WorkTape, made: Tensor) -> _Run:
    """What a tape has done by the end of forward, and does in the backward that follows."""
    forward, stop = len(tape.done), tape.stop
    tape.kind = TEMPORARIES
    if made.edge is not None:
        backward(tape, made)
    done = tape.done[:forward]
    again = summed(one for one in done if one.step <= stop)
    return _Run(summed(done), again, summed(tape.done[forward:]), made.edge is not None)


def _with_shared(part: PartWork, on: Execution) -> PartWork:
    """Head and loss, and the sum of both gradients of a weight that is the embedding's too."""
    model = on.model
    if not model.tied_embeddings or not on.outer(1).edge:
        return part
    tape = WorkTape()
    size: Size = (1, 0)
    weight = Tensor(size, model.vocab_size * (model.embedding_size or model.hidden_size), on.item, None)
    tape.moves(STREAM, weight, weight, weight)
    return part._replace(backward=part.backward.plus(summed(tape.done)))


def _windowed(part: PartWork, narrow: PartWork, on: Execution, place: int) -> list[PartWork]:
    """Blocks, apart from those among them that attend to a window only, as they run; the first is the model's block of
    a place."""
    window, family = on.model.sliding_window, family_of(on.model)
    if not window or on.eager or (window > on.seq_len if on.sdpa else window >= on.seq_len):  # sdpa gets a mask by then
        return [part]
    count = sum(family.windowed(block) for block in range(place, place + part.repeats))
    narrow = narrow._replace(
        repeats=count,
        forward=narrow.forward.within(window),
        again=narrow.again.within(window),
        backward=narrow.backward.within(window),
    )
    return [one for one in (narrow, part._replace(repeats=part.repeats - count)) if one.repeats]
