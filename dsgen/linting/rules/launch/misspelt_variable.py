"""An environment variable that is a slip of one that exists."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.environment import OWNERS
from dsgen.linting.rules.launch_settings import meant, unread_variables
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Move, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every unknown variable that is a letter or two from a known one."""
    for setting, owner in unread_variables(subject):
        name = meant(setting.name, owner)
        if name is not None:
            yield Fault(
                setting.name,
                f"nothing reads {setting.name}; {OWNERS[owner]} reads {name}",
                Fix(f"rename to {name}", (Move(setting.name, name),), safe=False),  # it does nothing today
                span=setting.key,
            )


RULE = Rule(
    code="DSG951",
    name="misspelt-variable",
    severity=Severity.WARNING,
    what="The name of an environment variable is misspelt.",
    why=(
        "Nobody complains of a variable that it does not know: NCCL then takes the wrong network card, CUDA shows"
        " every GPU."
    ),
    example="""export NCCL_SOCKET_IFNAMES=eth0
deepspeed train.py""",
    instead="""export NCCL_SOCKET_IFNAME=eth0
deepspeed train.py""",
    evidence=("the names in schema/environment.json, with their sources",),
    check=check,
    reads="launch",
)
