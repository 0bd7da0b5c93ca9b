"""What a run would die of first: the phase and the place, in the order of a run."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from dsgen.memory import MemoryEstimate, Verdict, verdict

if TYPE_CHECKING:
    from dsgen.memory.later import Later  # a plan for no program has none

__all__ = ["Failure", "first_to_fail"]

_COMING = ("load", "init")  # before the first step, where nothing that trains is in a node's RAM


class Failure(NamedTuple):
    """One phase in one place.

    Attributes:
        phase: load, init, forward, backward, step, "evaluate 8 sequences", save or resume.
        place: gpu, host or nvme.
        least_bytes: The least that it takes there, with what no tensor holds.
        needed_bytes: What is expected.
        high_bytes: The most.
        limit_bytes: What is there.
        step: Optimizer step from 1; 0 before the first and between them.
    """

    phase: str
    place: str
    least_bytes: int
    needed_bytes: int
    high_bytes: int
    limit_bytes: int
    step: int = 0

    @property
    def words(self) -> str:
        """The phase as a sentence calls it; of a later step with its number."""
        name = "optimizer step" if self.phase == "step" else self.phase
        return f"{name} of step {self.step}" if self.step > 1 else name

    @property
    def verdict(self) -> Verdict:
        """Whether it fits."""
        return verdict(self.least_bytes, self.high_bytes, self.limit_bytes)

    @property
    def share(self) -> float:
        """The most that it takes, as a share of what is there."""
        return self.high_bytes / self.limit_bytes if self.limit_bytes else float(self.high_bytes > 0)


def first_to_fail(memory: MemoryEstimate, laters: "Iterable[Later]") -> Failure | None:
    """The first that takes more than there is; where none is expected to, what comes nearest; None without phases.

    Where everything surely fits, that is the nearest on the GPU, whose room is the harder to widen.

    Args:
        memory: What the strategy takes while it trains.
        laters: What comes between its steps.
    """
    every = [*_training(memory), *_between(laters)]
    over = next((one for one in every if one.needed_bytes > one.limit_bytes), None)
    near = [one for one in every if one.verdict is not Verdict.FITS] or [one for one in every if one.place == "gpu"]
    return over or max(near, key=lambda one: one.share, default=None)


def _training(memory: MemoryEstimate) -> Iterator[Failure]:
    gpu, host, nvme = memory.gpu, memory.host, memory.nvme
    low, high = (size / gpu.peak_bytes if gpu.peak_bytes else 1.0 for size in (gpu.low_bytes, gpu.tensors_high_bytes))
    outside, processes = gpu.overhead_bytes, host.overhead_bytes
    trained = max((phase.host_bytes for phase in memory.phases if phase.phase not in _COMING), default=0)
    for phase in memory.phases:
        ram = phase.host_bytes + processes
        later = trained - phase.host_bytes  # what the first step makes there
        most = ram if phase.phase in _COMING else max(ram, host.high_bytes - later)
        yield Failure(phase.phase, "host", ram, ram, most, host.limit_bytes, phase.step)
        if phase.phase == "init" and nvme.peak_bytes:  # where the files of what is swapped are made
            yield Failure(phase.phase, "nvme", nvme.low_bytes, nvme.peak_bytes, nvme.high_bytes, nvme.limit_bytes)
        held = phase.gpu_bytes
        sizes = int(held * low) + outside, held + outside, int(held * high) + outside + gpu.overhead_more_bytes
        yield Failure(phase.phase, "gpu", *sizes, gpu.limit_bytes, phase.step)


def _between(laters: "Iterable[Later]") -> Iterator[Failure]:
    for one in laters:
        for name, place in (("gpu", one.gpu), ("host", one.host)):
            sizes = place.least_bytes, place.needed_bytes, place.high_bytes
            yield Failure(one.phase.phase, name, *sizes, place.limit_bytes)
