"""A key in Accelerate's file that it does not know."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Each unknown key, at the top or in the section for DeepSpeed."""
    yield from noted(subject, "accelerate-unknown-key")


RULE = Rule(
    code="DSG921",
    name="accelerate-unknown-key",
    severity=Severity.WARNING,
    what="An Accelerate file has a key that Accelerate does not know.",
    why=(
        "At the top level Accelerate refuses the file (ValueError). In deepspeed_config nothing looks at the key: its "
        "few keys are names of launcher options, and DeepSpeed's own keys do not belong there."
    ),
    example="""distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 2
  offload_optimizer: cpu
""",
    instead="""distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 2
  offload_optimizer_device: cpu
""",
    evidence=(
        "accelerate/commands/config/config_args.py (1.15.0): BaseConfig.from_yaml_file",
        "accelerate/utils/launch.py: prepare_deepspeed_cmd_env",
    ),
    check=check,
    reads="text",
)
