"""How fast a strategy can be at most, told in a fraction of the time that its cost takes."""

from __future__ import annotations

import functools

from dsgen.cost.handling import GATHERS
from dsgen.cost.micro_batches import node_rates, numbers_of, passes
from dsgen.cost.offload import fetch_seconds, host_step_seconds
from dsgen.cost.optimizer_step import update_seconds
from dsgen.cost.queued_passes import waits_for_gpu
from dsgen.cost.tensor_parallel import tensor_parallel_seconds
from dsgen.jobs.job import Job
from dsgen.jobs.samples import tokens_of_sequence
from dsgen.kernels import collective_lines
from dsgen.memory.numbers import PACKED, Numbers, quantized
from dsgen.shapes.profiles import Hardware, Network
from dsgen.strategies.strategies import Strategy

__all__ = ["most_speed"]

ROUNDING = 1e-9  # share by which the sums of both may differ


def most_speed(job: Job, strategy: Strategy) -> float:
    """Tokens/s/GPU that `cost` never exceeds: kernels, AutoTP's sums, what replicas exchange at least, the optimizer.

    A collective takes at least what its bytes do on the quickest of its ways.
    """
    numbers, stage, repeats = numbers_of(job, strategy), strategy.stage, strategy.accumulation
    node = node_rates(job.hardware, job.network)
    run, replicas = passes(job, strategy), job.world // strategy.tp
    device = run.products + run.attention + run.memory + tensor_parallel_seconds(job, strategy) / repeats
    micro_batch = max(run.seconds, device)
    reduced = 0.0
    if replicas > 1:
        kind = "reduce_scatter" if stage == GATHERS else "all_reduce"
        reduced = _size(strategy) * numbers.trained * _each(job, strategy, kind)
    if stage == GATHERS:  # collectives and kernels take turns
        ahead, again = _gathered(job, strategy, numbers)
        if replicas > 1 and not job.unsure.fetched and strategy.buffers.secondary < 2:  # neither qwZ nor hpZ
            device += _size(strategy) * (ahead + again) * _each(job, strategy, "all_gather")
        micro_batch = max(micro_batch, device + reduced)
        if strategy.offload_param != "none":
            micro_batch = max(micro_batch, fetch_seconds(job, strategy, node, ahead))
        seconds = repeats * micro_batch
    else:
        hides = stage and strategy.buffers.overlap_comm
        reducing = max(micro_batch, reduced if hides else device + reduced)
        if stage >= 2:
            between = reducing if waits_for_gpu(strategy) else max(run.host, device + reduced)
        else:  # gradients are kept, and the host goes on
            between = max(run.host, device)
        seconds = reducing + (repeats - 1) * between
        if stage and replicas > 1:  # updated weights are gathered behind the step
            seconds += _size(strategy) * numbers.trained * _each(job, strategy, "all_gather")
    if strategy.offload_optimizer == "none":
        own = numbers.trained / (replicas if stage else 1)
        seconds += update_seconds(job, strategy, node, int(own))
    else:
        seconds += host_step_seconds(job, strategy, node, numbers)
    seconds *= (job.hardware.step_time_ratio or 1.0) * (1 - ROUNDING)
    return strategy.global_batch * tokens_of_sequence(job) / seconds / job.world


def _gathered(job: Job, strategy: Strategy, numbers: Numbers) -> tuple[float, float]:
    """Elements that stage 3 gathers at least in forward, and in backward: all but those that may be there already."""
    buffers, packed = strategy.buffers, quantized(job.model, job.training.method)
    saved = numbers.frozen_linear * (1 - 1 / PACKED) if packed else 0.0
    total, there = numbers.total - saved, numbers.persistent + buffers.max_live
    again = total if job.training.method == "full" else numbers.frozen_linear - saved - numbers.block
    return max(0.0, total - there), max(0.0, again - there - buffers.max_reuse)


def _size(strategy: Strategy) -> int:
    """Bytes of an element that is exchanged."""
    return 4 if strategy.precision == "fp32" else 2


def _each(job: Job, strategy: Strategy, kind: str) -> float:
    """Seconds that a byte takes at least in a collective between the replicas."""
    inside = max(1, job.gpus_per_node // strategy.tp)
    return _per_byte(job.hardware, job.network, kind, job.world // strategy.tp, inside, strategy.tp)


@functools.lru_cache(maxsize=4096)
def _per_byte(hardware: Hardware, network: Network, kind: str, ranks: int, inside: int, groups: int) -> float:
    lines = collective_lines(node_rates(hardware, network), kind, ranks, inside, groups)
    return min([each for _, each in lines])
