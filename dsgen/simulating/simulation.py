"""What a simulation found: memory of a GPU and of a node by phase, the largest tensors, the collectives, a timeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from dsgen.memory import MemoryEstimate, PhaseMemory
from dsgen.memory.conversions import Afterwards
from dsgen.shapes.profiles import Hardware
from dsgen.simulating.run_options import Options
from dsgen.simulating.timelines import Timeline
from dsgen.targets.filling import Filled

__all__ = ["Collective", "Sample", "Shortage", "Simulation", "TensorGroup"]


@attrs.frozen(kw_only=True)
class TensorGroup:
    """Equal tensors that are alive at a peak.

    Attributes:
        kind: What they are for: "gathered parameters".
        bytes: Of all of them; on the host, of all ranks of the node.
        each_bytes: Of one.
        count: How many.
        dtype: "bfloat16".
        shape: "(4096, 11008)".
        site: Where they are made: "deepspeed/runtime/zero/stage3.py:step:2897"; empty outside the libraries.
        operator: torch's operator that made them.
    """

    kind: str
    bytes: int
    each_bytes: int
    count: int
    dtype: str
    shape: str
    site: str
    operator: str


@attrs.frozen(kw_only=True)
class Collective:
    """A kind of collective that one rank issues in one phase of one step.

    Attributes:
        step: Optimizer step from 1; 0 before the first.
        phase: init, forward, backward or step.
        kind: As NCCL calls it: "all-gather".
        ranks: Size of the group.
        bytes: Of the largest operand of one call: of an all-gather, what is there after it.
        count: Calls.
    """

    step: int
    phase: str
    kind: str
    ranks: int
    bytes: int
    count: int


@attrs.frozen(kw_only=True)
class Sample:
    """The highest moment of a short stretch of the run.

    Attributes:
        phase: Place of the running phase in `Simulation.estimate.phases`.
        parts: Kind -> bytes.
    """

    phase: int
    parts: Mapping[str, int]


@attrs.frozen(kw_only=True)
class Shortage:
    """The first request that torch's allocator cannot serve when it has given back all that it can.

    Attributes:
        capacity_bytes: What a GPU gives torch on which this happens: this one, or the largest smaller one that was
            tried.
        phase: In words, as "backward of step 2".
        bytes: What is asked for.
        kind: What for, as in a place's parts.
        site: Where it is made, as of a `TensorGroup`.
    """

    capacity_bytes: int
    phase: str
    bytes: int
    kind: str
    site: str


@attrs.frozen(kw_only=True)
class Simulation:
    """The real engine at true size on a virtual GPU.

    Everything of the host is of one node: what the simulated rank holds times the ranks of the node, which are alike.

    Attributes:
        title: What was simulated, in words.
        estimate: Peaks, parts, limits and phases; the limits are 0 where no hardware was said.
        ends: What is alive at the end of each phase.
        limits: Whether the limits are known.
        run: The options it ran with: rank, steps, seq_len, attention, checkpointing, method ...
        world_size, ranks_per_node: GPUs in all, and those of a node.
        launcher: What starts the ranks, and so how many threads each has; it is asked for the time alone.
        kernel: What a fused attention runs, of `dsgen.kernels.attention.KERNELS`; it decides the time alone.
        engine: Facts of the engine: classes, stage, batch, parameters.
        versions: Package -> release.
        allocated_bytes: The GPU's peak with the allocator's rounding.
        out_of_memory: Whether torch's allocator ran out with these tensors in this order.
        least_bytes: The least that a GPU must give torch for its allocator to go through; what lies outside is extra.
        shortage: What is not had first where memory runs out, or on a smaller GPU; None where nothing is asked for.
        growing_steps: Steps after the simulated ones until it reserves nothing new.
        expandable_reserved_bytes, expandable_least_bytes: The same with expandable_segments:True.
        pinned_bytes, pinned_reserved_bytes: Page-locked bytes of a node at the host's peak: asked for, and what torch's
            host allocator makes of them, which rounds each up to a power of two and keeps what was freed.
        largest: "gpu" and "host" -> the tensors that hold most at the peak, largest first.
        collectives: In the order of steps and phases.
        timeline: "gpu" and "host" -> samples in the order of time.
        step_time: The last step on the hardware; None where that, or the network of several nodes, is not known.
        peak_flops_per_second: Dense, of one GPU in the dtype of the run; 0 where there is no `step_time`.
        hardware: The node; None where nobody said.
        program: What the host did in the last step, from which `step_time` was made; None where there is none.
        afterwards: What a plan's checkpoint takes on disk and behind training, where one was saved.
        filled: What the training program would fill in, and was filled in so.
        notes: What a person should know besides.
        seconds: The simulation took.
        process_bytes: The most memory that it took itself.
    """

    title: str
    estimate: MemoryEstimate
    ends: tuple[PhaseMemory, ...]
    limits: bool
    run: Options
    world_size: int
    ranks_per_node: int
    launcher: str
    kernel: str
    engine: Mapping[str, Any]
    versions: Mapping[str, str]
    allocated_bytes: int
    out_of_memory: bool
    least_bytes: int
    shortage: Shortage | None
    growing_steps: int
    expandable_reserved_bytes: int
    expandable_least_bytes: int
    pinned_bytes: int
    pinned_reserved_bytes: int
    largest: Mapping[str, tuple[TensorGroup, ...]]
    collectives: tuple[Collective, ...]
    timeline: Mapping[str, tuple[Sample, ...]]
    step_time: Timeline | None = None
    peak_flops_per_second: float = 0.0
    hardware: Hardware | None = None
    program: Mapping[str, Any] | None = attrs.field(default=None, repr=False, eq=False)
    afterwards: Afterwards | None = None
    filled: tuple[Filled, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float
    process_bytes: int

    @property
    def phases(self) -> tuple[PhaseMemory, ...]:
        """Those of the run, and behind them what turns its checkpoint into another."""
        made = self.afterwards.conversions if self.afterwards else ()
        return (*self.estimate.phases, *(PhaseMemory(one.name, 0, 0, {}, one.parts) for one in made))

    @property
    def disk_bytes(self) -> dict[str, int]:
        """Phase -> bytes of the files that it writes, at most while it runs, where they are known."""
        after = self.afterwards
        if after is None or not after.written:
            return {}
        return {"save": sum(after.written.values()), **{one.name: one.disk_bytes for one in after.conversions}}

    @property
    def tokens_per_step_and_gpu(self) -> float:
        """Tokens of a step by GPUs, those of a tensor-parallel group sharing theirs."""
        engine = self.engine
        samples = engine["micro_batch"] * engine["accumulation"] * engine["data_parallel"]
        return float(samples * (self.run.seq_len or 0)) / self.world_size
