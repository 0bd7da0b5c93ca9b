"""Arguments of the optimizer that ZenFlow's own AdamW does not take."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import arguments, built_optimizer
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.zero_switches import flows
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

# What torch.optim.AdamW, the base of ZenFlowSelectiveAdamW, takes (torch 2.13).
_TAKEN = (
    *("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach", "capturable", "differentiable", "fused"),
    "max_grad_norm",  # refused already, by a rule of its own
)


def check(subject: Subject) -> Iterator[Fault]:
    """Every such argument beside ZenFlow at stage 1 or 2."""
    if not flows(subject):
        return
    built = built_optimizer(subject)
    for name in arguments(subject, "optimizer"):
        path = f"optimizer.params.{name}"
        if name not in _TAKEN and built is not None and built.takes(name):
            message = f"ZenFlow hands {name} to its own AdamW, which does not take it: deepspeed.initialize stops"
            yield Fault(path, message, Fix(f"remove {name}", (Remove(path),), safe=False))


RULE = Rule(
    code="DSG344",
    name="zenflow-optimizer-argument",
    severity=Severity.ERROR,
    what="The optimizer has an argument that ZenFlow cannot pass on.",
    why=(
        "ZenFlow builds a second optimizer, an AdamW of torch, with the arguments of the config as they are: "
        "`AdamW.__init__() got an unexpected keyword argument 'torch_adam'`, also where it is false."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "bias_correction": true}},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {"select_strategy": "step", "select_interval": 8, "update_interval": 4}
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {"select_strategy": "step", "select_interval": 8, "update_interval": 4}
  }
}""",
    evidence=("deepspeed/runtime/zenflow/zenflow_stage_1_and_2.py (0.19.8): __init__; run with torch_adam",),
    check=check,
    since="0.17.5",
)
