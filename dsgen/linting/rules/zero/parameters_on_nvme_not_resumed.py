"""Parameters on NVMe without their optimizer, whose checkpoints cannot be loaded."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.kept_parameters import kept_in_ram
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_SECTION = "zero_optimization.offload_param"
_MESSAGE = (
    "parameters are on NVMe and their optimizer is not: a checkpoint is saved, and load_checkpoint ends in an error "
    "where any of them lies on the drive"
)


def check(subject: Subject) -> Iterator[Fault]:
    """offload_param to "nvme" at stage 3, the optimizer elsewhere, and more is trained than RAM keeps, or unknown."""
    if subject.stage != 3 or subject.offload("param") != "nvme" or subject.offload("optimizer") == "nvme":
        return
    if kept_in_ram(subject, subject.value(f"{_SECTION}.max_in_cpu")):
        return
    path = f"{_SECTION}.nvme_path"
    drop = (Remove(path),) if subject.written(path) else ()
    fix = Fix("offload the parameters to the CPU", (Assign(f"{_SECTION}.device", "cpu"), *drop), safe=False)
    yield Fault(f"{_SECTION}.device", _MESSAGE, fix, on="value")


RULE = Rule(
    code="DSG359",
    name="parameters-on-nvme-not-resumed",
    severity=Severity.WARNING,
    what="Parameters are on NVMe and their optimizer is not: a checkpoint of it cannot be loaded.",
    why=(
        "load_checkpoint copies the fp32 weights of every sub-group into its 16-bit ones, and those that are swapped "
        "have none: `AttributeError: 'NoneType' object has no attribute 'data'`. What fits into max_in_cpu (1e9 "
        "elements of a rank by default) is not swapped, so that a small model resumes and a larger one does not; of "
        "adapters only they themselves count. "
        "Releases 0.14 to 0.19 have the same lines. Where the optimizer is on NVMe too, this load is left out, and "
        "other things are lost (optimizer-on-nvme-not-resumed). Offload parameters to the CPU, or save the 16-bit "
        "weights too (save_16bit_model) and begin anew from them."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}
}""",
    evidence=(
        "deepspeed/runtime/zero/stage3.py (0.14.5 to 0.19.8): _rigid_load_state_dict, _create_fp16_partitions_with_"
        "defragmentation",
        "DeepSpeed 0.19.8 run: trained, saved, and not loaded; the optimizer on the GPU or the CPU",
    ),
    check=check,
    shows=("'NoneType' object has no attribute 'data'",),
)
