"""The optimizer's step on a GPU: what DeepSpeed asks of every gradient, and the kernels that go over all of them.

Bytes of an element and operators of a tensor, as the simulated engine of 0.19.8 dispatches them (docs/step-times.md).
"""

from collections.abc import Mapping
from typing import NamedTuple

from dsgen.cost.handling import GATHERS, Calls, beyond, call_seconds, trained_tensors
from dsgen.jobs.job import Job
from dsgen.kernels import Rates, traffic_seconds
from dsgen.memory.states import widths
from dsgen.strategies.strategies import Strategy

__all__ = ["Stepped", "adam_bytes", "stepped", "update_seconds"]

WEIGHT_MOVES, MOMENT_MOVES = 3, 4  # of an element that Adam updates: it reads a gradient, and reads and writes the rest
# The same of torch's own loop, operator by operator (optim/adam.py, _multi_tensor_adam): mul of the weight, lerp of the
# first moment, mul and addcmul of the second, its sqrt, div and add of that, addcdiv.
FOREACH_WEIGHT_MOVES, FOREACH_MOMENT_MOVES = 6, 14
AWAY_CALLS = ((0, 0, 0), (2, 0, 0), (2, 0, 0), (2, 0, 5.5))  # of a tensor that a rank steps, where that is on the CPU


class _TensorWork(NamedTuple):
    """What is done for every tensor that a rank steps before the host goes on.

    Attributes:
        calls: What the host dispatches for a tensor; what it waits for counts as two operators, for it is copied.
        kernels: Of a tensor, on the GPU.
        bytes: Sort of kernel -> bytes of an element.
    """

    calls: Calls
    kernels: int
    bytes: Mapping[str, int]


_NOTHING = _TensorWork((0, 0, 0), 0, {})
# By ZeRO's stage. Whether a 16-bit gradient is finite: stage 0 reads the answer of each tensor, 1 and 2 that of all
# (bf16_optimizer.py and stage_1_and_2.py, has_overflow); stage 3 asked its shares when they were reduced.
_FINITE_BYTES = {"reduction": 2, "stream": 2}
FINITE = (_TensorWork((14, 0, 3), 12, _FINITE_BYTES), *2 * (_TensorWork((13, 0, 0), 13, _FINITE_BYTES),), _NOTHING)
# Its norm, in fp64 but at stage 0, where all gradients are one tensor of fp32 by then.
_NORM_BYTES = {"mixed": 10, "reduction": 8}
NORM = (_NOTHING, *2 * (_TensorWork((2, 0, 1), 2, _NORM_BYTES),), _TensorWork((2, 0, 5.5), 2, _NORM_BYTES))
NORM_FP32 = (_TensorWork((2, 0, 0), 2, {"reduction": 4}), *2 * (_TensorWork((2, 0, 1), 2, {"reduction": 4}),),
             _TensorWork((2, 0, 5.5), 2, {"reduction": 4}))  # fmt: skip
# The rest is one kernel for all but at stage 0: casts, clipping, and the 16-bit copy of the weight.
REST = (
    _TensorWork((2, 0, 0), 2, {"mixed": 20, "reduction": 4, "stream": 8}),
    *3 * (_TensorWork((0, 0, 0), 0, {"mixed": 16, "stream": 8}),),
)
REST_FP32 = 4 * (_TensorWork((0, 0, 0), 0, {"stream": 8}),)
VIEWS = ((0, 0, 0), (0, 0, 2), (0, 0, 2), (0, 0, 0))  # of every tensor, behind the step


class Stepped(NamedTuple):
    """Seconds of a step.

    Attributes:
        gpu: Of kernels.
        idle: What the GPU waits for the host in it.
        host: What the host dispatches in it, waited for or not.
    """

    gpu: float
    idle: float
    host: float


def stepped(job: Job, strategy: Strategy, rates: Rates, elements: int, *, deepspeed: bool = True) -> Stepped:
    """What a step takes of this rank.

    Args:
        job: The job.
        strategy: The strategy.
        rates: The node.
        elements: That this rank steps.
        deepspeed: As of `dsgen.cost.cost`: without it nothing is asked.
    """
    stage, tensors = strategy.stage, trained_tensors(job)
    own = tensors * strategy.tp / job.world if 0 < stage < GATHERS else tensors
    views = tensors * call_seconds(rates, VIEWS[stage])
    away = strategy.offload_optimizer != "none"
    if not deepspeed:
        return Stepped(0.0 if away else update_seconds(job, strategy, rates, elements), 0.0, 0.0)
    if away:
        views += own * call_seconds(rates, AWAY_CALLS[stage])
        return Stepped(0.0, views, views)
    gpu, idle, launched = _adam_seconds(job, strategy, rates, elements), 0.0, views
    *questions, rest = _work(strategy)
    for asked in questions:
        host, device = own * call_seconds(rates, asked.calls), own * asked.kernels * rates.kernel_seconds
        moved = _moved(rates, elements, asked.bytes)
        gpu, launched = gpu + device + moved, launched + host
        idle += max(0.0, host - device - moved) if stage else beyond(job, max(0.0, host - device), moved)
    gpu += own * rest.kernels * rates.kernel_seconds + _moved(rates, elements, rest.bytes)
    return Stepped(gpu, idle, launched + own * call_seconds(rates, rest.calls))


def update_seconds(job: Job, strategy: Strategy, rates: Rates, elements: int) -> float:
    """The least that a step takes of the GPU: its traffic, were it in few kernels."""
    seconds = _adam_seconds(job, strategy, rates, elements)
    for asked in _work(strategy):
        seconds += _moved(rates, elements, asked.bytes)
    return seconds


def _work(strategy: Strategy) -> tuple[_TensorWork, ...]:
    """What the host waits for, one after the other, and the rest."""
    stage = strategy.stage
    if strategy.precision == "fp32":
        return NORM_FP32[stage], REST_FP32[stage]
    return FINITE[stage], NORM[stage], REST[stage]


def _adam_seconds(job: Job, strategy: Strategy, rates: Rates, elements: int) -> float:
    """The fused optimizer."""
    return traffic_seconds(rates, elements * adam_bytes(job, strategy), "adam")


def adam_bytes(job: Job, strategy: Strategy) -> int:
    """Bytes that Adam moves for an element: 28, 80 by torch's own loop, fewer where what it holds is in 16 bits."""
    weight, moment = widths(job, strategy)
    if job.foreach and strategy.offload_optimizer == "none":
        return FOREACH_WEIGHT_MOVES * weight + FOREACH_MOMENT_MOVES * moment
    return WEIGHT_MOVES * weight + MOMENT_MOVES * moment


def _moved(rates: Rates, elements: int, sizes: Mapping[str, int]) -> float:
    seconds = 0.0
    for sort, size in sizes.items():
        seconds += traffic_seconds(rates, elements * size, sort)
    return seconds
