"""compute_grad_norm: false where the gradient norm is needed."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.zero_switches import settled, wrapped_for_bf16
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.compute_grad_norm"


def check(subject: Subject) -> Iterator[Fault]:
    """compute_grad_norm false at another stage than 1 or 2, or beside clipping, offload or ZenFlow."""
    if subject.value(_PATH) is not False or not settled(subject):
        return
    clip = subject.value("gradient_clipping")
    clips = isinstance(clip, (int, float)) and not isinstance(clip, bool) and clip > 0
    fix = Fix("remove compute_grad_norm", (Remove(_PATH),), safe=False)
    if subject.stage not in (1, 2):
        why = f"works at stage 1 and 2 only; the stage is {subject.stage}, and DeepSpeed stops at the parse"
    elif wrapped_for_bf16(subject):
        why = "does not go with bf16 and fp32 accumulation at stage 1: deepspeed.initialize stops"
    elif subject.raw("zero_optimization.zenflow") is not None or subject.offload("optimizer") != "none":
        why = "does not go with offload or ZenFlow: deepspeed.initialize stops"
    elif clips:
        origin = "" if subject.written("gradient_clipping") else ", the default"
        why = f"needs gradient_clipping 0; it is {clip}{origin}: deepspeed.initialize stops"
        fix = Fix("write gradient_clipping: 0", (Assign("gradient_clipping", 0),), safe=False)
    else:
        return
    yield Fault(_PATH, f"compute_grad_norm: false {why}", fix)


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
