"""A preset of tensor parallelism that DeepSpeed does not have."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import PRESETS, SECTION, tensor_parallel, unplanned
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity
from dsgen.shapes.near_misses import alike

__all__ = ["RULE", "check"]

_PATH = f"{SECTION}.preset_model"


def check(subject: Subject) -> Iterator[Fault]:
    """A preset_model of another name, while autotp_size is above 1."""
    preset = subject.raw(_PATH)
    if not isinstance(preset, str) or preset in ("", "auto") or tensor_parallel(subject) == 1:
        return
    if preset.lower() in PRESETS:
        return
    close = alike(preset, PRESETS)
    fix = Fix(f"write {close[0]}", (Assign(_PATH, close[0]),), safe=False) if close else None
    stops = unplanned(subject)
    outcome = "stops in deepspeed.initialize, for this model has no other plan" if stops else "goes on without one"
    message = f'no preset is named "{preset}", and DeepSpeed {outcome}; there are {", ".join(PRESETS)}'
    yield Fault(_PATH, message, fix, Severity.ERROR if stops else None, on="value")


RULE = Rule(
    code="DSG410",
    name="tensor-parallel-preset-unknown",
    severity=Severity.WARNING,
    what="preset_model is none of DeepSpeed's presets.",
    why=(
        "DeepSpeed looks the name up, finds nothing, and splits the model by the plan of its Hugging Face class, or "
        "by guessing; for another class it stops."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "tensor_parallel": {"autotp_size": 2, "preset_model": "lama"}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "tensor_parallel": {"autotp_size": 2, "preset_model": "llama"}
}""",
    evidence=("deepspeed/module_inject/autotp_config.py (0.19.8): AutoTPPresets.get_preset", "probe TP_preset_bad"),
    check=check,
    since="0.18.9",
)
