"""A strategy's memory against what is there: peak, interval, verdict, and the parts that add up to the peak."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from dsgen.jobs import Job
from dsgen.memory.limits import gpu_limit, host_limit
from dsgen.memory.parts import Parts, parts
from dsgen.strategies import Strategy

__all__ = ["MemoryEstimate", "PhaseMemory", "Place", "Verdict", "estimate", "gpu_high", "gpu_peak", "verdict"]

# The interval around the GPU's peak. Low: the caching allocator never needs less than the tensors; the parts agree
# within 4 % with the real engine's tensors (tests/test_memory.py). High: the allocator rounds to 2 MiB blocks, and
# cannot reuse every hole; ms-swift's and Qwen's published peaks (reserved, or as nvidia-smi shows) lie 0 to 10 %
# above.
LOW = 0.96
HIGH = 1.10
PINNED_ROUNDING = 1.5  # torch's pinned-memory allocator rounds to a power of two: 1 to 2 times, 1.5 in the mean


class Verdict(enum.Enum):
    """Whether it fits: the whole interval, a part of it, or none of it."""

    FITS = "fits"
    UNCERTAIN = "uncertain"
    DOES_NOT_FIT = "does not fit"


@attrs.frozen(kw_only=True)
class Place:
    """One place's memory: the peak, its interval, the limit, and the parts of the peak phase.

    Attributes:
        peak_bytes: Bytes of all tensors at the highest moment; on a GPU, torch's `max_memory_allocated` less rounding.
        low_bytes: Least that the tensors can take.
        high_bytes: Most that the process can take, everything outside the tensors included.
        limit_bytes: What is there.
        parts: Part -> bytes; they add up to the peak.
        phase: When the peak is.
        reserved_bytes: On a GPU, what torch's allocator takes for them, its `max_memory_reserved`.
        overhead: What no tensor holds and torch does not see -> bytes.
    """

    peak_bytes: int
    low_bytes: int
    high_bytes: int
    limit_bytes: int
    parts: Mapping[str, int]
    phase: str
    reserved_bytes: int = 0
    overhead: Mapping[str, int] = attrs.Factory(dict)

    @property
    def overhead_bytes(self) -> int:
        """Sum of the overhead."""
        return sum(self.overhead.values())

    @property
    def verdict(self) -> Verdict:
        """Whether it fits here: with everything that is certain, and with everything that is plausible."""
        return verdict(self.low_bytes + self.overhead_bytes, self.high_bytes, self.limit_bytes)


@attrs.frozen(kw_only=True)
class PhaseMemory:
    """The highest moment of one phase.

    Attributes:
        phase: load, init, forward, backward or step.
        step: Optimizer step from 1; 0 before the first.
        micro_batch: Forward pass of the step from 1; 0 where the phase has none.
        gpu: Part -> bytes on one GPU.
        host: Part -> bytes in one node's RAM.
    """

    phase: str
    step: int
    micro_batch: int
    gpu: Mapping[str, int]
    host: Mapping[str, int]

    @property
    def gpu_bytes(self) -> int:
        """Bytes of all tensors on one GPU."""
        return sum(self.gpu.values())

    @property
    def host_bytes(self) -> int:
        """Bytes in one node's RAM."""
        return sum(self.host.values())


@attrs.frozen(kw_only=True)
class MemoryEstimate:
    """What a strategy takes on one GPU, in one node's RAM, and on one node's drives; and the phases it passes."""

    gpu: Place
    host: Place
    nvme: Place
    phases: tuple[PhaseMemory, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of the three places."""
        verdicts = [place.verdict for place in (self.gpu, self.host, self.nvme)]
        return next((worst for worst in (Verdict.DOES_NOT_FIT, Verdict.UNCERTAIN) if worst in verdicts), Verdict.FITS)


def verdict(low: float, high: float, limit: int) -> Verdict:
    """Whether an interval fits under a limit."""
    if high <= limit:
        return Verdict.FITS
    return Verdict.UNCERTAIN if low <= limit else Verdict.DOES_NOT_FIT


def gpu_peak(found: Parts, micro_batch: int) -> tuple[int, str]:
    """The largest phase of a micro-batch on the GPU: its bytes and its name."""
    best, name = -1, ""
    for phase, phase_parts in found.phases.items():
        total = 0
        for fixed, per_sequence in phase_parts.values():
            total += fixed + per_sequence * micro_batch
        if total > best:
            best, name = total, phase
    return best, name


def gpu_high(peak: int) -> int:
    """The upper end of the interval around a GPU peak."""
    return int(peak * HIGH)


def estimate(job: Job, strategy: Strategy, found: Parts | None = None) -> MemoryEstimate:
    """The memory of one strategy.

    Args:
        job: The job.
        strategy: The strategy, its micro-batch included.
        found: Its parts, when the caller has them already.
    """
    found = found or parts(job, strategy, strategy.buffers)
    peak, phase = gpu_peak(found, strategy.micro_batch)
    limit = gpu_limit(job.hardware)
    gpu_parts = {
        name: fixed + per_sequence * strategy.micro_batch
        for name, (fixed, per_sequence) in found.phases[phase].items()
        if fixed + per_sequence * strategy.micro_batch
    }
    nvme = sum(found.nvme.values())
    return MemoryEstimate(
        gpu=Place(
            peak_bytes=peak,
            low_bytes=int(peak * LOW),
            high_bytes=gpu_high(peak),
            limit_bytes=limit,
            parts=gpu_parts,
            phase=phase,
        ),
        host=host_place(job, found),
        nvme=Place(
            peak_bytes=nvme,
            low_bytes=nvme,
            high_bytes=nvme,
            limit_bytes=job.hardware.nvme_capacity_bytes,
            parts=found.nvme,
            phase="training",
        ),
    )


def host_place(job: Job, found: Parts) -> Place:
    """One node's RAM: the larger of loading and training; pinned parts widen the interval upwards."""
    totals = {phase: sum(phase_parts.values()) for phase, phase_parts in found.host.items()}
    phase = max(totals, key=lambda name: totals[name])
    peak = totals[phase]
    rounding = int(found.pinned * (PINNED_ROUNDING - 1)) if phase == "training" else 0
    return Place(
        peak_bytes=peak,
        low_bytes=peak,
        high_bytes=peak + rounding,
        limit_bytes=host_limit(job.hardware),
        parts=found.host[phase],
        phase=phase,
    )
