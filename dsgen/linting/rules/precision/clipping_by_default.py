"""A config without gradient_clipping, which clips all the same."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import number
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The missing key, where nobody else fills it in."""
    path = "gradient_clipping"
    default = number(subject.surface.default(path))
    if subject.written(path) or not default or subject.target.name == "lightning":
        return
    said = f"without gradient_clipping DeepSpeed {subject.surface.version} clips at {default:g}; 0 would not clip"
    yield Fault(path, said, Fix(f"write {default:g}", (Assign(path, default),), safe=False))


RULE = Rule(
    code="DSG609",
    name="clipping-by-default",
    severity=Severity.INFO,
    what="gradient_clipping is not written.",
    why=(
        "Since 0.19.3 DeepSpeed clips at a global norm of 1.0 without being told to; before, it did not clip. The "
        "same file trains differently after an update. 0 switches it off."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "gradient_clipping": 1.0
}""",
    evidence=(
        "deepspeed/runtime/constants.py (0.19.8): GRADIENT_CLIPPING_DEFAULT",
        "probe Z_clip_default",
    ),
    check=check,
)
