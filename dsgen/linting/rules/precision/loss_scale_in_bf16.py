"""Keys of loss scaling in the section bf16."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.dtypes import FP16_ONLY
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every key of fp16 that stands in a section bf16."""
    for section in ("bf16", "bfloat16"):
        for name in subject.section(section):
            path = f"{section}.{name}"
            if name not in FP16_ONLY or (section == "bfloat16" and subject.raw("bf16") is not None):
                continue
            strict = subject.surface.sections.get(section) == "strict"
            does = "stops at it in the parse" if strict else "never reads it"
            said = f"bf16 has no loss scale: {name} belongs to fp16, and DeepSpeed {subject.surface.version} {does}"
            fix = Fix(f"remove {name}", (Remove(path),))
            yield Fault(path, said, fix, None if strict else Severity.WARNING)


RULE = Rule(
    code="DSG601",
    name="loss-scale-in-bf16",
    severity=Severity.ERROR,
    what="The section bf16 has keys that only fp16 has.",
    why=(
        "bf16 has the range of fp32 and needs no loss scale. The section is strict since 0.17.1: the parse stops. "
        "Older releases ignore the keys, which is how they came to be copied."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 16}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true}
}""",
    evidence=(
        "deepspeed/runtime/precision_config.py (0.19.8): DeepSpeedBF16Config",
        "probe A_bf16_lossscale",
    ),
    check=check,
)
