"""A negative gradient_clipping, which clips nothing."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import number
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The value."""
    path = "gradient_clipping"
    value = number(subject.raw(path))
    if value is not None and value < 0:
        fix = Fix("write 0", (Assign(path, 0),))
        said = f"gradient_clipping is {value:g}, and DeepSpeed clips nothing; 0 switches it off, a number above 0 clips"
        yield Fault(path, said, fix, on="value")


RULE = Rule(
    code="DSG608",
    name="gradient-clipping-negative",
    severity=Severity.WARNING,
    what="gradient_clipping is below 0.",
    why=("DeepSpeed clips above 0 alone and says nothing: gradients pass as they are. 0 says the same and is plain."),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "gradient_clipping": -1.0
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "gradient_clipping": 1.0
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _take_model_step",
        "probe T_clip_neg",
    ),
    check=check,
)
