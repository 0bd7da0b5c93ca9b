"""A value of another type than the key's, which DeepSpeed quietly turns into one or takes as it is."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.coercion import read_strict, refused_at
from dsgen.deepspeed.keys import check_value, say
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.values import judged, rewriting
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_LARGEST = 1e18  # no batch is larger: a slip of another kind
_WHOLE = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def check(subject: Subject) -> Iterator[Fault]:
    """Every value that is not what its key wants and that DeepSpeed does not refuse."""
    for path, key, value in judged(subject):
        if path in _WHOLE and isinstance(value, float) and value.is_integer() and value < _LARGEST:
            message = (
                f"{path} is {say(value)}, which DeepSpeed keeps as a float; a DataLoader refuses such a batch size"
            )
            yield Fault(path, message, Fix(f"write {int(value)}", (Assign(path, int(value)),)), on="value")
            continue
        must = check_value(key, value)
        if must is None or refused_at(key, value) is not None:
            continue
        made = "does not check it" if not key.strict else f"reads it as {say(read_strict(key, value))}"
        counts = f" and takes it for {say(bool(value))}" if not key.strict and "boolean" in key.types else ""
        message = f"{path} is {say(value)}, and DeepSpeed {made}{counts}; {must}"
        yield Fault(path, message, rewriting(path, key, value), on="value")


RULE = Rule(
    code="DSG108",
    name="coerced-value",
    severity=Severity.WARNING,
    what="A value has another type than its key, and DeepSpeed does not complain.",
    why=(
        'Strict sections turn "2" into 2 and "yes" into true. Elsewhere a value stays what it is: the text '
        '"false" counts as true, a micro-batch of 1.5 trains with 1.5. Other programs that read the file, and the '
        "next release, need not do the same."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": "2"}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "deepspeed/runtime/config_utils.py (0.19.8): pydantic in lax mode",
        "deepspeed/runtime/config.py: get_scalar_param",
    ),
    check=check,
    general=True,
)
