"""The moments of a recorded run: which bytes are alive while it goes forward, forward again, and backward."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from dsgen.families.tape.engine import reachable
from dsgen.families.tape.graph import ACTIVATIONS, GRADIENTS, LOGITS, Delivery, Storage, Tensor
from dsgen.families.tape.moments import AGAIN, AT, BACKWARD, BEGUN, FETCHED, FORWARD, START, Activity, Position, Size
from dsgen.families.tape.tape import Tape

__all__ = ["Lifetimes", "Record", "Step", "Walker", "opening", "size"]

Step = Storage | Position | Delivery
_Ended = tuple[Size, Size, int, list[Activity]]  # what is kept by kind, and the moments of forward


_Kept_co = TypeVar("_Kept_co", covariant=True)  # what a walker says when forward has ended
_Place = TypeVar("_Place")  # where it was when forward began again


class Walker(Protocol[_Kept_co, _Place]):
    """What sees the steps of a record in the order in which they happen."""

    def over(self, steps: Sequence[Step | None], gone: Sequence[list[Storage]]) -> None:
        """Steps pass, and behind each some storages are gone."""

    def end_forward(self) -> _Kept_co:
        """Forward has ended, and its result is gone too; backward begins."""

    def begin_again(self) -> _Place:
        """Forward runs again, and backward waits at a place."""

    def end_again(self, position: _Place) -> None:
        """Backward goes on there."""

    def end_first(self) -> None:
        """The node that made forward run again has ended."""


class Lifetimes(NamedTuple):
    """What is alive when.

    Attributes:
        kept: Activations alive when forward has ended and its result is gone.
        kept_logits: The same of what has the vocabulary's width.
        kept_gradients: Bytes of weight gradients that forward has made.
        keeps_input: Whether what went in is alive then.
        gradients: Bytes of the weight gradients that backward hands over.
        forward: The moments of forward at which storages have come and others are about to go, and those of positions.
        backward: The same of backward; under checkpointing from the second forward on.
        arrivals: Every moment at which a weight gradient is handed over, which is fresh until then.
    """

    kept: Size
    kept_logits: Size
    kept_gradients: int
    keeps_input: bool
    gradients: int
    forward: list[Activity]
    backward: list[Activity]
    arrivals: list[Activity]


class Record(NamedTuple):
    """A run as a tape has recorded it.

    Attributes:
        steps: Those of forward and then of backward; the first makes what goes in.
        forward: How many are forward's.
        stop: Those of forward by which all is made that is kept.
        asked: Those before the first node that asks for what was kept.
        told: Moments tell the way and the position.
        entry: What goes in.
        result: What forward makes, which the next part of the model goes on with.
        entered: The gradients of what went in, which the part before goes on with.
        saves: What nodes keep, each time, as the tape has it.
    """

    steps: list[Step]
    forward: int
    stop: int
    asked: int
    told: bool
    entry: Storage | None
    result: Storage | None
    entered: Sequence[Tensor]
    saves: Sequence[Storage]

    def once(self) -> Lifetimes:
        """Nodes keep from forward what they need in backward."""
        alive = _Alive(self.told)
        return alive.lifetimes(self.walk(alive, again=False), self.entry is not None and self.entry.kept > 0)

    def again(self, reentrant: bool = False, behind: Size = (0, 0)) -> Lifetimes:
        """Nodes keep nothing, and what went in stays until the end; `reentrant` as in `walk`.

        `behind` is what came back from RAM for the block behind, and is there until the first node has ended.
        """
        alive = _Alive(self.told, behind)
        return alive.lifetimes(self.walk(alive, again=True, reentrant=reentrant), True)

    def walk(self, seen: Walker[_Kept_co, _Place], again: bool, reentrant: bool = False) -> _Kept_co:
        """Show every step to a walker, and the storages that are gone behind it.

        Args:
            seen: Sees them.
            again: As torch.utils.checkpoint with use_reentrant=False: when the first node asks for what it would have
                kept, forward runs again from its input until all is there that is kept.
            reentrant: As with use_reentrant=True: all of forward runs again first, and a backward of its own follows.

        Returns:
            What the walker says when forward has ended.
        """
        steps, forward, asked = self.steps, self.forward, self.asked
        if not again:
            storages = [one for one in steps if isinstance(one, Storage)]
            gone = _gone(steps, ((one, max(one.last, one.kept)) for one in storages))
            seen.over(steps[:forward], gone)
            ended = seen.end_forward()
            seen.over(steps[forward:], gone[forward:])
            return ended
        made = [one for one in steps[1:forward] if isinstance(one, Storage)]
        seen.over(steps[:forward], _gone(steps[:forward], ((one, one.last) for one in made)))
        ended = seen.end_forward()
        if reentrant:
            self._reenter(seen)
            return ended
        more = [None, *steps[1:forward]]
        more[self.stop :] = [None if isinstance(one, Storage) else one for one in more[self.stop :]]
        made = [one for one in more if isinstance(one, Storage)]
        lives = [(one, one.last) for one in steps[forward:] if isinstance(one, Storage)]
        gone = _gone(steps, [*lives, *((one, one.again) for one in made if one.again)])
        seen.over(steps[forward:asked], gone[forward:])
        place = seen.begin_again()
        seen.over(more, _gone(more, ((one, one.last) for one in made if not one.again)))
        seen.end_again(place)
        first = min((one.kept for one in self.saves if one.kept > asked), default=asked)
        seen.over(steps[asked:first], gone[asked:first])
        seen.end_first()
        seen.over(steps[first:], gone[first:])
        return ended

    def _reenter(self, seen: Walker[_Kept_co, _Place]) -> None:
        """The backward of a block whose forward has kept nothing: torch's function refers to what it makes anew and to
        the gradient of that until it returns."""
        steps, forward = self.steps, self.forward
        given = next((one for one in steps[forward:] if isinstance(one, Storage)), None)
        more = [None if one is given else one for one in (None, *steps[1:])]
        made = [one for one in more if isinstance(one, Storage) and one is not self.result]
        gone = _gone(more, ((one, max(one.last, one.kept)) for one in made))
        seen.over([given], [[]])
        place = seen.begin_again()
        seen.over(more[:forward], gone)
        seen.end_again(place)
        seen.over(more[forward:], gone[forward:])


def opening(tape: Tape, hidden: Tensor, *others: Tensor) -> tuple[list[Activity], set[Storage]]:
    """What comes before the blocks, whose result and the tensors beside it live on.

    Returns:
        Its moments, and what the result's graph keeps.
    """
    kept = {storage for node in reachable(hidden) for storage in node.saved or ()}
    tape.hold(hidden, *others)
    for storage in kept:
        storage.last = len(tape.steps)
    alive = _Alive(False)
    alive.over(tape.steps, _gone(tape.steps, ((one, one.last) for one in tape.steps if isinstance(one, Storage))))
    return alive.moments, kept


def size(storages: Iterable[Storage | None]) -> Size:
    """Bytes of storages, each counted once."""
    each = {storage for storage in storages if storage is not None}
    return sum(one.fixed for one in each), sum(one.each for one in each)


def _gone(steps: Sequence[Step | None], lives: Iterable[tuple[Storage, int]]) -> list[list[Storage]]:
    """For every step, the storages that are gone behind it; each has the number of steps that it lives for."""
    gone: list[list[Storage]] = [[] for _ in steps]
    for storage, end in lives:
        gone[end - 1].append(storage)
    return gone


class _Alive:
    """Bytes of each kind that are alive while steps pass, and the moments of that."""

    def __init__(self, told: bool, behind: Size = (0, 0)) -> None:
        self.told, self.behind = told, behind
        self.way, self.position = FORWARD, START
        self.fixed, self.each = [0, 0, 0, 0], [0, 0, 0, 0]
        self.handed = self.last = 0
        self.moments: list[Activity] = []
        self.arrivals: list[Activity] = []
        self.rising = False  # whether storages came since the last moment

    def over(self, steps: Sequence[Step | None], gone: Sequence[list[Storage]]) -> None:
        """Let steps pass."""
        fixed, each = self.fixed, self.each
        for step, ended in zip(steps, gone, strict=False):
            if isinstance(step, Storage):
                kind = step.kind
                if kind == LOGITS:  # what is alive without them counts apart
                    self._record()
                self.rising = True
                fixed[kind] += step.fixed
                each[kind] += step.each
            elif isinstance(step, Position):
                if step.stage != BEGUN:
                    self._reach(step)
            elif step is not None:
                self._record()
                self.arrivals.append(self._now())
                self.last = step.gradient.fixed
                self.handed += self.last
            if ended:
                self._record()
                for storage in ended:
                    fixed[storage.kind] -= storage.fixed
                    each[storage.kind] -= storage.each

    def end_forward(self) -> _Ended:
        """What forward has kept, now that its result is gone too; backward begins."""
        self._record()
        fixed, each = self.fixed, self.each
        kept, logits = ((fixed[kind], each[kind]) for kind in (ACTIVATIONS, LOGITS))
        forward, self.moments = self.moments, []
        self._beside(1)
        self._turn(BACKWARD)
        return kept, logits, fixed[GRADIENTS], forward

    def begin_again(self) -> Position:
        """Forward runs again; backward goes on at the position that is returned."""
        self._record()
        self._turn(AGAIN)
        position, self.position = self.position, START
        return position

    def end_again(self, position: Position) -> None:
        """Backward goes on at a position."""
        if self.told:
            self._record()
        self._turn(BACKWARD)
        self.position = position

    def end_first(self) -> None:
        """What was there for the block behind is gone."""
        self._record()
        self._beside(-1)

    def _beside(self, times: int) -> None:
        self.fixed[ACTIVATIONS] += times * self.behind[0]
        self.each[ACTIVATIONS] += times * self.behind[1]

    def lifetimes(self, ended: _Ended, keeps_input: bool) -> Lifetimes:
        """All of it, at the end of backward."""
        self._record()
        kept, logits, gradients, forward = ended
        return Lifetimes(kept, logits, gradients, keeps_input, self.handed, forward, self.moments, self.arrivals)

    def _turn(self, way: int) -> None:
        if self.told:
            self.way = way

    def _reach(self, position: Position) -> None:
        self._record()
        if position.stage == AT:  # it has been fetched before
            self.position = Position(position.matrices, FETCHED)
            self.moments.append(self._now())
        self.position = position

    def _record(self) -> None:
        """Keep this moment if it is a high one: storages came, and now something changes."""
        if self.rising:
            self.moments.append(self._now())
            self.rising = False

    def _now(self) -> Activity:
        fixed, each = self.fixed, self.each
        sizes = (fixed[0], each[0]), (fixed[1], each[1]), (fixed[2], each[2])
        return Activity(*sizes, self.handed, fixed[GRADIENTS], "", 0, self.last, self.way, self.position)
