"""An argument of the optimizer that has another type than the optimizer computes with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.arguments import arguments, built_optimizer, number, number_fix, schedule_hides_lr
from dsgen.linting.rules.rule import OF_ANOTHER_TYPE, Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_PAIR = 2  # the decay of the first and of the second moment


def check(subject: Subject) -> Iterator[Fault]:
    """Every argument of the wrong type; "auto" is judged elsewhere."""
    built = built_optimizer(subject)
    if built is None:
        return
    for name, value in arguments(subject, "optimizer").items():
        path = f"optimizer.params.{name}"
        key = subject.surface.key(path, subject.config)
        if key is None or value == "auto" or not built.takes(name):
            continue
        if name == "betas":
            if not isinstance(value, list) or len(value) != _PAIR or any(number(item) is None for item in value):
                said = f"betas is {say(value)}, and the optimizer stops; it must be a list of two numbers"
                yield Fault(path, said, on="value")
        elif "boolean" in key.types and isinstance(value, str):
            said = f"{name} is the text {say(value)}, which counts as true; it must be true or false"
            yield Fault(path, said, number_fix(path, value), Severity.WARNING, on="value")
        elif set(key.types) & {"number", "integer"} and _refused(name, value, built.defaults.get(name)):
            if name == "lr" and schedule_hides_lr(subject):
                said = f"lr is {say(value)}, which stops the optimizer as soon as no schedule replaces it"
                yield Fault(path, f"{said}; it must be a number", number_fix(path, value), Severity.WARNING, on="value")
                continue
            said = f"{name} is {say(value)}, and the optimizer computes with it and stops; it must be a number"
            yield Fault(path, said, number_fix(path, value), on="value")


def _refused(name: str, value: object, default: object) -> bool:
    needed = default is not None or name in ("muon_lr", "adam_lr")
    return isinstance(value, (str, list, Mapping)) or (value is None and needed)


RULE = Rule(
    code="DSG508",
    name="optimizer-argument-type",
    severity=Severity.ERROR,
    what=(
        "optimizer.params has a text, a list or null where a number is needed, or betas that are no pair of numbers."
    ),
    why=(
        "DeepSpeed passes the arguments on as they are. torch.optim and DeepSpeedCPUAdam stop in "
        'deepspeed.initialize; FusedAdam only in the first step, when its kernel is called with "1e-4". YAML '
        "reads 1e-4 as a text."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": "1e-4"}},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "deepspeed/ops/adam/fused_adam.py (0.19.8): step",
        "probes T_lr_str, T_lr_str_fused",
        "DeepSpeed 0.19.8 run with one beta, three betas and texts",
    ),
    check=check,
    shows=(*OF_ANOTHER_TYPE, "incompatible function arguments", "values to unpack"),
)
