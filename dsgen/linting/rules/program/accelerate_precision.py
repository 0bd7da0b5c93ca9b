"""A mixed_precision in Accelerate's file that it cannot read."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The value, where Accelerate dies of it."""
    yield from noted(subject, "accelerate-precision")


RULE = Rule(
    code="DSG923",
    name="accelerate-precision",
    severity=Severity.ERROR,
    what="mixed_precision is a bare no, or a word that Accelerate does not know.",
    why=(
        "Accelerate reads its file with PyYAML, to which a bare no is the truth value false; false has no lower(), and "
        "the launcher ends in an AttributeError. `accelerate config` writes the word in quotes. Other words are a "
        "ValueError."
    ),
    example="""distributed_type: DEEPSPEED
mixed_precision: no
deepspeed_config:
  zero_stage: 2
""",
    instead="""distributed_type: DEEPSPEED
mixed_precision: 'no'
deepspeed_config:
  zero_stage: 2
""",
    evidence=(
        "accelerate/utils/launch.py (1.15.0): prepare_deepspeed_cmd_env",
        "YAML 1.1, https://yaml.org/type/bool.html",
    ),
    check=check,
    reads="text",
)
