"""Stage 0 in bf16 under the one release that saves its checkpoints and does not load them."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.dtypes import DTYPES
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.zero_switches import settled
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_STAGE = "zero_optimization.stage"


def check(subject: Subject) -> Iterator[Fault]:
    """bf16 at stage 0, unless gradients are summed in fp32, which takes another wrapper."""
    if not subject.on("bf16") or subject.stage != 0 or not settled(subject):
        return
    if DTYPES.get(str(subject.raw("data_types.grad_accum_dtype"))) == "fp32":
        return
    message = (
        f"DeepSpeed {subject.surface.version} does not load the checkpoints that it saves at stage 0 in bf16: "
        "load_checkpoint stops"
    )
    fix = Fix("write stage: 1", (Assign(_STAGE, 1),), safe=False)
    yield Fault(_STAGE if subject.written(_STAGE) else "bf16.enabled", message, fix)


RULE = Rule(
    code="DSG353",
    name="stage-0-in-bf16-not-resumed",
    severity=Severity.WARNING,
    what="A run at stage 0 in bf16 does not resume under this release.",
    why=(
        "0.17.6 wraps the optimizer at stage 0 in bf16 as it does in fp16, and load_checkpoint still asks it for the "
        "ranks of ZeRO: `AttributeError: 'FP16_Optimizer' object has no attribute 'dp_process_group'`. 0.17.5 and "
        "0.18.0 load what they save. Take one of these, or stage 1."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 0}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 1}
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.17.6): _do_optimizer_sanity_check, load_checkpoint",
        "0.17.5, 0.17.6 and 0.18.0 run on two ranks: trained, saved, loaded",
    ),
    check=check,
    given={"deepspeed": "0.17.6"},
    since="0.17.6",
    until="0.18.0",
    shows=("object has no attribute 'dp_process_group'",),
)
