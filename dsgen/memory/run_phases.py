"""The highest moment of every phase of a run: loading, initialize, the first step, and a later one where it is another.

The first passes run before an optimizer has stepped, and most make their states in their first step: torch's and
bitsandbytes' do, and DeepSpeed's on the CPU (ops/adam/cpu_adam.py, step); at stages 1 to 3 DeepSpeed 0.14 to 0.19 steps
none of them before (initialize_optimizer_states of stage_1_and_2.py and stage3.py; 0.12 did). Its wrappers of stage 0
do (fp16/fused_optimizer.py and unfused_optimizer.py), and torch's Adagrad makes its states when it is made.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dsgen.jobs.job import Job
from dsgen.memory.moments import Moment
from dsgen.memory.parts import Parts, passes_of
from dsgen.memory.states import MUON
from dsgen.strategies.strategies import Strategy

__all__ = ["MEASURED", "PhaseMemory", "beyond", "highest_of", "named", "phases_of"]

MEASURED = "measured beyond these"  # the part of a peak that only a measurement of the machine tells of
_STATES = "optimizer states"  # part of a node's RAM
_PASSES = ("forward", "backward")


class PhaseMemory(NamedTuple):
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


def highest_of(moments: Sequence[Moment], micro_batch: int) -> tuple[Moment, int]:
    """The moment that holds most, the first of equals, and its bytes."""
    best, most = moments[0], -1
    for moment in moments:
        total = moment.fixed + moment.each * micro_batch
        if total > most:
            best, most = moment, total
    return best, most


def beyond(peak: int, ratio: float) -> int:
    """What a measurement adds to a peak; below 0 where less was measured."""
    return int(peak * (ratio - 1))


def named(moment: Moment, micro_batch: int, ratio: float) -> dict[str, int]:
    """Part -> bytes of a moment, with what a measurement of the machine tells."""
    sizes = {name: size for name, (fixed, each) in moment.parts.items() if (size := fixed + each * micro_batch)}
    if measured := beyond(sum(sizes.values()), ratio):
        sizes[MEASURED] = measured
    return sizes


def phases_of(job: Job, strategy: Strategy, parts: Parts, ratio: float, single: bool) -> tuple[PhaseMemory, ...]:
    """The highest moment of each phase, in the order of a run; of a step that of its last micro-batch.

    A second step stands beside the first where its passes have what the first step has made.

    Args:
        job: The job.
        strategy: The strategy.
        parts: Its parts.
        ratio: What tensors take by what is computed, as somebody measured.
        single: As for the parts.
    """
    micro_batch, ram = strategy.micro_batch, parts.host.phases
    passing = parts.host.passing(micro_batch)

    def phase(name: str, step: int, moments: Sequence[Moment], host: Mapping[str, int]) -> PhaseMemory:
        own = [one for one in moments if one.phase == name]
        gpu = named(highest_of(own, micro_batch)[0], micro_batch, ratio) if own else {}
        return PhaseMemory(name, step, int(name in _PASSES), gpu, host)

    sure, *either, later = passes_of(job, strategy, strategy.buffers, strategy.accumulation, single)
    lower = [_lower(either, name, micro_batch) for name in _PASSES]
    first = (*sure, *(one for one in lower if one is not None))
    steps = [
        [phase(name, step, moments, host) for name in _PASSES] + [phase("step", step, moments, parts.host.stepping)]
        for step, moments, host in ((1, first, _unstepped(job, strategy, passing)), (2, later, passing))
    ]
    alike = all(one._replace(step=0) == other._replace(step=0) for one, other in zip(*steps, strict=True))
    begun = [phase(name, 0, parts.moments, ram[name]) for name in ("load", "init")]
    return (*begun, *steps[0], *(() if alike else steps[1]))


def _unstepped(job: Job, strategy: Strategy, training: Mapping[str, int]) -> Mapping[str, int]:
    """A node's RAM before the first step has made the states of an optimizer there; of Muon it is not known."""
    if strategy.offload_optimizer == "none" or job.training.optimizer == MUON:
        return training
    return {name: size for name, size in training.items() if name != _STATES}


def _lower(counts: Sequence[Sequence[Moment]], name: str, micro_batch: int) -> Moment | None:
    """The highest moment of a phase by the count that has less there."""
    own = [[one for one in moments if one.phase == name] for moments in counts]
    tops = [highest_of(one, micro_batch) for one in own if one]
    return min(tops, key=lambda top: top[1])[0] if tops else None
