"""compute_grad_norm: false where the gradient norm is needed."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.zero_switches import certain, settled
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.compute_grad_norm"
_CLIPPED = "no-norm-with-clipping"
_CODES = ("no-norm-at-the-stage", "no-norm-in-bf16", "no-norm-with-offload", _CLIPPED)  # the first that holds is said
_AWAY = Fix("remove compute_grad_norm", (Remove(_PATH),), safe=False)
_ZERO = Fix("write gradient_clipping: 0", (Assign("gradient_clipping", 0),), safe=False)


def check(subject: Subject) -> Iterator[Fault]:
    """compute_grad_norm false at another stage than 1 or 2, or beside clipping, offload or ZenFlow."""
    if not settled(subject):
        return
    for code in _CODES:
        if why := refused(subject, code, precision=certain(subject)):
            yield Fault(_PATH, why, _ZERO if code == _CLIPPED else _AWAY)
            return


RULE = Rule(
    code="DSG333",
    name="grad-norm-switched-off",
    severity=Severity.ERROR,
    what="The gradient norm is not to be computed, but something needs it.",
    why=(
        "compute_grad_norm: false is for stages 1 and 2 without clipping, offload and ZenFlow. Clipping is on by "
        "default since DeepSpeed 0.19.3 (1.0), so gradient_clipping: 0 must be written."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "compute_grad_norm": false}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_clipping": 0,
  "zero_optimization": {"stage": 2, "compute_grad_norm": false}
}""",
    evidence=(
        "deepspeed/runtime/zero/stage_1_and_2.py (0.19.8): __init__; zero/config.py: compute_grad_norm_valid",
        "probes Z_cgn_false, Z_cgn_false_z3; run with offload and with BF16_Optimizer",
    ),
    check=check,
    since="0.19.7",
)
