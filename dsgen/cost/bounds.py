"""How fast a strategy can be at most, told in a fraction of the time that its cost takes."""

from __future__ import annotations

from dsgen.cost.handling import GATHERS, update_seconds
from dsgen.cost.micro_batches import node_rates, numbers_of, passes
from dsgen.cost.offload import fetch_seconds, host_step_seconds
from dsgen.cost.tensor_parallel import tensor_parallel_seconds
from dsgen.jobs.job import Job
from dsgen.kernels import collective_lines
from dsgen.memory.numbers import PACKED, quantized
from dsgen.strategies.strategies import Strategy

__all__ = ["most_speed"]

ROUNDING = 1e-9  # share by which the sums of both may differ


def most_speed(job: Job, strategy: Strategy) -> float:
    """Tokens/s/GPU that `cost` never exceeds: kernels, AutoTP's sums, a forward's gathers at stage 3, the optimizer."""
    numbers = numbers_of(job, strategy)
    node = node_rates(job.hardware, job.network)
    run, replicas = passes(job, strategy), job.world // strategy.tp
    device = (
        run.products + run.attention + run.memory + tensor_parallel_seconds(job, strategy, node) / strategy.accumulation
    )
    micro_batch = max(run.seconds, device)
    if strategy.stage == GATHERS:
        saved = numbers.frozen_linear * (1 - 1 / PACKED) if quantized(job.model, job.training.method) else 0.0
        elements = max(0.0, numbers.total - saved - numbers.persistent - strategy.buffers.max_live)
        gathered = 0.0
        if replicas > 1 and not job.unsure.fetched and strategy.buffers.secondary < 2:  # neither qwZ nor hpZ
            inside = max(1, job.gpus_per_node // strategy.tp)
            lines = collective_lines(node, "all_gather", replicas, inside, strategy.tp)
            gathered = (4 if strategy.precision == "fp32" else 2) * elements * min([each for _, each in lines])
        micro_batch = max(micro_batch, device + gathered)
        if strategy.offload_param != "none":
            micro_batch = max(micro_batch, fetch_seconds(job, strategy, node, elements))
    seconds = strategy.accumulation * micro_batch
    if strategy.offload_optimizer == "none":
        own = numbers.trained / (replicas if strategy.stage else 1)
        seconds += update_seconds(job, strategy, node, int(own))
    else:
        seconds += host_step_seconds(job, strategy, node, numbers)
    seconds *= (job.hardware.step_time_ratio or 1.0) * (1 - ROUNDING)
    return strategy.global_batch * job.seq_len / seconds / job.world
