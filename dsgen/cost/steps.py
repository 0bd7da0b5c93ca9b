"""One optimizer step: its named parts, what hides behind compute, and the speed that makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dsgen.cost.communication import OVERLAP, data_parallel_seconds, tensor_parallel_seconds
from dsgen.cost.compute import micro_step_seconds, update_seconds
from dsgen.cost.offload import offload_seconds
from dsgen.jobs.job import Job
from dsgen.memory.numbers import count
from dsgen.strategies.strategies import Strategy

__all__ = ["StepCost", "cost"]

# Spread of measured speed around this model, first form: MosaicML's and BLOOM's published tables lie within it.
LOW, HIGH = 0.75, 1.25


class StepCost(NamedTuple):
    """Time of one optimizer step.

    Attributes:
        parts: Part -> seconds; they add up to the step. Communication and offload count only what nothing hides.
        hidden_seconds: Communication that runs behind compute.
        tokens: Tokens that step trains on, all GPUs.
        gpus: GPUs.
    """

    parts: Mapping[str, float]
    hidden_seconds: float
    tokens: int
    gpus: int

    @property
    def seconds(self) -> float:
        """The whole step."""
        total = 0.0
        for part in self.parts.values():  # not sum(): from Python 3.12 on it rounds differently
            total += part
        return total

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """Speed as people compare it."""
        return self.tokens / self.seconds / self.gpus

    @property
    def communication_share(self) -> float:
        """Exposed communication, of the step."""
        return (self.parts["communication"] + self.parts["tensor parallelism"]) / self.seconds


def cost(job: Job, strategy: Strategy) -> StepCost:
    """The time of one optimizer step under a strategy."""
    training = job.training
    tokens = job.seq_len
    trains = (training.method, training.lora_rank, training.lora_targets, strategy.tp, training.lora_train_embeddings)
    numbers = count(job.model, *trains, strategy.buffers.persistence)
    repeats = strategy.accumulation
    products, traffic = micro_step_seconds(job, strategy, tokens)
    compute = products + traffic
    per_micro, once = data_parallel_seconds(job, strategy, numbers)
    in_micro, in_step = offload_seconds(job, strategy, numbers)
    # Stage 3 gathers ahead of its own accord; below it only overlap_comm lets the reduction run beside backward.
    window = OVERLAP * compute if strategy.buffers.overlap_comm or strategy.stage == 3 else 0.0
    exposed = max(0.0, per_micro - window) + max(0.0, in_micro - max(0.0, window - per_micro))
    hidden = per_micro + in_micro - exposed
    offload = min(in_micro, exposed)
    own = numbers.trained / (job.world // strategy.tp if strategy.stage else 1)
    update = 0.0 if strategy.offload_optimizer != "none" else update_seconds(job, strategy, int(own))
    last = max(0.0, once - window) if strategy.stage < 2 else once
    return StepCost(
        parts={
            "matrix products": repeats * products,
            "memory traffic": repeats * traffic,
            "communication": repeats * (exposed - offload) + last,
            "tensor parallelism": repeats * tensor_parallel_seconds(job, strategy, tokens),
            "offload": repeats * offload + in_step,
            "optimizer": update,
        },
        hidden_seconds=repeats * hidden + once - last,
        tokens=strategy.global_batch * tokens,
        gpus=job.world,
    )
