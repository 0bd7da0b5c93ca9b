"""A variable that takes the fast way between GPUs from NCCL."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.launch_files import Assignment
from dsgen.linting.rules.launch_settings import launch, switched_on
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_PATHS = {
    "NCCL_P2P_DISABLE": "the GPUs of a node then copy through host memory, also those that NVLink joins",
    "NCCL_IB_DISABLE": "the nodes then talk over TCP, also where InfiniBand or RoCE joins them",
    "NCCL_SHM_DISABLE": "GPUs of a node that cannot reach each other directly then go over the network card",
}


def check(subject: Subject) -> Iterator[Fault]:
    """Every path that is switched off and may be there; silent where the hardware is known not to have it."""
    for setting in launch(subject).settings:
        if setting.name in _PATHS and setting.exported and switched_on(setting) and not _has_none(subject, setting):
            yield Fault(
                setting.name,
                f"{setting.name}={setting.value} is a workaround: {_PATHS[setting.name]}",
                Fix(f"remove {setting.name}", (Remove(setting.name),), safe=False),
                span=setting.key,
            )
        elif setting.name == "NCCL_SOCKET_IFNAME" and setting.exported and setting.value.strip() in ("lo", "=lo"):
            message = "NCCL_SOCKET_IFNAME=lo is the loopback: with it no rank reaches another node"
            yield Fault(setting.name, message, span=setting.key)


def _has_none(subject: Subject, setting: Assignment) -> bool:
    facts = subject.facts
    if setting.name == "NCCL_IB_DISABLE" and facts.network is not None:
        return facts.network.fabric in ("none", "ethernet", "efa")
    if setting.name == "NCCL_P2P_DISABLE" and facts.hardware is not None:
        return facts.hardware.intra_node_link not in ("nvlink", "xgmi")
    return False


RULE = Rule(
    code="DSG954",
    name="fast-path-disabled",
    severity=Severity.WARNING,
    what="NCCL is told not to use NVLink, InfiniBand or shared memory.",
    why=(
        "These switches find out where a hang comes from. Left on, they make communication several times slower "
        "and nothing says so. GPUs without peer access (RTX 40) need NCCL_P2P_DISABLE; name the hardware or the "
        "network and the rule knows."
    ),
    example="""export NCCL_P2P_DISABLE=1
deepspeed train.py""",
    instead="""deepspeed train.py""",
    evidence=(
        ('NCCL documentation, Environment Variables: "should not be used in production" of the debugging variables'),
    ),
    check=check,
    reads="launch",
)
