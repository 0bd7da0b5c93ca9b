"""A key under a name that DeepSpeed has replaced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsgen.deepspeed.coercion import read_strict
from dsgen.deepspeed.keys import Key
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Edit, Fault, Fix, Move, Remove, Severity

__all__ = ["RULE", "check"]

_DEVICES = ("zero_optimization.offload_optimizer", "zero_optimization.offload_param")


def check(subject: Subject) -> Iterator[Fault]:
    """Every deprecated key; of a deprecated section only the section itself."""
    seen: tuple[str, ...] = ()
    for path, value in subject.leaves():
        key = subject.surface.key(path)
        if key is None or not key.deprecated or key.path != path or path.startswith((*seen, "optimizer.")):
            continue
        seen += (f"{path}.",)
        new = key.replaced_by or ""
        keeps = path != "bfloat16" or subject.target.takes_every_auto  # Accelerate hides it with a bf16 of its own
        if path == "bfloat16" and subject.written("bf16"):
            message = "bfloat16 is the old name of bf16, and DeepSpeed does not read it beside bf16"
            yield Fault(path, message, Fix("remove bfloat16", (Remove(path),)))
        elif not subject.written(new):
            idle = new in _DEVICES and read_strict(key, value) is False  # it says what is so without it
            message = f"{path} is the old name of {new}; {_consequence(key)}"
            yield Fault(path, message, _mend(key, value, new, keeps), Severity.INFO if idle else None)


def _consequence(key: Key) -> str:
    if key.path.endswith("_use_pin_memory"):
        return "DeepSpeed warns about it and does not apply it"
    if key.path.startswith("bfloat16"):
        return "DeepSpeed still reads it while there is no bf16"
    return "DeepSpeed still takes it, with a warning"


def _mend(key: Key, value: Any, new: str, keeps: bool) -> Fix:
    if new in _DEVICES:
        offloaded = read_strict(key, value) is True
        edits: tuple[Edit, ...] = (Remove(key.path), *((Assign(f"{new}.device", "cpu"),) if offloaded else ()))
        return Fix(f"write {new}.device: cpu" if offloaded else "remove it: it says what is so without it", edits)
    if key.path.endswith("_use_pin_memory"):
        return Fix("remove it: it does nothing", (Remove(key.path),))
    return Fix(f"rename to {new.rpartition('.')[2]}", (Move(key.path, new),), safe=keeps)


RULE = Rule(
    code="DSG104",
    name="deprecated-key",
    severity=Severity.WARNING,
    what="A key is written under its old name.",
    why=(
        "DeepSpeed keeps a few old names and moves them with a warning in the log. They disappear in some release, "
        "and together with the new name they stop the parse."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "cpu_offload": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}
}""",
    evidence=(
        "deepspeed/runtime/zero/config.py (0.19.8): fields with `deprecated`",
        "deepspeed/runtime/config_utils.py",
    ),
    check=check,
    general=True,
    about_versions=True,
)
