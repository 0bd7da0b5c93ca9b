"""A variable that is set for the shell alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dsgen.deepspeed.environment import OWNERS, variables
from dsgen.linting.rules.launch_settings import expanded, launch
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_STARTS = re.compile(r"^[ \t]*(?:\w+=\S*[ \t]+)*(?:deepspeed|torchrun|accelerate|python3?|srun|mpirun)\b", re.M)


def check(subject: Subject) -> Iterator[Fault]:
    """Every known variable that no program sees, in a script that starts one."""
    if not _STARTS.search(subject.document.text):
        return
    for setting in launch(subject).settings:
        known = any(setting.name in variables(owner).names for owner in OWNERS)
        if known and not setting.exported and not expanded(subject, setting.name):
            message = f"{setting.name} is not exported: the programs that the script starts do not see it"
            yield Fault(setting.name, message, span=setting.key)


RULE = Rule(
    code="DSG957",
    name="variable-not-exported",
    severity=Severity.WARNING,
    what="A script sets a variable of DeepSpeed or its libraries without `export`.",
    why=(
        "The shell keeps it to itself, unless the variable was exported before the script ran. Write `export` "
        "before it, or put it before the command on the same line."
    ),
    example="""NCCL_SOCKET_IFNAME=eth0
deepspeed train.py""",
    instead="""export NCCL_SOCKET_IFNAME=eth0
deepspeed train.py""",
    evidence=("POSIX, Shell Command Language, Variables and Parameters",),
    check=check,
    reads="launch",
)
