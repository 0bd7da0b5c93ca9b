"""A section that is not a map."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.rule import OF_ANOTHER_TYPE, Rule
from dsgen.linting.rules.values import idle_removal, outdone
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_ASLEEP = ("data_efficiency.data_routing.random_ltd", "data_efficiency.data_sampling.curriculum_learning")


def check(subject: Subject) -> Iterator[Fault]:
    """Every section that holds something else; those inside a strict one are judged as its values."""
    known = subject.surface
    for path, value in subject.leaves():
        if isinstance(value, Mapping) or value == "auto" or known.sections.get(_general(path), "free") == "free":
            continue
        key = known.key(path)
        if key is None or key.removed or key.strict or _taken(value, key.types) or _passed_over(subject, path, value):
            continue
        what = f"{path} is {say(value)}, and DeepSpeed stops at the parse; it must be a map"
        switch = known.key(f"{path}.enabled")
        yield Fault(path, what, _mend(path, value, switch is not None), on="value")


def _passed_over(subject: Subject, path: str, value: Any) -> bool:
    """Whether DeepSpeed does not look: a part of a switched off feature, or what will do."""
    if outdone(subject, path) or (path == "expert_parallel" and not value):
        return True
    if path == "timers":  # it only asks whether the name throughput is in there
        return isinstance(value, (str, list)) and "throughput" not in value
    return any(path.startswith(f"{name}.") and not subject.on(name) for name in _ASLEEP)


def _general(path: str) -> str:
    return re.sub(r"\[\d+\]", "[]", path)


def _taken(value: Any, types: tuple[str, ...]) -> bool:
    return (value is None and "null" in types) or (isinstance(value, bool) and "boolean" in types)


def _mend(path: str, value: Any, switched: bool) -> Fix | None:
    if value is None:
        return idle_removal(path)
    if switched and isinstance(value, bool):
        return Fix(f'write {{"enabled": {say(value)}}}', (Assign(path, {"enabled": value}),))
    return None


RULE = Rule(
    code="DSG109",
    name="section-is-no-map",
    severity=Severity.ERROR,
    what="A section holds a single value or a list.",
    why="DeepSpeed hands the section to a class as keyword arguments and dies with a raw TypeError or AttributeError.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": true
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true}
}""",
    evidence=("DeepSpeed 0.19.8 run with every section as each JSON type",),
    check=check,
    shows=OF_ANOTHER_TYPE,
)
