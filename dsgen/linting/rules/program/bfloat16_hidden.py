"""The old section bfloat16 in a config to which Accelerate adds bf16."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Move, Severity

__all__ = ["RULE", "check"]

_BOTH = "today the arguments alone decide, with it bf16, and a run without --bf16 stops"


def check(subject: Subject) -> Iterator[Fault]:
    """The section where it stands alone."""
    old, new = "bfloat16", "bf16"
    if subject.target.takes_every_auto or not subject.written(old) or subject.written(new):
        return
    if subject.raw("bfloat16.enabled") == "auto":
        message = f'nobody fills in the "auto" of {old}.enabled, and Accelerate\'s prepare() refuses it (ValueError)'
        yield Fault(old, message, Fix(f"rename to {new}", (Move(old, new),)), Severity.ERROR)
        return
    message = f"{old} does nothing here: Accelerate adds a section {new}, and DeepSpeed reads {old} only without one"
    yield Fault(old, message, Fix(f"rename to {new}: {_BOTH}", (Move(old, new),), safe=False))


RULE = Rule(
    code="DSG905",
    name="bfloat16-hidden",
    severity=Severity.WARNING,
    what="A config for the Trainer or Accelerate switches bf16 on under its old name.",
    why=(
        "Accelerate adds bf16 with enabled false, or what its mixed precision says, to any config without that "
        "section. DeepSpeed then no longer looks at bfloat16, and trains in fp32 if that was all. The "
        '"auto" of bfloat16.enabled is a ValueError ("not found in kwargs").'
    ),
    example="""{
  "train_micro_batch_size_per_gpu": "auto",
  "bfloat16": {"enabled": true},
  "zero_optimization": {"stage": 2}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": "auto",
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2}
}""",
    evidence=(
        "accelerate/utils/dataclasses.py (1.15.0): DeepSpeedPlugin.set_mixed_precision",
        "deepspeed/runtime/precision_config.py (0.19.8): get_bfloat16_config",
        "the Trainer of transformers 5.23.0 run with the section: benchmarks/data/program-verdicts.json",
    ),
    check=check,
    given={"target": "hf-trainer"},
)
