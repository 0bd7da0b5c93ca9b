"""NVMe offload with the default way of reading."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_FAST = 3e9  # bytes per second: what one drive on PCIe 3 reads; the defaults reach about that


def check(subject: Subject) -> Iterator[Fault]:
    """No aio section beside an offload to drives that are faster than the defaults reach."""
    hardware = subject.facts.hardware
    if hardware is None or subject.stage != 3 or hardware.nvme_read_bandwidth_bytes_per_second <= _FAST:
        return
    if "nvme" in (subject.offload("optimizer"), subject.offload("param")) and not subject.section("aio"):
        rate = hardware.nvme_read_bandwidth_bytes_per_second / 1e9
        message = f"the defaults of aio read with one thread and 8 requests; the drives read {rate:.0f} GB/s"
        yield Fault("aio", f"{message}. Measure with ds_nvme_tune what block_size, queue_depth and threads reach it")


RULE = Rule(
    code="DSG815",
    name="aio-not-tuned",
    severity=Severity.INFO,
    what="The aio section is missing beside an offload to fast drives.",
    why=(
        "queue_depth, block_size and intra_op_parallelism decide how fast DeepSpeed reads and writes, and the "
        "best values depend on the drives. DeepSpeed brings `ds_nvme_tune` to measure them."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}},
  "aio": {"block_size": 8388608, "queue_depth": 32, "intra_op_parallelism": 8}
}""",
    evidence=("deepspeed/runtime/swap_tensor/constants.py (0.19.8); DeepSpeed tutorial, DeepNVMe",),
    check=check,
    given={"hardware": "h100-80g"},
)
