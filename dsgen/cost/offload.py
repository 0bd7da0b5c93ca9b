"""Time that offload adds: traffic to the host, the CPU's optimizer, and the drives."""

from typing import NamedTuple

from dsgen.cost.updates import adam_bytes
from dsgen.jobs.job import Job
from dsgen.kernels import Rates, copy_seconds, cpu_adam_seconds, nvme_seconds
from dsgen.memory.numbers import Numbers
from dsgen.strategies.strategies import Strategy

__all__ = ["NO_OFFLOAD", "Offload", "offload"]

NVME_STATE_BYTES = 12  # bytes of state per element that each step reads and writes: weight and two moments in fp32


class Offload(NamedTuple):
    """What offload costs, in seconds.

    Attributes:
        fetch: This rank's share of the parameters, brought in once.
        gradients: Gradients of one pass, taken away.
        step: Once an optimizer step: the update on the CPU, and the weights' way back.
    """

    fetch: float
    gradients: float
    step: float


NO_OFFLOAD = Offload(0.0, 0.0, 0.0)


def offload(job: Job, strategy: Strategy, rates: Rates, numbers: Numbers) -> Offload:
    """What a strategy keeps elsewhere, and what that costs."""
    if strategy.offload_optimizer == strategy.offload_param == "none":
        return NO_OFFLOAD
    ranks, replicas = job.gpus_per_node, job.world // strategy.tp
    size = 4 if strategy.precision == "fp32" else 2
    own = numbers.trained / (replicas if strategy.stage else 1)
    fetch = gradients = step = 0.0
    if strategy.offload_optimizer != "none":
        # With accumulation each pass brings the sum back, adds to it and takes it away again (stage_1_and_2.py).
        gradients = copy_seconds(rates, size * own, direction="to_host") * (2 if strategy.accumulation > 1 else 1)
        step = copy_seconds(rates, size * own) + cpu_adam_seconds(
            rates,
            own,
            ranks_per_node=ranks,
            bytes_per_element=adam_bytes(job, strategy),
            launcher=job.training.launcher,
        )
        if strategy.offload_optimizer == "nvme":
            moved = own * ranks * NVME_STATE_BYTES
            step += nvme_seconds(rates, moved, "read") + nvme_seconds(rates, moved, "write")
    if strategy.offload_param != "none":
        share = size * numbers.total / replicas
        fetch = copy_seconds(rates, share)
        if strategy.offload_param == "nvme":
            fetch += nvme_seconds(rates, share * ranks, "read")
    return Offload(fetch, gradients, step)
