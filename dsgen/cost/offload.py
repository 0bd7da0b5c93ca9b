"""Time that offload adds: traffic to the host, the CPU's optimizer, and the drives."""

from typing import NamedTuple

from dsgen.cost.handling import GATHERS
from dsgen.cost.optimizer_step import adam_bytes
from dsgen.jobs.job import Job
from dsgen.jobs.releases import must_reenter, recomputed
from dsgen.kernels import (
    Rates,
    copy_seconds,
    cpu_adam_seconds,
    host_traffic_seconds,
    new_memory_seconds,
    nvme_seconds,
)
from dsgen.memory.gathers import gathers
from dsgen.memory.numbers import Numbers
from dsgen.memory.runs import Run
from dsgen.strategies.strategies import Strategy

__all__ = ["NO_OFFLOAD", "Offload", "fetch_seconds", "host_step_seconds", "offload"]

FP32 = 4  # bytes of an element
HOST_STEP_BYTES = 8 + 6  # of an element that the CPU steps, besides Adam's: its gradient is scaled, its weight cast
NVME_STATE_BYTES = 12  # bytes of state per element that each step reads and writes: weight and two moments in fp32


class Offload(NamedTuple):
    """What offload costs, in seconds.

    Attributes:
        fetch: This rank's share of what a forward gathers, brought in.
        fetch_again: The same of a backward, and of the forward that checkpointing repeats.
        gradients: Gradients of one pass, taken away.
        step: Once an optimizer step: the update on the CPU, and the weights' way back.
    """

    fetch: float = 0.0
    fetch_again: float = 0.0
    gradients: float = 0.0
    step: float = 0.0


NO_OFFLOAD = Offload()


def offload(job: Job, strategy: Strategy, rates: Rates, numbers: Numbers, step: float) -> Offload:
    """What a strategy keeps elsewhere, and what that costs.

    Args:
        job: The job.
        strategy: The strategy.
        rates: The node.
        numbers: Of one tensor-parallel rank.
        step: `host_step_seconds` of the same.
    """
    if strategy.offload_optimizer == strategy.offload_param == "none":
        return NO_OFFLOAD
    gradients, fetched = 0.0, [0.0, 0.0]
    if strategy.offload_optimizer != "none":
        own = numbers.trained / (job.world // strategy.tp if strategy.stage else 1)
        gradients = _gradients(strategy, rates, 4 if strategy.precision == "fp32" else 2, own)
    if strategy.offload_param != "none":
        training = recomputed(job.training, strategy.stage, job.version)
        run = Run(job.model, training, 0, strategy.precision, strategy.tp, strategy.checkpointing, True)
        run = run._replace(returns=must_reenter(training.method, strategy.stage, job.version))
        every = gathers(run, strategy.buffers, several=strategy.accumulation > 1).elements
        fetched = [fetch_seconds(job, strategy, rates, elements) for elements in every]
    return Offload(fetched[0], fetched[1], gradients, step)


def host_step_seconds(job: Job, strategy: Strategy, rates: Rates, numbers: Numbers) -> float:
    """Once an optimizer step: the update on the CPU, and the weights' way back; 0 where the optimizer is on the GPU."""
    if strategy.offload_optimizer == "none":
        return 0.0
    ranks, launcher = job.gpus_per_node, job.training.launcher
    size = 4 if strategy.precision == "fp32" else 2
    own = numbers.trained / (job.world // strategy.tp if strategy.stage else 1)
    step = cpu_adam_seconds(
        rates, own, ranks_per_node=ranks, bytes_per_element=adam_bytes(job, strategy), launcher=launcher
    )
    if strategy.offload_param == "none":
        # At stage 3 torch casts into a tensor of its own, new each time and not page-locked (stage3.py,
        # _reassign_or_swap_out_partitioned_parameters; aten/src/ATen/native/cuda/Copy.cu, copy_kernel_cuda).
        step += copy_seconds(rates, size * own, pinned=strategy.stage < GATHERS and strategy.buffers.locked)
        if strategy.stage == GATHERS and size < FP32:
            step += new_memory_seconds(rates, size * own, ranks_per_node=ranks, launcher=launcher)
    step += host_traffic_seconds(rates, HOST_STEP_BYTES * own, ranks_per_node=ranks, launcher=launcher)
    if strategy.offload_optimizer == "nvme":
        moved = own * ranks * NVME_STATE_BYTES
        step += nvme_seconds(rates, moved, "read") + nvme_seconds(rates, moved, "write")
    return step


def fetch_seconds(job: Job, strategy: Strategy, rates: Rates, elements: float) -> float:
    """This rank's share of parameters that are gathered, brought in; `elements` are all of them."""
    share = (4 if strategy.precision == "fp32" else 2) * elements / (job.world // strategy.tp)
    seconds = copy_seconds(rates, share)
    if strategy.offload_param == "nvme":
        seconds += nvme_seconds(rates, share * job.gpus_per_node, "read")
    return seconds


def _gradients(strategy: Strategy, rates: Rates, size: int, own: float) -> float:
    """Seconds of one pass, on average, in which gradients go to the host; in the last one as fp32.

    With accumulation their sum is kept there: each pass brings it back, adds to it and takes it away again, the first
    alone needs none of it (stage_1_and_2.py, async_accumulate_grad_in_cpu_via_gpu). Stage 3 does so in every pass
    (stage3.py, partition_grads); at stage 1 they stay on the GPU until the last. They lie in page-locked memory where
    `offload_optimizer.pin_memory` says so (cpu_offload_pin_memory, offload_optimizer_pin_memory); weights at stage 3 do
    whatever it says (stage3.py, _create_param_groups_fp16_flat_cpu_memory).
    """
    locked = strategy.buffers.locked
    passes = strategy.accumulation if strategy.stage > 1 else 1
    if strategy.stage == GATHERS:
        away, back = passes * size, passes * size
    else:
        away, back = (passes * size, (passes - 1) * size) if passes > 1 else (0, 0)
    seconds = copy_seconds(rates, (away + FP32) * own, pinned=locked, direction="to_host")
    return (seconds + (copy_seconds(rates, back * own, pinned=locked) if back else 0.0)) / passes
