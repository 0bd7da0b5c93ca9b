"""Type Adam with weight decay, which DeepSpeed takes for AdamW."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import arguments, number
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The type, where the two differ."""
    params = arguments(subject, "optimizer")
    if subject.optimizer != "adam" or "adam_w_mode" in params or not number(params.get("weight_decay")):
        return
    fix = Fix("write AdamW", (Assign("optimizer.type", "AdamW"),), safe=False)
    yield Fault("optimizer.type", "DeepSpeed takes Adam for AdamW unless adam_w_mode is false", fix, on="value")


RULE = Rule(
    code="DSG512",
    name="adam-means-adamw",
    severity=Severity.INFO,
    what="The type is Adam, weight_decay is not 0, and adam_w_mode is not written.",
    why=(
        "adam_w_mode is true by default, so DeepSpeed decouples the decay from the gradient. Who means L2 "
        "regularisation, as torch.optim.Adam does it, must write adam_w_mode false."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "Adam", "params": {"lr": 0.0001, "weight_decay": 0.1}},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001, "weight_decay": 0.1}},
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _configure_basic_optimizer",
        "probes OPT_Adam_wd, OPT_Adam_mode_false",
    ),
    check=check,
)
