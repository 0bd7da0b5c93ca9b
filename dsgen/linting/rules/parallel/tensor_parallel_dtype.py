"""A dtype in tensor_parallel."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import SECTION
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_PATH = f"{SECTION}.dtype"


def check(subject: Subject) -> Iterator[Fault]:
    """Any dtype but "auto", which DeepSpeed drops."""
    if subject.written(_PATH) and subject.raw(_PATH) != "auto":
        message = (
            f"tensor_parallel.dtype is {say(subject.raw(_PATH))}, and DeepSpeed stops at the parse: it takes an object "
            "of torch, which no file can hold. bf16 or fp16 sets the dtype"
        )
        yield Fault(_PATH, message, Fix("remove dtype: nothing reads it in training", (Remove(_PATH),)))


RULE = Rule(
    code="DSG413",
    name="tensor-parallel-dtype",
    severity=Severity.ERROR,
    what="The section tensor_parallel has a dtype.",
    why="`Input should be an instance of dtype`: the key is for Python programs, and training does not read it.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "tensor_parallel": {"autotp_size": 2, "dtype": "bf16"},
  "zero_optimization": {"stage": 1}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "tensor_parallel": {"autotp_size": 2},
  "zero_optimization": {"stage": 1}
}""",
    evidence=("deepspeed/runtime/tensor_parallel/config.py (0.19.8): dtype: torch.dtype", "probe TP_dtype_str"),
    check=check,
    since="0.16.4",
)
