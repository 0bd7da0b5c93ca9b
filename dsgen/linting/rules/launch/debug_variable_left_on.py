"""An environment variable for debugging that costs speed or floods the log."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.launch_files import Assignment
from dsgen.linting.rules.launch_settings import launch, switched_on
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

# Variable -> (values that count, None for any that says yes; what it does; whether every step pays for it)
_COSTS: dict[str, tuple[tuple[str, ...] | None, str, bool]] = {
    "CUDA_LAUNCH_BLOCKING": (None, "makes the host wait for every kernel, so that nothing overlaps", True),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": (None, "allocates every tensor with cudaMalloc", True),
    "TORCH_DISTRIBUTED_DEBUG": (("DETAIL",), "checks every collective among all ranks before it runs", True),
    "TORCH_NCCL_BLOCKING_WAIT": (None, "makes the host wait for every collective", True),
    "NCCL_BLOCKING_WAIT": (None, "makes the host wait for every collective", True),
    "NCCL_DEBUG": (("INFO", "TRACE", "ABORT"), "prints NCCL's set-up from every rank", False),
    "TORCH_NCCL_NAN_CHECK": (None, "looks for NaN in every tensor before it is sent", False),
    "TORCH_NCCL_DESYNC_DEBUG": (None, "records every collective of every rank", False),
    "TORCH_CPP_LOG_LEVEL": (("INFO",), "prints torch's own log", False),
    "TORCH_COMPILE_DEBUG": (None, "writes every compiled graph to disk", False),
}


def check(subject: Subject) -> Iterator[Fault]:
    """Every switch for debugging that is on."""
    for setting in launch(subject).settings:
        if setting.name in _COSTS and setting.exported:
            values, cost, slow = _COSTS[setting.name]
            if _counts(setting, values):
                yield Fault(
                    setting.name,
                    f"{setting.name}={setting.value} {cost}; it is meant for debugging",
                    Fix(f"remove {setting.name}", (Remove(setting.name),), safe=False),
                    None if slow else Severity.INFO,
                    span=setting.key,
                )


def _counts(setting: Assignment, values: tuple[str, ...] | None) -> bool:
    return switched_on(setting) if values is None else setting.value.strip().upper() in values


RULE = Rule(
    code="DSG953",
    name="debug-variable-left-on",
    severity=Severity.WARNING,
    what="A variable that helps to find an error is still set.",
    why=(
        "CUDA_LAUNCH_BLOCKING=1 alone can halve the speed. What only prints (NCCL_DEBUG=INFO) costs little and is"
        " reported as info."
    ),
    example="""CUDA_LAUNCH_BLOCKING=1 deepspeed train.py""",
    instead="""deepspeed train.py""",
    evidence=(
        "CUDA C++ Programming Guide, CUDA Environment Variables",
        "torch.distributed documentation: TORCH_DISTRIBUTED_DEBUG, TORCH_NCCL_BLOCKING_WAIT",
    ),
    check=check,
    reads="launch",
)
