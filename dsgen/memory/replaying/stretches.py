"""The requests of one stretch of a model, a block or the head, in the order in which its forward and backward run."""

from collections.abc import Sequence
from typing import NamedTuple

from dsgen.allocators.caching import SMALL_REQUEST
from dsgen.families.tape.graph import Storage
from dsgen.families.tape.lifetimes import Record, Step
from dsgen.families.tape.moments import AGAIN, AT, BACKWARD, BEGUN, FORWARD, Position
from dsgen.families.tape.tape import LOGITS

__all__ = ["ASKING", "BORN", "ENDED", "FREED", "HANDED", "LEFT", "LOST", "MULTIPLIED", "NORMED", "REACHED", "RETURNED",
           "StretchRequests", "stretch_requests"]  # fmt: skip

# A storage is made, or it is gone; a weight's gradient is handed over; a matrix is used, so stage 3 has gathered it, or
# has been used; a norm begins, or the loss; the first product of matrices of forward or of backward has its result.
# The node of backward that has made forward run again has ended; a storage comes back from the node's RAM.
BORN, FREED, HANDED, REACHED, LEFT, NORMED, LOST, MULTIPLIED, ENDED, RETURNED = range(10)
ASKING = -1  # in place of matrices before it: a module of backward that asks for what the second forward makes
Happening = tuple[int, int, int]  # which of them; the storage, or the way; bytes, or matrices of the block before it


class StretchRequests(NamedTuple):
    """What happens in a stretch; storages are numbered in the order of birth.

    Attributes:
        forward, backward: What happens, in order; under checkpointing backward has the second forward.
        entry: The storage that goes in, which the stretch before has made.
        result: The one that goes on to the next stretch.
        given: The gradient of the result, which the next stretch has made; 0 where there is no backward.
        passed: The gradient of what went in, which the stretch before goes on with; 0 where there is none.
    """

    forward: tuple[Happening, ...]
    backward: tuple[Happening, ...]
    entry: int
    result: int
    given: int
    passed: int


class _Noted:
    """Notes what happens while a record is walked."""

    def __init__(self, micro_batch: int) -> None:
        self.micro_batch = micro_batch
        self.way = FORWARD
        self.now: list[Happening] = []
        self.multiplied = False  # by now, in forward or in backward
        self.lost = False  # whether the loss has begun
        self.using: Happening | None = None  # the matrix that is used now
        self.forward: tuple[Happening, ...] = ()
        self.backward: tuple[Happening, ...] = ()
        self.numbers: dict[Storage | None, int] = {}
        self.made = 0

    def over(self, steps: Sequence[Step | None], gone: Sequence[list[Storage]]) -> None:
        """Let steps pass."""
        now, numbers, micro_batch, ends = self.now, self.numbers, self.micro_batch, self._ends(steps)
        for number, (step, ended) in enumerate(zip(steps, gone, strict=False)):
            if isinstance(step, Storage):
                if step.kind == LOGITS and not self.lost:
                    self.lost = True
                    now.append((LOST, 0, 0))
                self.made += 1
                numbers[step] = self.made
                now.append((RETURNED if step.returns else BORN, self.made, step.fixed + step.each * micro_batch))
                if step.product and not self.multiplied:
                    self.multiplied = True
                    now.append((MULTIPLIED, self.made, 0))
            elif isinstance(step, Position):
                if step.stage in (AT, BEGUN):
                    now.append((REACHED if step.stage == AT else NORMED, self.way, step.matrices))
            elif step is not None:
                gradient = step.gradient
                now.append((HANDED, numbers[gradient], gradient.fixed + gradient.each * micro_batch))
            now += ends.get(number, ())
            now += [(FREED, numbers[one], 0) for one in ended]

    def _ends(self, steps: Sequence[Step | None]) -> dict[int, list[Happening]]:
        """The steps behind which a matrix has been used: its product, or in backward the last that it has part in."""
        ends: dict[int, list[Happening]] = {}
        last: int | None = None
        for number, step in enumerate((*steps, None)):
            over = number == len(steps)
            if over or (isinstance(step, Position) and step.stage == AT):
                if self.using and last is not None:
                    ends[last], self.using = [self.using], None
                if isinstance(step, Position):
                    self.using, last = (LEFT, self.way, step.matrices), None
            elif step is not None and self.using and not isinstance(step, Position):
                product = (step if isinstance(step, Storage) else step.gradient).product
                if product and (last is None or self.way == BACKWARD):
                    last = number
        return ends

    def leave_out_small(self) -> None:
        """Forget what is too small to be followed (`requests.Requests`): nothing else would be asked of it."""
        every = (*self.forward, *self.now)
        small = {one for what, one, size in every if what in (BORN, RETURNED) and size <= SMALL_REQUEST}
        small -= {one for what, one, _ in every if what == HANDED}
        self.forward, self.backward = (
            tuple(each for each in part if each[0] not in (BORN, RETURNED, FREED) or each[1] not in small)
            for part in (self.forward, self.now)
        )

    def end_forward(self) -> dict[Storage | None, int]:
        """Forward has ended, which has made these; backward begins."""
        self.forward, self.now, self.multiplied = tuple(self.now), [], False
        self.way, self.using = BACKWARD, None
        return dict(self.numbers)

    def begin_again(self) -> Happening | None:
        """Forward runs again, for a module of backward that asks for what it makes: its matrix is used behind that."""
        asking, self.using, self.way = self.using, None, AGAIN
        if self.now and self.now[-1][0] == REACHED:
            self.now.pop()
        self.now.append((REACHED, AGAIN, ASKING))
        return asking

    def end_again(self, position: Happening | None) -> None:
        """Backward goes on, with the matrix of the module that has asked."""
        self.way, self.using = BACKWARD, position
        if position:
            self.now.append((REACHED, *position[1:]))

    def end_first(self) -> None:
        """The node that has asked has ended."""
        self.now.append((ENDED, 0, 0))


def stretch_requests(record: Record, again: bool, micro_batch: int, reentrant: bool = False) -> StretchRequests:
    """What a record makes with a micro-batch, with checkpointing (`again`), `reentrant` or not, or without."""
    noted = _Noted(micro_batch)
    before = record.walk(noted, again, reentrant)  # a second forward makes entry and result anew
    noted.leave_out_small()
    given = next((one for one in record.steps[record.forward :] if isinstance(one, Storage)), None)
    passed = record.entered[0].storage if record.entered else None
    ends = before.get(record.entry, 0), before.get(record.result, 0)
    return StretchRequests(
        noted.forward, noted.backward, *ends, noted.numbers.get(given, 0), noted.numbers.get(passed, 0)
    )
