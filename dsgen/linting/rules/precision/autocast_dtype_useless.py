"""torch_autocast in a dtype that it does not cast to."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.dtypes import DTYPES
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.values import counts_as_true
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The value."""
    path = "torch_autocast.dtype"
    dtype = DTYPES.get(str(subject.raw(path)))
    if counts_as_true(subject, "torch_autocast.enabled") and dtype in ("fp32", "int8"):
        fix = Fix("write bfloat16", (Assign(path, "bfloat16"),), safe=False)
        said = f"torch.autocast does not cast to {dtype} and does nothing; it must be float16 or bfloat16"
        yield Fault(path, said, fix, on="value")


RULE = Rule(
    code="DSG617",
    name="autocast-dtype-useless",
    severity=Severity.WARNING,
    what="torch_autocast.dtype is fp32 or int8.",
    why=(
        "torch.autocast knows fp16 and bf16; with another dtype torch warns and computes in fp32 as if autocast "
        "were off."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "torch_autocast": {"enabled": true, "dtype": "float32"}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2},
  "torch_autocast": {"enabled": true, "dtype": "bfloat16"}
}""",
    evidence=(
        "torch/amp/autocast_mode.py (2.13): autocast",
        "DeepSpeed 0.19.8 run with float32: the gradient norm of fp32",
    ),
    check=check,
    since="0.17.2",
)
