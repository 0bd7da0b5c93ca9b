"""The NVMe path of Accelerate's file, which gets lost."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Each path beside an offload to NVMe."""
    yield from noted(subject, "accelerate-nvme-path")


RULE = Rule(
    code="DSG922",
    name="accelerate-nvme-path",
    severity=Severity.WARNING,
    what="An Accelerate file gives the path of an NVMe offload.",
    why=(
        "accelerate launch hands every other key on as an environment variable, but not this one: the plugin then "
        "takes the text none, and DeepSpeed swaps to a folder of that name below the working directory. A DeepSpeed "
        "config file (deepspeed_config_file) can say the path."
    ),
    example="""distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
  offload_param_device: nvme
  offload_param_nvme_path: /local_nvme
""",
    instead="""distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
  offload_param_device: cpu
""",
    evidence=("accelerate/utils/launch.py (1.15.0): prepare_deepspeed_cmd_env",),
    check=check,
    reads="text",
)
