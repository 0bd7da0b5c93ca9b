"""Sizes of sequence and data parallelism with which DeepSpeed cannot compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.batch_sizes import SEQUENCE_ALONE
from dsgen.linting.rules.rule import OF_ANOTHER_TYPE, Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_SEQUENCE = "sequence_parallel_size"
_DATA = "data_parallel_size"


def check(subject: Subject) -> Iterator[Fault]:
    """A size that is a text, null, a list, a section, or below 1; of data parallelism where both are given."""
    read = subject.version >= SEQUENCE_ALONE or subject.written(_DATA)
    keys = [_SEQUENCE] if read and subject.written(_SEQUENCE) else []
    keys += [_DATA] if keys and subject.written(_DATA) else []
    for key in keys:
        size = subject.raw(key)
        if not _counts(size):
            message = f"{key} is {say(size)}, and DeepSpeed stops before the parse is done; it must be a whole number"
            yield Fault(key, f"{message} of at least 1", _mend(key, size), on="value")


def _counts(size: Any) -> bool:
    return isinstance(size, (int, float)) and size > 0


def _mend(key: str, size: Any) -> Fix:
    digits = size.strip() if isinstance(size, str) else ""
    if digits.isdecimal() and len(digits) < 10 and int(digits):
        return Fix(f"write {int(digits)}", (Assign(key, int(digits)),))
    return Fix(f"remove {key}", (Remove(key),), safe=False)


RULE = Rule(
    code="DSG422",
    name="sequence-parallel-size-refused",
    severity=Severity.ERROR,
    what="sequence_parallel_size is no number of GPUs.",
    why=(
        "DeepSpeed divides the number of GPUs by it unread: `unsupported operand type(s) for /: 'int' and 'str'`, "
        "ZeroDivisionError for 0, and a batch below 0 for a negative one."
    ),
    example='{"train_micro_batch_size_per_gpu": 1, "sequence_parallel_size": "2", "data_parallel_size": 4}',
    instead='{"train_micro_batch_size_per_gpu": 1, "sequence_parallel_size": 2, "data_parallel_size": 4}',
    evidence=("deepspeed/runtime/config.py (0.19.8): world_size", "probe SP_str; run with 0, -1, null and both sizes"),
    check=check,
    shows=OF_ANOTHER_TYPE,
    since="0.15.0",
)
