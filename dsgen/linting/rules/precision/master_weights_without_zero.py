"""16-bit master weights without the ZeRO stage that has them."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_KEYS = (
    ("fp16", "fp16_master_weights_and_grads"),
    ("bf16", "bf16_master_weights_and_grads"),
    ("bf16", "bf16_optimizer_states"),
)


def check(subject: Subject) -> Iterator[Fault]:
    """Each of the keys that need ZeRO."""
    refusals = (refused(subject, code, narrow=True) for code in ("masters-at-stage-0", "masters-at-stage-2-alone"))
    why = next((said for said in refusals if said is not None), None)
    for section, name in _KEYS:
        path = f"{section}.{name}"
        if why is not None and subject.surface.key(path) is not None and subject.value(path) is True:
            yield Fault(path, f"{why}, and the parse stops", Fix(f"remove {name}", (Remove(path),), safe=False))


RULE = Rule(
    code="DSG621",
    name="master-weights-without-zero",
    severity=Severity.ERROR,
    what="fp16_master_weights_and_grads or bf16_master_weights_and_grads is true at stage 0.",
    why="The parse stops, even with the section switched off. Before 0.18.3 the fp16 one works at stage 2 alone.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 0},
  "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
  "zero_optimization": {"stage": 0},
  "bf16": {"enabled": true}
}""",
    evidence=(
        "deepspeed/runtime/config.py (0.19.8): _do_error_check",
        "probe P_bf16_master_z0",
    ),
    check=check,
)
