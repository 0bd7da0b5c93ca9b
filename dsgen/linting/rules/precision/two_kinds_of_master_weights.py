"""Master weights in fp16 and in bf16 at once."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The two keys."""
    path = "fp16.fp16_master_weights_and_grads"
    if subject.stage and subject.value(path) is True and subject.value("bf16.bf16_master_weights_and_grads") is True:
        fix = Fix("remove fp16_master_weights_and_grads", (Remove(path),), safe=subject.value("fp16.enabled") is False)
        yield Fault(path, "DeepSpeed refuses master weights in fp16 and in bf16 at once; one of the two must go", fix)


RULE = Rule(
    code="DSG624",
    name="two-kinds-of-master-weights",
    severity=Severity.ERROR,
    what="fp16_master_weights_and_grads and bf16_master_weights_and_grads are both true.",
    why='deepspeed.initialize stops: "mutually exclusive". The switches of the sections do not matter.',
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
  "fp16": {"fp16_master_weights_and_grads": true},
  "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
  "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}
}""",
    evidence=(
        "deepspeed/runtime/base_optimizer.py (0.19.8): _configure_master_weights",
        "DeepSpeed 0.19.8 run with both",
    ),
    check=check,
    shows=("are mutually exclusive",),
    since="0.18.3",
)
