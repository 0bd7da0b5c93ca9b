"""An argument of the optimizer that no optimizer can work with."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import say
from dsgen.linting.rules.arguments import arguments, built_optimizer, number
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_CHECKING = ("torch.optim.Adam", "torch.optim.AdamW", "torch.optim.Adagrad", "torch.optim.SGD", "torch.optim.RMSprop")
_NEVER_NEGATIVE = ("lr", "eps", "weight_decay", "momentum", "muon_lr", "adam_lr")
_RATES = ("lr", "muon_lr", "adam_lr")
_LARGEST_OF_FP16 = 65504  # the first step of Adam moves each weight by as much as the rate
_LEAST_OF_64_BITS = 2**63  # of a signed number, without its sign
_READING_64_BITS = ("torch.optim.SGD", "torch.optim.RMSprop")  # add_(alpha=-lr) of a whole number
_NOT_A_NUMBER = "a weight that has had no gradient yet is divided 0 by 0 and is NaN from then on; it must be above 0"
_PAIR = 2  # the decay of the first and of the second moment


def check(subject: Subject) -> Iterator[Fault]:
    """Every argument outside its range."""
    built = built_optimizer(subject)
    if built is None:
        return
    stops = built.title in _CHECKING
    does = f"{built.title} stops in deepspeed.initialize" if stops else f"{built.title} does not check it"
    severity = Severity.ERROR if stops else Severity.WARNING
    for name, value in arguments(subject, "optimizer").items():
        path = f"optimizer.params.{name}"
        if name == "betas" and isinstance(value, list) and len(value) == _PAIR:
            if any((beta := number(item)) is not None and not 0 <= beta < 1 for item in value):
                said = f"betas is {say(value)}, and {does}; both must be at least 0 and below 1"
                yield Fault(path, said, None, severity, on="value")
        elif name in _NEVER_NEGATIVE and (number(value) or 0) < 0 and built.takes(name):
            yield Fault(path, f"{name} is {say(value)}, and {does}; it must be at least 0", None, severity, on="value")
        elif name in _RATES and (number(value) or 0) >= _LARGEST_OF_FP16 and built.takes(name):
            halts = isinstance(value, int) and value > _LEAST_OF_64_BITS and built.title in _READING_64_BITS
            then = f"{built.title} stops in the first step" if halts else "weights become infinite or NaN"
            grave = Severity.ERROR if halts else Severity.WARNING
            yield Fault(path, f"{name} is {say(value)}, and {then}; it must be some 1e-6 to 1", None, grave, on="value")
        elif name == "eps" and number(value) == 0 and built.takes(name):
            yield Fault(path, f"eps is {say(value)}, and {_NOT_A_NUMBER}", None, Severity.WARNING, on="value")


RULE = Rule(
    code="DSG509",
    name="optimizer-argument-range",
    severity=Severity.ERROR,
    what="A learning rate, eps or weight decay is negative, a rate 65504 or more, eps 0, or a beta not in [0, 1).",
    why=(
        "The optimizers of torch check this and stop with a ValueError. The fused and CPU ones of DeepSpeed do "
        "not: they climb instead of descending, or divide by zero and skip every step. An eps of 0 is taken by all, "
        "and embeddings of words that no batch has had become NaN in the first step. A rate is taken whatever it is."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001, "betas": [0.9, 1.0], "torch_adam": true}},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001, "betas": [0.9, 0.999], "torch_adam": true}},
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "torch/optim/adam.py (2.13): __init__",
        "DeepSpeed 0.19.8 run with each of them, FusedAdam and torch_adam",
    ),
    check=check,
    shows=(r"Invalid \w+(?: \w+)*(?: at index \d+)?: ", "not finite"),
)
