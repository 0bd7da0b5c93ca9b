"""A persistence threshold that keeps the model whole on every GPU."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.families.parameters import parameters
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.stage3_param_persistence_threshold"
_SHARE = 0.5  # of the model's elements that stay whole
_DEFAULT = 100_000  # elements; DeepSpeed's own (zero/config.py)


def check(subject: Subject) -> Iterator[Fault]:
    """The share of the model in tensors at or below the threshold, at stage 3."""
    model, threshold = subject.facts.model, subject.value(_PATH)
    if model is None or subject.stage != 3 or not isinstance(threshold, int) or isinstance(threshold, bool):
        return
    try:
        tensors = parameters(model)
    except DsgenError:  # an architecture that is not known
        return
    kept = sum(tensor.total for tensor in tensors if tensor.numel <= threshold)
    total = sum(tensor.total for tensor in tensors)
    if kept > _SHARE * total:
        yield Fault(
            _PATH,
            f"every tensor of at most {threshold:,} elements stays whole on each GPU: {kept / total:.0%} of this "
            f"model, so that stage 3 saves little",
            Fix(f"set it to {_DEFAULT}", (Assign(_PATH, _DEFAULT),), safe=False),
        )


RULE = Rule(
    code="DSG808",
    name="nothing-is-partitioned",
    severity=Severity.WARNING,
    what="At stage 3 the persistence threshold is larger than most tensors of the model.",
    why=(
        "Tensors at or below the threshold are not partitioned: each GPU keeps them whole, so that they need no "
        "gathering. It is meant for biases and norms."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 1000000000}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
  "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 100000}
}""",
    evidence=("deepspeed/runtime/zero/parameter_offload.py (0.19.8), mark_persistent_parameters",),
    check=check,
    given={"model": "7b"},
)
