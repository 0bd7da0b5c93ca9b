"""Two arguments of the optimizer that exclude each other."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import arguments, built_optimizer, number
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The pairs that torch refuses."""
    built = built_optimizer(subject)
    if built is None or not built.torch:
        return
    params = arguments(subject, "optimizer")
    if params.get("fused") is True and built.takes("fused"):
        for other in ("foreach", "differentiable"):
            if params.get(other) is True and built.takes(other):
                path = f"optimizer.params.{other}"
                fix = Fix(f"remove {other}", (Remove(path),), safe=False)
                yield Fault(path, f"{built.title} refuses fused together with {other}; one of them must go", fix)
    if params.get("nesterov") is True and built.title == "torch.optim.SGD":
        momentum, dampening = number(params.get("momentum", 0)), number(params.get("dampening", 0))
        if momentum == 0 or dampening:
            said = f"{built.title} refuses nesterov here; it needs a momentum above 0 and dampening 0"
            yield Fault("optimizer.params.nesterov", said)


RULE = Rule(
    code="DSG510",
    name="optimizer-arguments-conflict",
    severity=Severity.ERROR,
    what="Torch refuses fused with foreach or differentiable, and nesterov without momentum.",
    why="deepspeed.initialize stops with the error of the class in torch.optim.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {
    "type": "AdamW",
    "params": {"lr": 0.0001, "torch_adam": true, "fused": true, "foreach": true}
  },
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001, "torch_adam": true, "fused": true}},
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "torch/optim/adam.py, sgd.py (2.13): __init__",
        "DeepSpeed 0.19.8 run with each pair",
    ),
    check=check,
)
