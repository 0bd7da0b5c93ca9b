"""A section that the program reads itself and that is missing or no map."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Remove, Severity
from dsgen.targets.hf_accelerate import ACCELERATE

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Each section that is missing or a bare switch; DeepSpeed itself refuses whatever else is no map."""
    target = subject.target
    for section in target.needed:
        if not subject.written(section):
            message = f"{section} is missing; {target.title} refuses a config without it (ValueError)"
            fix = Fix("add it with stage 0, which is what DeepSpeed does without it", (Assign(section, {"stage": 0}),))
            yield Fault(section, message, fix)
        elif isinstance(value := subject.raw(section), bool):
            stage = {"stage": int(value)}
            message = f"{section} is {say(value)}, and {target.title} looks for keys in it (AttributeError)"
            yield Fault(section, message, Fix(f"write {say(stage)}", (Assign(section, stage),)), on="value")
    for path in _looked_into(subject) if target.needed else ():
        if subject.written(path) and subject.raw(path) is None:
            message = f"{path} is null, and {target.title} looks for keys in it (AttributeError)"
            yield Fault(path, message, Fix(f"remove {path.rpartition('.')[2]}", (Remove(path),)), on="value")


def _looked_into(subject: Subject) -> Iterator[str]:
    """Sections in which Accelerate looks: for an optimizer of the program's own, and for the precision."""
    if not subject.written("optimizer"):
        yield "zero_optimization.offload_optimizer"
    if subject.target.name != ACCELERATE.name or subject.value("fp16.enabled") is not True:  # else it may be told none
        yield "bf16"


RULE = Rule(
    code="DSG903",
    name="section-the-program-needs",
    severity=Severity.ERROR,
    what="The Trainer or Accelerate needs a section that the config does not have as a map.",
    why=(
        "Accelerate's plugin, through which the Trainer goes since transformers 4.30, raises a ValueError for a config "
        "without zero_optimization, even where no ZeRO is wanted: stage 0 says so. A bare true or false, which plain "
        "DeepSpeed still takes, is an AttributeError there; so is a null in the place of a section that it looks into."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": "auto",
  "bf16": {"enabled": "auto"}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": "auto",
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 0}
}""",
    evidence=(
        "accelerate/utils/dataclasses.py (1.15.0): DeepSpeedPlugin.__post_init__",
        "accelerate/utils/deepspeed.py: HfDeepSpeedConfig.find_config_node",
        "accelerate/accelerator.py: _prepare_deepspeed; DeepSpeedPlugin.set_mixed_precision",
    ),
    check=check,
    given={"target": "accelerate"},
)
