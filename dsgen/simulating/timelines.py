"""When a simulated step does what: its seconds by what fills them, and every interval on every queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import attrs

__all__ = ["HOST_BOUND", "Interval", "PhaseTime", "Timeline"]

HOST_BOUND = "host-bound"  # the part in which the GPU waits for the host's dispatch


class Interval(NamedTuple):
    """Something that runs on one queue.

    Attributes:
        queue: "compute" (the default stream), "stream 1" ..., "collectives", "drives", "host".
        sort: The part of `Timeline.parts` that it counts as.
        name: Operator, kernel or collective.
        begin: Seconds from the begin of the step.
        seconds: How long.
        bytes: Read, written or sent; 0 of products and attention.
    """

    queue: str
    sort: str
    name: str
    begin: float
    seconds: float
    bytes: int


class PhaseTime(NamedTuple):
    """A phase, as the host goes through it: the GPU is behind.

    Attributes:
        phase: input, forward, backward or step.
        micro_batch: The pass of accumulation, from 1.
        begin: Seconds from the begin of the step.
        seconds: How long.
    """

    phase: str
    micro_batch: int
    begin: float
    seconds: float


@attrs.frozen(kw_only=True)
class Timeline:
    """The last step of a simulation on given hardware.

    Attributes:
        seconds: Of the step.
        parts: Sort -> seconds; they add up to `seconds`. Of work: what the compute stream runs. Of anything else
            (collectives by kind, copies, host-bound ...): what the compute stream waits for, that is, what is exposed.
        busy: Sort -> seconds on the queue that runs it, exposed or not, other streams included.
        phases: The phases, in order.
        host_seconds: The host works for so long: dispatch, hooks, CPU Adam; the rest it waits.
        model_flops: Of products and attention, without what is recomputed.
        hardware_flops: With it.
        nearest: The profile whose measurements stand in for this GPU's; None where it has its own.
        intervals: By queue, each in the order of time.
    """

    seconds: float
    parts: Mapping[str, float]
    busy: Mapping[str, float]
    phases: tuple[PhaseTime, ...]
    host_seconds: float
    model_flops: float
    hardware_flops: float
    nearest: str | None
    intervals: tuple[Interval, ...]

    @property
    def hidden(self) -> Mapping[str, float]:
        """Sort -> seconds that run while the compute stream works on something else."""
        return {sort: max(seconds - self.parts.get(sort, 0.0), 0.0) for sort, seconds in self.busy.items()}
