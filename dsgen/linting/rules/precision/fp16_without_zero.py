"""fp16 without ZeRO, where DeepSpeed does not scale the loss."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import number
from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The switch, at stage 0."""
    mode = next((name for name in ("fp16", "bf16") if subject.on(name)), None)
    unscaled = mode == "fp16" and number(subject.value("fp16.loss_scale")) == 1
    if mode is None or unscaled or subject.facts.accelerator == "cpu":
        return
    if why := refused(subject, f"{mode}-at-stage-0", precision=mode):
        fix = Fix("use stage 1", (Assign("zero_optimization.stage", 1),), safe=False)
        yield Fault(f"{mode}.enabled", why, fix)


RULE = Rule(
    code="DSG626",
    name="fp16-without-zero",
    severity=Severity.WARNING,
    what="fp16 is on at stage 0.",
    why=(
        "Since 0.18.3 engine.backward scales the loss for the ZeRO optimizers alone. At stage 0 the fp16 wrapper "
        "still divides the gradients by the loss scale in its step: they are 65,536 times too small. Plain SGD "
        "then stands still: 25 steps left a loss of 0.5963 of 0.5964 where stage 1 came to 0.0008. Adam divides by the "
        "size of the gradients and lost little in the same test (0.0072 against 0.0054; both reach 0 in 200 steps). "
        "bf16 has the same fault until 0.18.6."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 0},
  "fp16": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 1},
  "fp16": {"enabled": true}
}""",
    evidence=(
        "https://github.com/deepspeedai/DeepSpeed/pull/8393",
        "https://github.com/deepspeedai/DeepSpeed/pull/7839",
        "DeepSpeed 0.19.8 run on a CPU that was said to take fp16, 25 steps of a perceptron of 32 inputs: SGD (lr 0.1) "
        "0.5963 at stage 0, 0.0008 at stage 1 and in bf16; Adam (lr 0.01) 0.0072 and 0.0054",
    ),
    check=check,
    since="0.18.3",
)
