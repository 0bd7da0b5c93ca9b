"""Which batches of a layout fit on a job's GPUs, in its nodes' RAM and on their drives, or what none of them has."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dsgen.jobs.job import Job
from dsgen.memory.estimates import Room, Verdict, host_place
from dsgen.memory.parts import Parts, counted
from dsgen.memory.widened import widened
from dsgen.shapes.units import gib
from dsgen.strategies.buffers import Buffers
from dsgen.strategies.strategies import Layout, Rejection

__all__ = ["UNITS_OF", "Fits", "fits"]

UNITS_OF = {"gpu": "GiB", "host": "GiB of host RAM", "nvme": "GiB of NVMe"}  # place -> what its memory is counted in


class Fits(NamedTuple):
    """What a layout takes that may fit with its smallest micro-batch.

    Attributes:
        sure: Places of the batches that surely fit, in order.
        most_bytes: The most that a process may take of a GPU with each of those.
        counted: Forward passes of a step -> the layout's parts with them.
        passes: Those of a step from which on memory is the same.
    """

    sure: tuple[int, ...]
    most_bytes: tuple[int, ...]
    counted: Mapping[int, Parts]
    passes: int

    def parts(self, accumulation: int) -> Parts:
        """The parts with one of the batches, by its forward passes."""
        return self.counted[min(accumulation, self.passes)]


def fits(
    job: Job, layout: Layout, buffers: Buffers, batches: Sequence[tuple[int, int, int]], gpu: Room
) -> Fits | Rejection:
    """Which batches of a layout surely fit; or where there is no room even for the smallest.

    Args:
        job: The job.
        layout: The layout.
        buffers: Its buffers.
        batches: (micro-batch, accumulation, global batch), the largest micro-batch first.
        gpu: What one GPU has for it.
    """
    most = _passes(job, layout)
    less, more = widened(job, layout, buffers)
    smallest, steps, _ = batches[-1]
    least = min(steps, most)
    by_passes = {least: counted(job, layout, buffers, least)}
    host = host_place(job, by_passes[least], smallest)
    hosts = {(least, smallest if by_passes[least].host.offloaded else 0): host.verdict}
    for place, needed, limit in (
        ("gpu", gpu.low(by_passes[least].peak(smallest), by_passes[least].doubted, less), gpu.limit),
        ("host", host.least_bytes, host.limit_bytes),
        ("nvme", by_passes[least].host.stored, job.hardware.nvme_capacity_bytes),
    ):
        if needed > limit:
            why = f"needs {gib(needed)} {UNITS_OF[place]}: {gib(needed - limit)} GiB too much"
            return Rejection(layout=layout, why=why, missing_bytes=needed - limit, place=place)
    sure: list[int] = []
    taken: list[int] = []
    for number, (micro_batch, steps, _) in enumerate(batches):
        passes = min(steps, most)
        if passes not in by_passes:
            by_passes[passes] = counted(job, layout, buffers, passes)
        high = gpu.high(by_passes[passes].peak(micro_batch), by_passes[passes].doubted, more)
        if high > gpu.limit:
            continue
        parts = by_passes[passes]
        of = passes, micro_batch if parts.host.offloaded else 0  # else RAM is the same with any batch
        if of not in hosts:
            hosts[of] = host_place(job, parts, micro_batch).verdict
        if hosts[of] is Verdict.FITS:
            sure.append(number)
            taken.append(high)
    return Fits(tuple(sure), tuple(taken), by_passes, most)


def _passes(job: Job, layout: Layout) -> int:
    """Forward passes of a step from which on memory is the same: three only where head and embedding are one.

    At stage 3 the second finds in place what the first fetches ahead behind a step.
    """
    return 3 if layout.stage != 3 and job.model.tied_embeddings else 2
