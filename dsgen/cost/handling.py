"""What DeepSpeed itself moves in GPU memory before the step: gradients on their way, and gathered tensors.

Bytes of an element, read and written, as the simulated engine of 0.19.8 dispatches them (docs/step-times.md); most of
them go as often whatever the model is.
"""

import functools
from collections import Counter
from typing import NamedTuple

from dsgen.cost.expert_loop import tensors_apart
from dsgen.jobs.job import Job
from dsgen.kernels import Rates, traffic_seconds
from dsgen.memory.filled_buckets import Buckets
from dsgen.memory.modules import modules
from dsgen.memory.numbers import Numbers
from dsgen.shapes.profiles import Model
from dsgen.strategies.strategies import Strategy

__all__ = [
    "GATHERS",
    "NO_HANDLING",
    "Calls",
    "Dispatches",
    "Handling",
    "beyond",
    "call_seconds",
    "dispatches",
    "handling",
    "trained_tensors",
]

Calls = tuple[float, float, float]  # operators from Python, from autograd's engine, and views

# Of a gradient that is reduced, by the sort of its kernel; each moves its own two or four bytes so many times.
DIVIDED = 2  # stream: by the number of replicas (stage_1_and_2.py, average_tensor; stage3.py, __avg_scatter_grads)
BUCKETED = 2  # stream: copied into the bucket, where it is no larger than that (contiguous_gradients)
# mixed: buckets are made one tensor; at stages 1 and 2 where there are several ranks (flatten), at stage 3 those that
# are full before backward ends (__avg_scatter_grads).
FLATTENED = 2
UNFLATTENED = 2  # stream: stage 0 alone copies the sum back (engine.py, allreduce_no_retain)
OWN = 4  # stream: what this rank keeps leaves the bucket, and is copied once more for the step
OWN_GATHERED = 2  # stream: the same at stage 3, in the first pass
SUMMED = 3  # stream: in a pass after the first, of what a rank keeps, at stages 0 and 1 of all: read, added to, written
# stream: tensors of one call are put together (partition_parameters.py, AllGatherCoalescedHandle); where all is trained
# half as much was seen.
GATHERED, GATHERED_FULL = 2, 1
EIGHT_BITS = 1  # of a weight that qwZ gathers: it is read in 8 bits and written in 16 (csrc/quantization, dequantize)
# Of a 16-bit gradient that leaves for the CPU at stages 1 and 2, for its norm in fp64, whether it is finite, and its
# fp32 copy (stage_1_and_2.py, complete_grad_norm_calculation_for_cpu_offload and set_norm_for_param_grad_in_gpu).
AWAY_BYTES = {"mixed": 16, "reduction": 10, "stream": 2}
AWAY_GATHERED_BYTES = {
    "mixed": 16,
    "reduction": 8,
}  # the same at stage 3, in the last pass (stage3.py, partition_grads)


# What the host dispatches for a trained tensor: operators from Python, from autograd's engine, and views. By ZeRO's
# stage, as the simulated engine of 0.19.8 does for a Llama's blocks, whole and with adapters. What a rank does for its
# own tensors alone is apart. An operator whose value the host asks for counts as two: it is copied. At stage 3 fewer
# come from the engine than without DeepSpeed: gradients are not added up there.
BACKWARD_CALLS = ((0.1, 0, 0.6), (0.1, 0, 1.6), (0.1, 0, 1.6), (4.1, -2.1, 5.5))
# Where gradients are reduced.
REDUCED_CALLS = ((1, 0, 3), (1, 0, 3.8), (1, 0, 3.8), (0, 0, 0))
REDUCED_OWN_CALLS = ((0, 0, 0), (1, 0, 3.2), (1, 0, 3.2), (0, 0, 0))
# In passes after the first.
LATER_CALLS = ((0, 1, 0), (0, 1, 0), (0, 0, 0), (0, 0, 1))
LATER_OWN_CALLS = ((0, 0, 0), (0, 0, 0), (1, 0, 0), (0, 0, 0))
# Besides where the optimizer is on the CPU, at stages 1 and 2 and at stage 3: with the only pass; with the first, each
# between, and the last of several.
AWAY_OWN_CALLS = ((17, 0, 2), (0, 0, -1), (2, 0, 1), (20, 0, 7))
AWAY_CALLS = ((7, 0, 3), (1, 0, 0), (1, 0, 0), (7, 0, 3))
GATHERS = 3  # ZeRO's stage that gathers parameters


class Handling(NamedTuple):
    """Seconds of what is DeepSpeed's own.

    Attributes:
        reduced: Kernels for all gradients of a pass that are reduced.
        gathered: Kernels for all parameters that a micro-batch gathers (stage 3).
        dispatched: What the host takes for all gradients of such a pass, on average.
        kept: The same of a pass whose gradients are not reduced.
        summed: Kernels that add all gradients of a pass to those of the ones before, where only the last one reduces.
        emptied: What the host takes to send the gradients of full buckets to the CPU one by one, at stages 1 and 2: it
            asks for the norm of each, and the GPU does nothing else beside it.
        normed: Kernels for those norms, once in a step.
        bucketed: Of `reduced`, what copies gradients into the bucket, on the stream of the backward, at stages 1 and 2.
        taken: Of `reduced`, what takes a rank's own out of a bucket that has been reduced, at stages 1 and 2.
    """

    reduced: float
    gathered: float
    dispatched: float = 0.0
    kept: float = 0.0
    summed: float = 0.0
    emptied: float = 0.0
    normed: float = 0.0
    bucketed: float = 0.0
    taken: float = 0.0


NO_HANDLING = Handling(0.0, 0.0)


class Dispatches(NamedTuple):
    """What the host takes for all gradients of a pass, in seconds, whatever its batch is.

    Attributes:
        every: In each pass.
        later: Besides, in passes after the first.
        reduced: Besides, where they are reduced.
        away: Besides, where the optimizer is on the CPU: with the only pass; with the first, each between, and the
            last of several.
    """

    every: float
    later: float
    reduced: float
    away: tuple[float, float, float, float]


def dispatches(job: Job, strategy: Strategy, rates: Rates) -> Dispatches:
    """What the host takes for the gradients of a pass under a strategy's layout."""
    stage, tensors = strategy.stage, trained_tensors(job)
    own = tensors / (job.world // strategy.tp if stage else 1)
    leaves, away = (tensors, AWAY_CALLS) if stage == GATHERS else (own, AWAY_OWN_CALLS)
    only, first, between, last = (leaves * call_seconds(rates, calls) for calls in away)
    return Dispatches(
        tensors * call_seconds(rates, BACKWARD_CALLS[stage]),
        tensors * call_seconds(rates, LATER_CALLS[stage]) + own * call_seconds(rates, LATER_OWN_CALLS[stage]),
        tensors * call_seconds(rates, REDUCED_CALLS[stage]) + own * call_seconds(rates, REDUCED_OWN_CALLS[stage]),
        (only, first, between, last),
    )


def handling(
    job: Job,
    strategy: Strategy,
    rates: Rates,
    numbers: Numbers,
    copied: int,
    together: int,
    buckets: Buckets,
    host: Dispatches,
) -> Handling:
    """What gradients and gathered parameters cost besides the collectives.

    Args:
        job: The job.
        strategy: The strategy.
        rates: The node and its network.
        numbers: Of one tensor-parallel rank.
        copied: Elements that a micro-batch gathers.
        together: Those of them that come several tensors in a call.
        buckets: In which gradients are reduced.
        host: What the host takes for gradients.
    """
    size, replicas = (4 if strategy.precision == "fp32" else 2), job.world // strategy.tp
    stage, trained, later = strategy.stage, numbers.trained, 1 - 1 / strategy.accumulation
    small, kept = trained - buckets.larger, 0.0
    flattened = {0: small, GATHERS: trained * (1 - buckets.late_share)}.get(stage, buckets.flattened)
    mixed = FLATTENED * flattened
    if stage == 0:
        stream = float((UNFLATTENED + (DIVIDED if replicas > 1 else 0)) * trained)
    else:
        kept = OWN_GATHERED * (1 - later) if stage == GATHERS else OWN
        kept += SUMMED * later if stage >= 2 else 0
        stream = DIVIDED * trained + BUCKETED * small + kept * trained / replicas
    summed = traffic_seconds(rates, size * SUMMED * trained) if stage < 2 else 0.0
    reduced = traffic_seconds(rates, size * stream) + traffic_seconds(rates, size * mixed, "mixed")
    gathered = 0.0
    if stage == GATHERS and replicas > 1:
        moves = GATHERED_FULL if job.training.method == "full" else GATHERED
        gathered = traffic_seconds(rates, size * moves * together)
        if job.unsure.fetched:
            gathered += traffic_seconds(rates, (size + EIGHT_BITS) * copied)
    normed = 0.0
    if strategy.offload_optimizer != "none":
        for sort, moved in (AWAY_GATHERED_BYTES if stage == GATHERS else AWAY_BYTES).items():
            normed += traffic_seconds(rates, trained / replicas * moved * size / 2, sort)
    if stage == GATHERS:  # beside backward, with the reductions
        reduced, normed = reduced + normed / strategy.accumulation, 0.0
    dispatched, kept_calls, emptied = _dispatched(strategy, host)
    bucketed = taken = 0.0
    if 0 < stage < GATHERS:
        bucketed = traffic_seconds(rates, size * BUCKETED * small)
        taken = traffic_seconds(rates, size * kept * trained / replicas)
    return Handling(reduced, gathered, dispatched, kept_calls, summed, emptied, normed, bucketed, taken)


def beyond(job: Job, host: float, moved: float) -> float:
    """Seconds that the host takes beyond what moves beside it, where it waits for every trained tensor.

    Args:
        job: The job.
        host: What it takes for all of them, each as long.
        moved: What moves of all of them, each as long as it is large.
    """
    sizes = _sizes(job)
    tensors = elements = 0
    for size, often in sizes:
        tensors += often
        elements += often * size
    more = 0.0
    for size, often in sizes:
        more += often * max(0.0, host / tensors - moved * size / elements)
    return more


def _dispatched(strategy: Strategy, host: Dispatches) -> tuple[float, float, float]:
    """Of the host: seconds of a pass that reduces, of one that does not, and of buckets that leave."""
    stage, passes = strategy.stage, strategy.accumulation
    away, (only, first, between, last) = strategy.offload_optimizer != "none", host.away
    if stage < 2:  # only the last pass reduces
        kept = host.every + host.later * (passes - 2) / (passes - 1) if passes > 1 else 0.0
        return host.every + host.reduced + (host.later if passes > 1 else 0.0), kept, only if away else 0.0
    leaving = (only if passes == 1 else (first + (passes - 2) * between + last) / passes) if away else 0.0
    reduced = host.reduced + (host.every + host.later * (passes - 1) / passes)
    if stage == GATHERS:
        return reduced + leaving, 0.0, 0.0
    return reduced, 0.0, leaving


def call_seconds(rates: Rates, calls: Calls) -> float:
    """What the host takes for them."""
    python, engine, views = calls
    return python * rates.dispatch_seconds + engine * rates.backward_dispatch_seconds + views * rates.view_seconds


def trained_tensors(job: Job) -> int:
    """Tensors with a gradient."""
    tensors = 0
    for _, often in _sizes(job):
        tensors += often
    return tensors


def _sizes(job: Job) -> tuple[tuple[int, int], ...]:
    """Elements of tensors with a gradient, and how many have as many."""
    wishes = job.training
    return _counted(job.model, wishes.method, wishes.lora_rank, wishes.lora_targets, wishes.lora_train_embeddings)


@functools.lru_cache(maxsize=256)
def _counted(
    model: Model, method: str, rank: int, targets: tuple[str, ...], embeddings: bool
) -> tuple[tuple[int, int], ...]:
    parts = modules(model, method, rank, targets, 1, embeddings, False, False).parts  # AutoTP has as many
    sizes = {tensor.place: tensor.numel for _, part in parts for one in part for tensor in one.tensors
             if not tensor.frozen}  # a module may read a tensor that is another's  # fmt: skip
    counted = tuple(sorted(Counter(sizes.values()).items()))
    return tensors_apart(model, counted) if model.experts_apart else counted
