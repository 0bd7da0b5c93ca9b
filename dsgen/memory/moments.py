"""One moment of a strategy on one GPU, its micro-batch left open, and which moments of a phase can be its highest."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dsgen.memory.activations import Activity

__all__ = ["NOTHING", "Moment", "Part", "ResidentStates", "highest", "moment"]

Part = tuple[int, int]  # bytes, and bytes per sequence of the micro-batch
NOTHING = Activity((0, 0), (0, 0), (0, 0), 0, 0)


class ResidentStates(NamedTuple):
    """Bytes that are on the GPU at every moment of training; those of `staged` are gradients and copies of them."""

    weights: int
    master: int
    optimizer: int
    offload: int
    staged: int = 0


class Moment(NamedTuple):
    """One moment on one GPU, in bytes; what grows with the micro-batch is in `alive`.

    Attributes:
        phase: load, init, forward, backward or step.
        fixed: Bytes of all parts whatever the micro-batch is.
        each: Bytes of all parts for every sequence of the micro-batch.
        held: Weights, states and buffers that stay.
        gathered, gradients, buckets, temporaries: Bytes of these parts; what hpZ copies meanwhile is among the first.
        alive: Activations, logits and temporaries; None where there are none.
        inputs: Bytes of token ids for every sequence.
    """

    phase: str
    fixed: int
    each: int
    held: ResidentStates
    gathered: int
    gradients: int
    buckets: int
    temporaries: int
    alive: Activity | None
    inputs: int

    def total(self, micro_batch: int) -> int:
        """Bytes of all parts."""
        return self.fixed + self.each * micro_batch

    @property
    def parts(self) -> dict[str, Part]:
        """Part -> (bytes, bytes per sequence of the micro-batch)."""
        alive = self.alive or NOTHING
        return {
            "weights": (self.held.weights + alive.copies, 0),
            "fp32 master weights": (self.held.master, 0),
            "optimizer states": (self.held.optimizer, 0),
            "offload buffers": (self.held.offload, 0),
            "gathered parameters": (self.gathered - alive.copies, 0),
            "gradients": (self.gradients + self.held.staged, 0),
            "communication buckets": (self.buckets, 0),
            "activations": alive.activations,
            "logits and loss": alive.logits,
            "temporaries": (alive.temporaries[0] + self.temporaries, alive.temporaries[1]),
            "inputs": (0, self.inputs),
        }


def moment(
    phase: str,
    held: ResidentStates,
    gradients: int = 0,
    buckets: int = 0,
    temporaries: int = 0,
    gathered: int = 0,
    alive: Activity | None = None,
    inputs: int = 0,
) -> Moment:
    """A moment with its sums."""
    fixed, each = sum(held) + gathered + gradients + buckets + temporaries, inputs
    if alive is not None:
        fixed += alive.activations[0] + alive.logits[0] + alive.temporaries[0]
        each += alive.activations[1] + alive.logits[1] + alive.temporaries[1]
    return Moment(phase, fixed, each, held, gathered, gradients, buckets, temporaries, alive, inputs)


def highest(moments: Iterable[Moment]) -> Iterator[Moment]:
    """Those of each phase that are the highest for some micro-batch."""
    phases: dict[str, list[Moment]] = {}
    for one in moments:
        phases.setdefault(one.phase, []).append(one)
    for of_phase in phases.values():
        of_phase.sort(key=lambda one: (-one.each, -one.fixed))
        most = -1
        for one in of_phase:
            if one.fixed > most:
                most = one.fixed
                yield one
