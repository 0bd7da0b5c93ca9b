"""An Accelerate file whose section for DeepSpeed is not used."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The type, where the section is there for nothing."""
    yield from noted(subject, "accelerate-without-deepspeed")


RULE = Rule(
    code="DSG924",
    name="accelerate-without-deepspeed",
    severity=Severity.WARNING,
    what="An Accelerate file has deepspeed_config, but another distributed_type.",
    why=(
        "Only distributed_type: DEEPSPEED makes accelerate launch look at the section; otherwise the program trains "
        "with plain data parallelism, or whatever the type says, and every GPU holds everything."
    ),
    example="""distributed_type: MULTI_GPU
deepspeed_config:
  zero_stage: 3
""",
    instead="""distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
""",
    evidence=("accelerate/commands/launch.py (1.15.0): _validate_launch_command",),
    check=check,
    reads="text",
)
