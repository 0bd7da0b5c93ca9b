"""What DeepSpeed itself moves in GPU memory: gradients on their way, gathered tensors, and the optimizer's step.

Bytes of an element, read and written, as the simulated engine of 0.19.8 dispatches them (docs/step-times.md); most of
them go as often whatever the model is.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

from dsgen.jobs.job import Job
from dsgen.kernels import Rates, traffic_seconds
from dsgen.memory.modules import modules
from dsgen.memory.numbers import Numbers
from dsgen.memory.states import widths
from dsgen.shapes.profiles import Model
from dsgen.strategies.strategies import Strategy

__all__ = ["NO_HANDLING", "Handling", "adam_bytes", "handling", "update_seconds"]

WEIGHT_MOVES, MOMENT_MOVES = 3, 4  # of an element that Adam updates: it reads a gradient, and reads and writes the rest
# Of a gradient that is reduced, by the sort of its kernel; each moves its own two or four bytes so many times.
DIVIDED = 2  # stream: by the number of replicas (stage_1_and_2.py, average_tensor; stage3.py, __avg_scatter_grads)
BUCKETED = 2  # stream: copied into the bucket, where it is no larger than that (contiguous_gradients)
FLATTENED = 2  # mixed: buckets are made one tensor (flatten; __reduce_and_partition_ipg_grads)
UNFLATTENED = 2  # stream: stage 0 alone copies the sum back (engine.py, allreduce_no_retain)
OWN = 4  # stream: what this rank keeps leaves the bucket, and is copied once more for the step
SUMMED = 3  # stream: of what a rank keeps, in a pass after the first: read, added to, written
# stream: tensors of one call are put together (partition_parameters.py, AllGatherCoalescedHandle); where all is trained
# half as much was seen.
GATHERED, GATHERED_FULL = 2, 1
EIGHT_BITS = 1  # of a weight that qwZ gathers: it is read in 8 bits and written in 16 (csrc/quantization, dequantize)
# Of an element that a rank steps, with fp32 masters of 16-bit weights: its gradient's norm, whether that is finite,
# casts and scaling, the 16-bit copy of the weight (stage_1_and_2.py and stage3.py, step; bf16_optimizer.py at stage 0).
STEP_BYTES = {"mixed": 26, "stream": 10, "reduction": 10}
STEP_BYTES_UNSHARED = {"mixed": 20, "stream": 10, "reduction": 6}
STEP_BYTES_FP32 = {"stream": 8, "reduction": 4}  # its norm and its scaling


# What the host dispatches for a trained tensor, operators and views, by ZeRO's stage: in a backward that is reduced,
# and in the step; what a rank does for its own tensors alone is apart. Counted on the simulated engine of 0.19.8.
BACKWARD_CALLS = {0: (1.1, 16.0), 1: (1.3, 18.6), 2: (1.3, 18.6), 3: (4.6, 14.7)}
BACKWARD_OWN_CALLS = {0: (0.0, 0.0), 1: (0.9, 3.4), 2: (0.9, 3.4), 3: (0.0, 0.0)}
OFFLOADED_CALLS = {1: (0.0, 0.0), 2: (0.0, 0.0), 3: (7.0, 4.0)}  # besides, where the optimizer is on the CPU
OFFLOADED_OWN_CALLS = {1: (15.0, 3.0), 2: (15.0, 3.0), 3: (0.0, 0.0)}
STEP_CALLS = {0: (14.1, 6.3), 1: (1.8, 4.5), 2: (1.8, 4.5), 3: (2.7, 9.0)}
STEP_OWN_CALLS = {0: (0.0, 0.0), 1: (14.1, 2.7), 2: (14.1, 2.7), 3: (0.0, 0.0)}


class Handling(NamedTuple):
    """Seconds of what is DeepSpeed's own.

    Attributes:
        reduced: Kernels for all gradients of a pass that are reduced.
        gathered: Kernels for all parameters that a micro-batch gathers (stage 3).
        dispatched: What the host takes for all gradients of such a pass.
        stepped: What the host takes for the step.
    """

    reduced: float
    gathered: float
    dispatched: float = 0.0
    stepped: float = 0.0


NO_HANDLING = Handling(0.0, 0.0)


def handling(job: Job, strategy: Strategy, rates: Rates, numbers: Numbers, copied: int, together: int) -> Handling:
    """What gradients and gathered parameters cost besides the collectives.

    Args:
        job: The job.
        strategy: The strategy.
        rates: The node and its network.
        numbers: Of one tensor-parallel rank.
        copied: Elements that a micro-batch gathers.
        together: Those of them that come several tensors in a call.
    """
    size, replicas = (4 if strategy.precision == "fp32" else 2), job.world // strategy.tp
    stage, trained, later = strategy.stage, numbers.trained, 1 - 1 / strategy.accumulation
    small = trained - _large(job, strategy, trained)
    if stage == 0:
        stream = float((UNFLATTENED + (DIVIDED if replicas > 1 else 0)) * trained)
        mixed = FLATTENED * small
    else:
        kept = OWN + (SUMMED * later if stage >= 2 else 0)
        stream = DIVIDED * trained + BUCKETED * small + kept * trained / replicas
        mixed = FLATTENED * (small if stage == 3 else trained)
    reduced = traffic_seconds(rates, size * stream) + traffic_seconds(rates, size * mixed, "mixed")
    gathered = 0.0
    if stage == 3 and replicas > 1:
        moves = GATHERED_FULL if job.training.method == "full" else GATHERED
        gathered = traffic_seconds(rates, size * moves * together)
        if job.unsure.fetched:
            gathered += traffic_seconds(rates, (size + EIGHT_BITS) * copied)
    tensors = _trained_tensors(job)
    backward = tensors * _calls(rates, stage, replicas, BACKWARD_CALLS, BACKWARD_OWN_CALLS)
    if strategy.offload_optimizer == "none":
        step = tensors * _calls(rates, stage, replicas, STEP_CALLS, STEP_OWN_CALLS)
    else:  # the CPU's Adam steps them together
        backward += tensors * _calls(rates, stage, replicas, OFFLOADED_CALLS, OFFLOADED_OWN_CALLS)
        step = 0.0
    return Handling(reduced, gathered, backward, step)


_Calls = Mapping[int, tuple[float, float]]


def _calls(rates: Rates, stage: int, replicas: int, every: _Calls, own: _Calls) -> float:
    """What the host takes for one tensor: for every one, and for this rank's share of those that it does alone."""
    operators, views = (one + mine / replicas for one, mine in zip(every[stage], own[stage], strict=True))
    return operators * rates.dispatch_seconds + views * rates.view_seconds


def _trained_tensors(job: Job) -> int:
    """Tensors with a gradient."""
    wishes = job.training
    return _counted(job.model, wishes.method, wishes.lora_rank, wishes.lora_targets, wishes.lora_train_embeddings)


@functools.lru_cache(maxsize=256)
def _counted(model: Model, method: str, rank: int, targets: tuple[str, ...], embeddings: bool) -> int:
    parts = modules(model, method, rank, targets, 1, embeddings, False, False).parts  # AutoTP has as many
    places = {tensor.place for _, part in parts for one in part for tensor in one.tensors if not tensor.frozen}
    return len(places)  # a module may read a tensor that is another's


def _large(job: Job, strategy: Strategy, trained: int) -> int:
    """Elements of embedding and head where each fills a bucket alone."""
    model = job.model
    table = model.vocab_size * (model.embedding_size or model.hidden_size)
    if job.training.method != "full" or table <= strategy.buffers.reduce_bucket:
        return 0
    return min(trained, table * (1 if model.tied_embeddings else 2))


def adam_bytes(job: Job, strategy: Strategy) -> int:
    """Bytes that Adam moves for an element: 28, or fewer where what it holds is in 16 bits."""
    weight, moment = widths(job, strategy)
    return WEIGHT_MOVES * weight + MOMENT_MOVES * moment


def update_seconds(job: Job, strategy: Strategy, rates: Rates, elements: int) -> float:
    """The GPU's step over this rank's elements: norm, casts, the fused optimizer, and the 16-bit copy."""
    moved = STEP_BYTES_FP32 if strategy.precision == "fp32" else STEP_BYTES if strategy.stage else STEP_BYTES_UNSHARED
    seconds = traffic_seconds(rates, elements * adam_bytes(job, strategy), "adam")
    for sort, size in moved.items():
        seconds += traffic_seconds(rates, elements * size, sort)
    return seconds
