"""A config that is marked for tuning and ends the training it is used for."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "autotuning.enabled"
_DEFAULT_END = 5  # autotuning.end_profile_step (deepspeed/autotuning/constants.py)


def check(subject: Subject) -> Iterator[Fault]:
    """autotuning.enabled, unless the program is known to be started by the autotuner."""
    if not subject.raw(_PATH) or "deepspeed --autotuning" in subject.facts.calls:
        return
    end = subject.value("autotuning.end_profile_step")
    steps = (end if isinstance(end, int) and not isinstance(end, bool) else _DEFAULT_END) + 1
    yield Fault(
        _PATH,
        f"{_PATH} ends the program in step {steps}: the engine writes its measurement and calls exit(). It is meant "
        f"for a start with deepspeed --autotuning",
        Fix("switch autotuning off", (Assign(_PATH, False),), safe=False),
    )


RULE = Rule(
    code="DSG714",
    name="autotuning-ends-the-run",
    severity=Severity.WARNING,
    what="autotuning.enabled makes the engine leave the program after its profiling steps.",
    why=(
        "The engine does not ask who started it. With `autotuning.enabled` it measures from start_profile_step to"
        " end_profile_step and then calls `exit()` with status 0: the training looks finished after six steps."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "autotuning": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "autotuning": {"enabled": false}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8), _autotuning_exit",
        "seen on 0.19.8: SystemExit in the sixth step",
    ),
    check=check,
)
