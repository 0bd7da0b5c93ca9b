"""An optimizer on NVMe, whose checkpoints do not bring its states back."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_SECTION = "zero_optimization.offload_optimizer"
_SILENT = (0, 18)  # from this line on load_checkpoint leaves ZeRO's own load out where the optimizer is swapped
_LOST = (
    "load_checkpoint brings back no moments and no step count, and what is below 1 MiB of a rank keeps the weights "
    "that the new engine began with"
)
_STOPS = "load_checkpoint in a new engine, or the first step after it, ends in an error"


def check(subject: Subject) -> Iterator[Fault]:
    """offload_optimizer to "nvme" at stage 3, where DeepSpeed swaps."""
    if subject.stage != 3 or subject.offload("optimizer") != "nvme":
        return
    message = f"a run with its optimizer on NVMe does not resume: {_LOST if subject.version >= _SILENT else _STOPS}"
    path = f"{_SECTION}.nvme_path"
    drop = (Remove(path),) if subject.written(path) else ()
    fix = Fix("offload the optimizer to the CPU", (Assign(f"{_SECTION}.device", "cpu"), *drop), safe=False)
    yield Fault(f"{_SECTION}.device", message, fix, on="value")


RULE = Rule(
    code="DSG352",
    name="optimizer-on-nvme-not-resumed",
    severity=Severity.WARNING,
    what="The optimizer is on NVMe, and DeepSpeed does not load what it saves of it.",
    why=(
        "save_checkpoint copies the swap files beside the checkpoint, and load_checkpoint copies them back, but since "
        "0.18 it leaves out the rest of ZeRO's load. In a new process the fp32 weights in those files are read; Adam's "
        "moments and step count begin anew, and sub-groups below 1 MiB of a rank, which are never swapped, keep their "
        "initial weights. The files are named by the order in which parameters were made: where another model was made "
        "before, nothing is read. DeepSpeed says nothing of it. Before, a load stopped (0.14, 0.15: no file of the "
        "moments) or the first step after it crashed (0.16, 0.17: moments of no elements). Save the 16-bit weights too "
        "(save_16bit_model) and begin anew from them, or offload to the CPU."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): load_checkpoint; runtime/swap_tensor/optimizer_utils.py: swap_path",
        "DeepSpeed 0.14.5 to 0.19.8 run: trained, saved, loaded in a new process and beside another engine",
        "https://github.com/deepspeedai/DeepSpeed/pull/4416",
    ),
    check=check,
)
