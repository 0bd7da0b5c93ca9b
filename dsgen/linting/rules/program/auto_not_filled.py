"""The word "auto" where the Trainer or Accelerate does not fill it in, or fills in what nobody chose."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules import unfilled
from dsgen.linting.rules.autos import autos, outcome, removal
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """Every "auto" that Accelerate refuses, or settles without asking."""
    target = subject.target
    for path, key in () if target.takes_every_auto else autos(subject):
        name = f'{path} is "auto"'
        if path == "train_batch_size" and unfilled.lacks_micro(subject):
            yield unfilled.without_micro(subject, name)
        if path.startswith("bfloat16") or path in target.filled or path in target.overwritten:
            continue  # bfloat16-hidden speaks of the old section
        if path in target.settled:
            yield unfilled.settled(subject, path, name)
        elif path in target.shared:
            message = f"{name}, which only the Hugging Face Trainer fills in; a loop of Accelerate's own refuses it"
            yield Fault(path, message, removal(path), unfilled.grave(subject), on="value")
        elif "[" not in path:
            yield unfilled.refused(subject, path, key, name)
        elif (filled := outcome(subject, path, key)) is not None:  # Accelerate does not look into lists
            yield Fault(path, f"{name}; {filled.made}", filled.fix, filled.severity, on="value")
    yield from () if target.takes_every_auto else unfilled.unread(subject)


RULE = Rule(
    code="DSG901",
    name="auto-not-filled",
    severity=Severity.WARNING,
    what='"auto" stands where the Trainer or Accelerate has nothing to put in its place.',
    why=(
        "Only some keys are filled in: batch, clipping, learning rate, schedule, precision, three buckets. Any other "
        '"auto" is a ValueError ("not found in kwargs") when the model is prepared, even at a key that nothing reads; '
        "transformers before 4.30, without Accelerate, handed it on to DeepSpeed. Stage, offload device and the "
        "gathering at a save become 2, none and false. betas and eps are filled in by the Trainer alone, and "
        "train_batch_size by Accelerate only beside train_micro_batch_size_per_gpu: a loop of its own stops."
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
        "both programs run with public configs: benchmarks/data/program-verdicts.json",
    ),
    check=check,
    given={"target": "hf-trainer"},
)
