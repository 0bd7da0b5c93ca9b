"""A config that is no map of keys."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """A top level that is no map."""
    yield from noted(subject, "not-a-map")


RULE = Rule(
    code="DSG003",
    name="not-a-map",
    severity=Severity.ERROR,
    what="The top level is a list, a text or a number.",
    why=(
        "DeepSpeed looks keys up in it and dies with a TypeError or AttributeError. A list around the config, "
        "or a file that is no config at all, is the usual cause."
    ),
    example="""[{"train_micro_batch_size_per_gpu": 1}]""",
    instead="""{"train_micro_batch_size_per_gpu": 1}""",
    evidence=("deepspeed/runtime/config.py (0.19.8): _reject_removed_config_keys",),
    check=check,
    reads="text",
)
