"""A value that DeepSpeed refuses, at the parse or later."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.coercion import refused_at
from dsgen.deepspeed.keys import Key, check_value, say
from dsgen.linting.rules.rule import OF_ANOTHER_TYPE, Rule
from dsgen.linting.rules.values import idle_removal, judged, rewriting
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_WHEN = {"parse": "at the parse", "init": "in deepspeed.initialize", "step": "in the first optimizer step"}


def check(subject: Subject) -> Iterator[Fault]:
    """Every value that the release refuses."""
    for path, key, value in judged(subject):
        phase = refused_at(key, value)
        if phase is not None:
            must = check_value(key, value) or _particular(key)
            message = f"{path} is {say(value)}, and DeepSpeed stops {_WHEN[phase]}; {must}"
            off = value is None or (value is False and path in subject.surface.sections)
            yield Fault(path, message, idle_removal(path) if off else rewriting(path, key, value), on="value")


def _particular(key: Key) -> str:
    """What a value of the right type and range lacks: the release's own check wants another one."""
    words = {
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "string": "a text",
        "array": "a list",
    }
    return (
        f"it must be {' or '.join(words.get(name, name) for name in key.types)}, of what DeepSpeed's own check allows"
    )


RULE = Rule(
    code="DSG107",
    name="rejected-value",
    severity=Severity.ERROR,
    what="A key has a value that DeepSpeed refuses.",
    why=(
        "A strict section stops the parse with a ValidationError. Elsewhere DeepSpeed compares or computes with what "
        'it finds, so that `gradient_clipping: "1.0"` dies with a TypeError in the first step, on rented GPUs.'
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "reduce_bucket_size": "5e8"}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 500000000}
}""",
    evidence=("DeepSpeed 0.19.8 run with every key and values of every JSON type",),
    check=check,
    shows=(*OF_ANOTHER_TYPE, "{value} is not a valid", "(?:modulo|division) by zero"),
    general=True,
)
