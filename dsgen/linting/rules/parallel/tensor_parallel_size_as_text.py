"""autotp_size as text."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import SIZE
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """An autotp_size that is a text; "auto" and the empty text have rules of their own."""
    size = subject.raw(SIZE)
    if not isinstance(size, str) or size in ("", "auto"):
        return
    digits = size.strip()
    fix = Fix(f"write {digits}", (Assign(SIZE, int(digits)),)) if digits.isdecimal() and len(digits) < 10 else None
    message = f"autotp_size is {say(size)}, which DeepSpeed compares with 0 and stops; it must be a whole number"
    yield Fault(SIZE, message, fix, on="value")


RULE = Rule(
    code="DSG403",
    name="tensor-parallel-size-as-text",
    severity=Severity.ERROR,
    what='autotp_size is a text such as "2".',
    why=(
        "deepspeed.initialize reads the size before its parse would turn a text into a number: `TypeError: '>' not "
        "supported between instances of 'str' and 'int'`."
    ),
    example='{"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"autotp_size": "2"}}',
    instead='{"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"autotp_size": 2}}',
    evidence=("deepspeed/__init__.py (0.18.9, 0.19.8): initialize", "probes TP_autotp_str, TP_autotp_auto"),
    check=check,
    shows=("not supported between instances of 'str'",),
    since="0.18.9",
)
