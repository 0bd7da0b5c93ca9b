"""The word "auto" where the Trainer or Accelerate does not fill it in, or fills in what nobody chose."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.deepspeed.keys import Key, say
from dsgen.linting.rules.autos import autos, outcome, removal
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Move, Severity

__all__ = ["RULE", "check"]


# Settled as one would guess, or with a rule of its own about the value.
_PLAIN = (".stage", ".stage3_gather_16bit_weights_on_model_save")


def check(subject: Subject) -> Iterator[Fault]:
    """Every "auto" that Accelerate refuses, or settles without asking."""
    target = subject.target
    for path, key in () if target.takes_every_auto else autos(subject):
        if path.startswith("bfloat16") or path in target.filled or path in target.overwritten:
            continue  # bfloat16-hidden speaks of the old section
        name = f'{path} is "auto"'
        if path in target.settled:
            yield _settled(subject, path, name)
        elif path in target.shared:
            message = f"{name}, which only the Hugging Face Trainer fills in; a loop of Accelerate's own refuses it"
            yield Fault(path, message, removal(path), Severity.WARNING, on="value")
        elif "[" not in path:
            yield _refused(subject, path, key, name)
        elif (filled := outcome(subject, path, key)) is not None:  # Accelerate does not look into lists
            yield Fault(path, f"{name}; {filled.made}", filled.fix, filled.severity, on="value")


def _settled(subject: Subject, path: str, name: str) -> Fault:
    value = subject.target.settled[path]
    quiet = path.endswith(_PLAIN) or subject.surface.has_effect(path, subject.config) is not None
    message = f"{name}; unless accelerate launch is told otherwise, {subject.target.title} makes it {say(value)}"
    return Fault(path, message, None, Severity.INFO if quiet else None, on="value")


def _refused(subject: Subject, path: str, key: Key, name: str) -> Fault:
    filled = outcome(subject, path, key)
    message = f"{name}, which {subject.target.title} does not fill in; Accelerate's prepare() refuses it (ValueError)"
    fix = filled.fix if filled else removal(path)
    if key.path != path and subject.target.fills(key.path):
        fix = Fix(f"rename to {key.path.rpartition('.')[2]}", (Move(path, key.path),))
    return Fault(path, message, fix, Severity.ERROR, on="value")


RULE = Rule(
    code="DSG901",
    name="auto-not-filled",
    severity=Severity.WARNING,
    what='"auto" stands where the Trainer or Accelerate has nothing to put in its place.',
    why=(
        "Only some keys are filled in: batch, clipping, learning rate, schedule, precision, three buckets. Any other "
        '"auto" is a ValueError ("not found in kwargs") when the model is prepared, even words that DeepSpeed knows; '
        "transformers before 4.30, without Accelerate, handed it on to DeepSpeed. Stage, offload device and the "
        "gathering at a save become 2, none and false."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {"stage": 2, "allgather_bucket_size": "auto"}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}
}""",
    evidence=(
        "accelerate/utils/dataclasses.py (1.15.0): DeepSpeedPlugin.fill_match and deepspeed_config_process",
        "transformers/integrations/deepspeed.py (5.23.0): HfTrainerDeepSpeedConfig",
    ),
    check=check,
    given={"target": "hf-trainer"},
)
