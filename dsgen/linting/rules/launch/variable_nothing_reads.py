"""An environment variable that neither DeepSpeed nor a library below it reads."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dsgen.deepspeed.environment import OWNERS, variables
from dsgen.linting.rules.launch_settings import meant, unread_variables
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_PERSONS_OWN = re.compile(r".*(CONFIG|ARG|OPT|FLAG|PATH|DIR|FILE|SCRIPT|ROOT|OUT|STAGE|PORT|HOST|CMD|JSON|NAME)")
_EVERYTHING = ("nccl", "deepspeed")  # owners whose every variable is known; a GPU build of torch reads more


def check(subject: Subject) -> Iterator[Fault]:
    """Every DS_, DEEPSPEED_ and NCCL_ variable that is unknown and no slip of a known one."""
    for setting, owner in unread_variables(subject):
        if owner not in _EVERYTHING or meant(setting.name, owner) is not None:
            continue
        older = variables(owner).older.get(setting.name)
        reader = subject.surface.version if owner == "deepspeed" else _release(owner)
        what = f"{OWNERS[owner]} {reader} does not read {setting.name}"
        what += f" any more (the last known release that did: {older})" if older else ""
        own = owner == "deepspeed" and older is None and _PERSONS_OWN.fullmatch(setting.name) is not None
        yield Fault(
            setting.name,
            f"{what}: it does nothing, unless your own program asks for it",
            Fix(f"remove {setting.name}", (Remove(setting.name),), safe=False),
            Severity.INFO if own else None,
            span=setting.key,
        )


def _release(owner: str) -> str:
    return re.split(r"[ :]", variables(owner).source)[1]


RULE = Rule(
    code="DSG950",
    name="variable-nothing-reads",
    severity=Severity.WARNING,
    what="An environment variable has the prefix of DeepSpeed or NCCL, and neither reads it.",
    why=(
        "Guides and scripts hand such names on, and nothing says that they have no effect: DS_PIPE_RESERVE, "
        "DS_SKIP_UNUSED_PARAMETERS, DS_REUSE_BUFFERS and DS_USE_CUDA_TILING never existed. A name that the file "
        "itself expands is taken for its own and left alone."
    ),
    example="""export DS_REUSE_BUFFERS=1
deepspeed train.py""",
    instead="""deepspeed train.py""",
    evidence=(
        (
            "every os.environ and getenv in the source of deepspeed 0.14 to 0.19; NCCL 2.4 to 2.30 "
            "(schema/environment.json)"
        ),
    ),
    check=check,
    reads="launch",
)
