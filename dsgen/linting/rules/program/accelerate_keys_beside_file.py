"""Keys of Accelerate's file that it refuses beside a DeepSpeed config file."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Each key that stands twice, as Accelerate sees it."""
    yield from noted(subject, "accelerate-keys-beside-file")


RULE = Rule(
    code="DSG920",
    name="accelerate-keys-beside-file",
    severity=Severity.ERROR,
    what="An Accelerate file names a DeepSpeed config and says besides what that config must say.",
    why=(
        "With deepspeed_config_file, Accelerate raises a ValueError for the stage, the offload, accumulation, clipping "
        "and the saving of 16-bit weights beside it, and for mixed_precision: the named file must say all of them."
    ),
    example="""distributed_type: DEEPSPEED
mixed_precision: bf16
deepspeed_config:
  deepspeed_config_file: ds_config.json
  zero_stage: 3
""",
    instead="""distributed_type: DEEPSPEED
deepspeed_config:
  deepspeed_config_file: ds_config.json
  zero3_init_flag: true
""",
    evidence=(
        "accelerate/utils/dataclasses.py (1.15.0): DeepSpeedPlugin._deepspeed_config_checks",
        "accelerate/commands/launch.py: launch_command",
    ),
    check=check,
    reads="text",
)
