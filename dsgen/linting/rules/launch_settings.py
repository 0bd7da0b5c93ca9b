"""What the rules about launch files ask of a subject: the settings that programs see, and whether a name is known."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dsgen.deepspeed.environment import OWNERS, variables
from dsgen.linting import launch_files
from dsgen.linting.launch_files import Assignment, Launch
from dsgen.linting.subjects import Subject

__all__ = ["expanded", "launch", "meant", "switched_on", "unread_variables"]

_TRUE = ("1", "true", "yes", "on", "y", "t")
# Names with NCCL_ that others read: torch's old ones, network plugins, builds of NCCL and of what uses it.
_OTHERS = re.compile(
    r"NCCL_(ASYNC_ERROR_HANDLING|BLOCKING_WAIT|DESYNC_DEBUG|ENABLE_TIMING|USE_TENSOR_REGISTER_ALLOCATOR_HOOK|HOME|ROOT"
    r"|DIR|PATH|VERSION|LIBRARY|INCLUDE|INCLUDE_DIR|LIB|LIB_DIR|INSTALL_PATH|IBEXT_DISABLE|PLUGIN_P2P)(_.*)?"
    r"|NCCL_(GPUDIRECTTCPX|FASTRAK|TESTS|UCX|SHARP|OFI|AWS|TUNER|NET_OFI|SHIMNET)_.*"
)
_PREFIXES = {
    "DS_": "deepspeed",
    "DEEPSPEED_": "deepspeed",
    "NCCL_": "nccl",
    "TORCH_": "torch",
    "PYTORCH_": "torch",
    "CUDA_": "cuda",
}


def launch(subject: Subject) -> Launch:
    """What the launch file says; read once for all rules."""
    return launch_files.scan(subject.document.text, subject.document.name)


def unread_variables(subject: Subject) -> Iterator[tuple[Assignment, str]]:
    """Every exported variable with a prefix of OWNERS that none of them reads, and the owner of the prefix.

    A variable that the file itself uses again is its own, and so is DS_... in a file about something else.
    """
    about = _about_training(subject)
    for setting in launch(subject).settings:
        owner = next((owner for prefix, owner in _PREFIXES.items() if setting.name.startswith(prefix)), None)
        if owner is None or not setting.exported or _OTHERS.fullmatch(setting.name):
            continue
        if setting.name.startswith("DS_") and not about:
            continue
        if not any(setting.name in variables(name).names for name in OWNERS) and not expanded(subject, setting.name):
            yield setting, owner


def _about_training(subject: Subject) -> bool:
    """Whether a file names DeepSpeed, or sets a variable of what is below it."""
    known = ("NCCL_", "CUDA_", "TORCH_", "PYTORCH_")
    set_there = any(setting.name.startswith(known) for setting in launch(subject).settings)
    return set_there or "deepspeed" in subject.document.text.lower()


def meant(name: str, owner: str) -> str | None:
    """The variable of an owner that a misspelt name plainly means."""
    return variables(owner).near(name)


def expanded(subject: Subject, name: str) -> bool:
    """Whether the file uses a variable itself: `$NAME`, or its name as a text of a program in it."""
    return re.search(rf"\$\{{?{name}\b|[\"']{name}[\"']", subject.document.text) is not None


def switched_on(setting: Assignment) -> bool:
    """Whether the value says yes."""
    return setting.value.strip().lower() in _TRUE
