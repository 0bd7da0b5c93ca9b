"""An optimizer on NVMe whose gradients are read to addresses that not every drive takes."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting import meanings
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.findings import Assign, Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_SECTION = "zero_optimization.offload_optimizer"
_WHERE = "before Linux 6.0 and on every drive of which `cat /sys/block/nvme0n1/queue/dma_alignment` says 511"


def check(subject: Subject) -> Iterator[Fault]:
    """offload_optimizer to "nvme" at stage 3; the model, its ranks and what is trained must be known."""
    facts = subject.facts
    world = facts.world_size or (facts.hardware.gpus_per_node if facts.hardware is not None else 0)
    part = facts.training is not None and facts.training.method != "full"
    otherwise = subject.written("zero_optimization.mics_shard_size") or meanings.degree(subject) > 1
    if subject.stage != 3 or subject.offload("optimizer") != "nvme" or not world or facts.model is None:
        return
    if part or otherwise or meanings.beyond(subject) or subject.optimizer in ("", "muon"):  # Muon has two groups
        return
    from dsgen.jobs.job import narrowed
    from dsgen.memory.lost_gradients import Sharing, lost

    block, threads = subject.value("aio.block_size"), subject.value("aio.intra_op_parallelism")
    block, threads = (said if isinstance(said, int) and said > 0 else 1 for said in (block, threads))
    width, sub_group = 2 if narrowed(subject.value) else 4, meanings.buffers(subject, 3).sub_group
    try:
        gone = lost(facts.model, Sharing(world, sub_group, width, block, threads))
    except DsgenError:  # an architecture that is not known
        return
    if not gone.tensors:
        return
    message = (
        f"on {world} rank{'s' if world > 1 else ''} the gradients of {gone.tensors} of {gone.of} tensors "
        f"({gone.share:.1%} of the parameters) are lost, and DeepSpeed says nothing, {_WHERE}"
    )
    drop = (Remove(f"{_SECTION}.nvme_path"),) if subject.written(f"{_SECTION}.nvme_path") else ()
    fix = Fix("offload the optimizer to the CPU", (Assign(f"{_SECTION}.device", "cpu"), *drop), safe=False)
    yield Fault(f"{_SECTION}.device", message, fix, on="value")


RULE = Rule(
    code="DSG356",
    name="nvme-loses-gradients",
    severity=Severity.WARNING,
    what="The optimizer is on NVMe, and a drive may refuse to read gradients to where they belong.",
    why=(
        "A rank's parts of the parameters lie one behind the other in a sub-group. A gradient of 1 MiB or more is "
        "written to a file and read, by direct I/O, to its place in the sub-group's buffer. Behind a norm or a bias "
        "that place is often no multiple of 512 bytes: 4096 elements on 64 ranks are 256 bytes. Linux before 6.0 takes "
        "no such address; later ones take what the drive takes: 4 bytes of NVMe itself, 512 of RAID (md), LVM (dm) and "
        "most virtual drives. The read fails, DeepSpeed counts it as done, and the optimizer steps with what lay in "
        "the buffer. All parameters are taken to be in one group. Take Linux 6.0 or newer and a drive "
        "whose dma_alignment is 3, with no layer above it, or offload to the CPU."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}
}""",
    evidence=("deepspeed/runtime/swap_tensor/optimizer_utils.py (0.14.0 to 0.19.8): get_swap_gradient_buffers",
              "DeepSpeed 0.19.8 run: aio_handle leaves a buffer as it was at 256 bytes, and wait() counts the read",
              "Linux: bf8d08532bc1 (6.0; block, iomap), drivers/nvme/host/core.c, block/blk-settings.c: dma_alignment",
              "https://github.com/deepspeedai/DeepSpeed/issues/1070 (writes that failed unnoticed in 2021)"),
    check=check,
    given={"model": "qwen3-8b", "world_size": 8},
)  # fmt: skip
