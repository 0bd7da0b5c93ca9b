"""legacy_fusion, which stops FusedAdam and does nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import built_optimizer
from dsgen.linting.rules.dtypes import model_dtype
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The key, wherever it is on."""
    path = "optimizer.legacy_fusion"
    if subject.raw(path) is not True or not isinstance(subject.raw("optimizer.type"), str):
        return
    built = built_optimizer(subject)
    fix = Fix("remove legacy_fusion", (Remove(path),))
    if (
        subject.stage == 0
        and built is not None
        and built.title == "FusedAdam"
        and model_dtype(subject) in ("fp16", "bf16")
    ):
        said = "with legacy_fusion the 16-bit wrapper calls FusedAdam in a way it refuses, and the first step stops"
        yield Fault(path, said, fix)
    elif subject.stage or model_dtype(subject) == "fp32" or (built is not None and built.title != "FusedAdam"):
        said = "legacy_fusion is read only without ZeRO, in 16 bits, by FusedAdam; here it does nothing"
        yield Fault(path, said, fix, Severity.WARNING)


RULE = Rule(
    code="DSG527",
    name="legacy-fusion",
    severity=Severity.ERROR,
    what="optimizer.legacy_fusion is true.",
    why=(
        "It is read by the 16-bit wrapper without ZeRO around FusedAdam alone, and there the first step stops: "
        "the wrapper passes gradients to a step of FusedAdam that takes none. Everywhere else the key does "
        "nothing."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}, "legacy_fusion": true},
  "zero_optimization": {"stage": 0},
  "bf16": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 0},
  "bf16": {"enabled": true}
}""",
    evidence=(
        "deepspeed/runtime/fp16/fused_optimizer.py (0.19.8): step_fused_adam",
        "DeepSpeed 0.19.8 run with it in fp16 and in bf16",
    ),
    check=check,
)
