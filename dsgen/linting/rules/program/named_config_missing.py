"""A DeepSpeed config that another file names and that is not there."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The name, where no file has it."""
    yield from noted(subject, "named-config-missing")


RULE = Rule(
    code="DSG925",
    name="named-config-missing",
    severity=Severity.WARNING,
    what="A launch script, or a file of Accelerate or of a training program, names a config that is not there.",
    why=(
        "It was looked for from the working directory, beside the file, and in the folders above it. The program that "
        "reads the name takes a missing path for JSON or base64 text and stops with a ValueError; nothing was linted."
    ),
    example="""distributed_type: DEEPSPEED
deepspeed_config:
  deepspeed_config_file: no_such_folder/ds_config.json
""",
    instead="""distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 2
""",
    evidence=("accelerate/utils/deepspeed.py (1.15.0): HfDeepSpeedConfig.__init__",),
    check=check,
    reads="job",
)
