"""Keys of tensor_parallel that other programs have and DeepSpeed refuses."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.batch_sizes import whole
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import SECTION, SIZE
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Move, Remove, Severity

__all__ = ["RULE", "check"]

_SIZES = ("tp_size", "tensor_parallel_size", "tp_group_size", "size", "degree")


def check(subject: Subject) -> Iterator[Fault]:
    """Every key that names the size otherwise, and a switch."""
    section = subject.section(SECTION)
    taken = "autotp_size" in section
    for name in (key for key in (*_SIZES, "enabled") if key in section):
        path = f"{SECTION}.{name}"
        message = f"DeepSpeed {subject.surface.version} rejects {path}; the key is autotp_size"
        fix: Fix | None = None
        if name != "enabled" and not taken and whole(section[name]) is not None:
            fix, taken = Fix("rename to autotp_size", (Move(path, SIZE),)), True
        elif taken or section.keys() & set(_SIZES):
            fix = Fix(f"remove {name}", (Remove(path),))
        if name == "enabled":
            message = f"DeepSpeed {subject.surface.version} rejects {path}; autotp_size above 1 switches it on"
        yield Fault(path, message, fix)


RULE = Rule(
    code="DSG400",
    name="tensor-parallel-key",
    severity=Severity.ERROR,
    what="The section tensor_parallel has a key that DeepSpeed does not take.",
    why=(
        "The section is strict: `Extra inputs are not permitted`. The only switch of AutoTP training is autotp_size, "
        "the number of GPUs that share each layer; tp_size belongs to init_inference."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "tensor_parallel": {"enabled": true, "tp_size": 4}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "tensor_parallel": {"autotp_size": 4}
}""",
    evidence=(
        "deepspeed/runtime/tensor_parallel/config.py (0.19.8): TPTrainingConfig",
        "probes TP_key_tp_size, TP_key_enabled, TP_key_tp_group_size",
    ),
    check=check,
    shows=("TPTrainingConfig enabled Extra",),
    since="0.16.4",
)
