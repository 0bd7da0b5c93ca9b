"""When a simulated step does what: its seconds by what fills them, and every interval on every queue."""

from collections.abc import Mapping
from typing import NamedTuple

import attrs

__all__ = [
    "ALIKE",
    "CONTENTION",
    "HOST_BOUND",
    "KERNELS",
    "EnteredPhase",
    "Interval",
    "PathStretch",
    "PhaseTime",
    "Timeline",
]

HOST_BOUND = "host-bound"  # the part in which the GPU waits for the host's dispatch
CONTENTION = "contention"  # the part by which kernels take longer because others or collectives run beside them
ALIKE = "passes alike"  # what stands for passes that are added up, instead of each of them
KERNELS = "kernels"  # what a stretch of kernels is


class Interval(NamedTuple):
    """Something that runs on one queue.

    Attributes:
        queue: "compute" (the default stream), "stream 1" ..., "collectives" (of a node), "inter-node", "drives" or
            "host".
        sort: The part of `Timeline.parts` that it counts as.
        name: Operator, kernel or collective.
        begin: Seconds from the begin of the step.
        seconds: How long.
        bytes: Read, written or sent; 0 of products and attention.
        alone: Seconds it would take with nothing beside it.
        module: The model's module in which it is queued: "model.layers.3.mlp.up_proj"; empty outside.
        cause: Place in `Timeline.intervals` of what it waited for last on another queue; -1 where that is the host, or
            the work before it on its own.
        sizes: "4096 x 11008 x 4096, bf16" of m x k by k x n as m x n x k; "1 x 32 heads, 4096 x 4096 x 128, bf16" of
            attention: sequences, heads, queries, keys and a head; empty of all else.
    """

    queue: str
    sort: str
    name: str
    begin: float
    seconds: float
    bytes: int
    alone: float
    module: str
    cause: int
    sizes: str = ""


class EnteredPhase(NamedTuple):
    """Where the host enters a phase: as in `PhaseTime`."""

    phase: str
    micro_batch: int
    begin: float


class PhaseTime(NamedTuple):
    """A phase, as the host goes through it: the GPU is behind.

    Attributes:
        phase: input, forward, backward or step.
        micro_batch: The pass of accumulation, from 1.
        begin: Seconds from the begin of the step.
        seconds: How long.
        parts: Sort -> seconds of the compute stream, as in `Timeline.parts`: what it runs and waits for that the host
            queues in this phase. They add up to the GPU's seconds of the phase, and over all phases to the step's.
    """

    phase: str
    micro_batch: int
    begin: float
    seconds: float
    parts: Mapping[str, float]

    @property
    def gpu_seconds(self) -> float:
        """How long the GPU is at it."""
        return sum(self.parts.values())


class PathStretch(NamedTuple):
    """A piece of the critical path: everything in it ends just when the next begins, which waited for it.

    Attributes:
        what: kernels, or as in `Timeline.parts`: a collective, copies, host-bound ...
        phase: The phase in which the host queued it.
        micro_batch: Its pass of accumulation.
        begin: Seconds from the begin of the step.
        seconds: How long.
        first, last: The model's modules that it begins and ends in; empty outside.
        repeated_seconds: What it takes besides in the passes that are added up, which are like its own.
    """

    what: str
    phase: str
    micro_batch: int
    begin: float
    seconds: float
    first: str
    last: str
    repeated_seconds: float = 0.0


@attrs.frozen(kw_only=True)
class Timeline:
    """The last step of a simulation on given hardware.

    Attributes:
        seconds: Of the step.
        parts: Sort -> seconds; they add up to `seconds`. Of work: what the compute stream runs. Of anything else
            (collectives by kind and link, copies, host-bound ...): what the compute stream waits for, that is, what is
            exposed. Of kernels without what they take longer because of others, which is `CONTENTION`.
        busy: Sort -> seconds on the queue that runs it, exposed or not, other streams included.
        path: Sort -> seconds of the critical path, which add up to `seconds`: shorten one of them, and the step ends
            earlier.
        stretches: The critical path in the order of time.
        phases: The phases, in order.
        host_seconds: The host works for so long: dispatch, hooks, CPU Adam; the rest it waits.
        model_flops: Of products and attention, without what is recomputed.
        hardware_flops: With it.
        nearest: The profile whose measurements stand in for this GPU's; None where it has its own.
        intervals: By queue, each in the order of time.
        memory: When the host allocates, and the most bytes that tensors of the GPU take until the next such moment.
    """

    seconds: float
    parts: Mapping[str, float]
    busy: Mapping[str, float]
    path: Mapping[str, float]
    stretches: tuple[PathStretch, ...]
    phases: tuple[PhaseTime, ...]
    host_seconds: float
    model_flops: float
    hardware_flops: float
    nearest: str | None
    intervals: tuple[Interval, ...]
    memory: tuple[tuple[float, int], ...] = ()

    @property
    def hidden(self) -> Mapping[str, float]:
        """Sort -> seconds that run while the compute stream works on something else."""
        return {sort: max(seconds - self.parts.get(sort, 0.0), 0.0) for sort, seconds in self.busy.items()}
