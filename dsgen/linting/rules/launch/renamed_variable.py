"""An environment variable under a name that torch has given up."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.launch_settings import launch
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Move, Severity

__all__ = ["RULE", "check"]

_NOW = {
    name: f"TORCH_{name}"
    for name in (
        "NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_BLOCKING_WAIT",
        "NCCL_DESYNC_DEBUG",
        "NCCL_ENABLE_TIMING",
        "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
    )
}


def check(subject: Subject) -> Iterator[Fault]:
    """Every variable with a newer name that the file does not set too."""
    settings = launch(subject).settings
    there = {setting.name for setting in settings}
    for setting in settings:
        now = _NOW.get(setting.name)
        if now is None or not setting.exported:
            continue
        fix = None if now in there else Fix(f"rename to {now}", (Move(setting.name, now),))
        message = f"torch 2.2 renamed {setting.name} to {now} and warns of the old name"
        yield Fault(setting.name, message, fix, span=setting.key)


RULE = Rule(
    code="DSG952",
    name="renamed-variable",
    severity=Severity.WARNING,
    what="torch reads the variable under another name now.",
    why=(
        "Since 2.2 torch's own variables of the NCCL backend begin with TORCH_NCCL_. The old names still count, "
        "print a warning in every rank, and lose against the new ones."
    ),
    example="""export NCCL_ASYNC_ERROR_HANDLING=1
deepspeed train.py""",
    instead="""export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
deepspeed train.py""",
    evidence=("torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp and Utils.hpp (2.13)",),
    check=check,
    reads="launch",
)
