"""A whole number that torch cannot take: more than 64 bits hold, or than memory can be counted with."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes import lax
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_CLIPPING = "gradient_clipping"
_BUCKET = "zero_optimization.reduce_bucket_size"
_NUMBERS_BELOW = 2**64  # of a scalar that torch compares with a tensor (torch/csrc/utils/python_arg_parser.cpp)
_ELEMENTS_BELOW = 2**61  # of 4 bytes: torch counts a tensor's bytes in a signed 64-bit number


def check(subject: Subject) -> Iterator[Fault]:
    """The bucket of ZeRO and the norm that it clips to; stage 0 has no bucket, and computes the norm with floats."""
    if not subject.stage:
        return
    clipping = subject.value(_CLIPPING)
    if isinstance(clipping, int) and clipping >= _NUMBERS_BELOW:
        said = f"{_CLIPPING} is a whole number of more than 64 bits, and torch stops in the first step"
        yield Fault(_CLIPPING, f"{said}; it must be a norm of gradients, 1.0 as a rule", on="value")
    elements = lax.integer(subject.value(_BUCKET))
    whole = subject.value("zero_optimization.contiguous_gradients") is True  # else no bucket is made
    if whole and elements is not None and elements >= _ELEMENTS_BELOW:
        said = f"{_BUCKET} is {elements:.0e} elements, and torch cannot even count the bytes of the bucket"
        yield Fault(_BUCKET, f"{said}; it must be some 1e6 to 5e8", on="value")


RULE = Rule(
    code="DSG113",
    name="number-beyond-64-bits",
    severity=Severity.ERROR,
    what="gradient_clipping or reduce_bucket_size is more than torch can hold in 64 bits.",
    why=(
        "Python has whole numbers of any size, and so has the parse. torch has 64 bits: the bucket stops with "
        '"Overflow when unpacking long" or "Storage size calculation overflowed", the clipping with "int too big to '
        'convert" in the first step.'
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 100000000000000000000}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 100000000}
}""",
    evidence=("DeepSpeed 0.19.8 run with 2^61 to 2^64 at every key that is a number",),
    check=check,
)
