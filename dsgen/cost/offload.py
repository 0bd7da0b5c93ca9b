"""Time that offload adds: traffic to the host, the CPU's optimizer, and the drives."""

from __future__ import annotations

from dsgen.cost.compute import adam_bytes
from dsgen.jobs.job import Job
from dsgen.memory.numbers import Numbers
from dsgen.strategies.strategies import Strategy

__all__ = ["offload_seconds"]

HOST_LINK_EFFICIENCY = 0.8  # of the PCIe rate, with pinned memory (bandwidthTest reaches 0.75 to 0.85)
# Share of the node's peak memory bandwidth that the update reaches with all ranks at once, casts and copies
# included. The ZeRO-Offload paper's CPU-Adam alone is near 1 (arXiv 2101.06840, table 4); whole runs are far below:
# Llama-3-70B on 2 x 8 H100 steps in 24 s with its optimizer on the CPU (DeepSpeed's DeepCompile benchmark), which
# makes 0.07 of a DGX H100.
CPU_MEMORY_EFFICIENCY = 0.10
NVME_STATE_BYTES = 12  # bytes of state per element that each step reads and writes: weight and two moments in fp32


def offload_seconds(job: Job, strategy: Strategy, numbers: Numbers) -> tuple[float, float]:
    """What offload costs beside compute.

    Returns:
        Seconds per micro-batch (parameters in, gradients out), and once per optimizer step (update, states).
    """
    hardware = job.hardware
    ranks = job.gpus_per_node
    replicas = job.world // strategy.tp
    size = 4 if strategy.precision == "fp32" else 2
    link = hardware.host_link_bandwidth_bytes_per_second * HOST_LINK_EFFICIENCY
    own = numbers.trained / (replicas if strategy.stage else 1)
    micro = step = 0.0
    if strategy.offload_optimizer != "none":
        # With accumulation each micro-step brings the sum back, adds to it and takes it away again (stage_1_and_2.py).
        micro += size * own / link * (2 if strategy.accumulation > 1 else 1)
        moved = own * ranks * adam_bytes(job, strategy)
        update = moved / (hardware.host_memory_bandwidth_bytes_per_second * CPU_MEMORY_EFFICIENCY)
        step += update + size * own / link
        if strategy.offload_optimizer == "nvme":
            step += own * ranks * NVME_STATE_BYTES * _per_byte(job)
    if strategy.offload_param != "none":
        share = size * numbers.total / replicas
        passes = 3 if strategy.checkpointing else 2
        micro += passes * share / link
        if strategy.offload_param == "nvme":
            micro += passes * share * ranks / max(hardware.nvme_read_bandwidth_bytes_per_second, 1.0)
    return micro, step


def _per_byte(job: Job) -> float:
    """Seconds to read a byte of state from the drives and write it back."""
    hardware = job.hardware
    return 1 / max(hardware.nvme_read_bandwidth_bytes_per_second, 1.0) + 1 / max(
        hardware.nvme_write_bandwidth_bytes_per_second, 1.0
    )
