"""An argument of the program, or of its launcher, that says another thing than the config."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.disagreements import RULE_NAME
from dsgen.linting.followed import against_job
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.texts import noted
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """What the reader of the job's files has noted, at the argument or at the key."""
    yield from noted(subject, RULE_NAME)
    yield from against_job(subject.document, subject.facts.job_world)


RULE = Rule(
    code="DSG926",
    name=RULE_NAME,
    severity=Severity.ERROR,
    what="What starts the training and the DeepSpeed config say different things.",
    why=(
        "Launch scripts, with their arrays and the scripts inside of them (bash -c, sbatch <<EOF), training files and "
        "the config they lead to are read together, and both places are shown. The Trainer compares batch, "
        "accumulation, clipping, precision, optimizer and schedule with its arguments and raises one ValueError for "
        'all that differ; "auto" in the config takes the argument. Accelerate and DeepSpeed compare nothing but the '
        "batch sizes with the GPUs, and go by the config: there it is a warning. Only a --mixed_precision of "
        "accelerate launch beside the other dtype in the config is refused."
    ),
    example="""per_device_train_batch_size: 2
deepspeed:
  train_micro_batch_size_per_gpu: 4
  zero_optimization:
    stage: 2
""",
    instead="""per_device_train_batch_size: 2
deepspeed:
  train_micro_batch_size_per_gpu: auto
  zero_optimization:
    stage: 2
""",
    evidence=(
        "transformers/integrations/deepspeed.py (5.23.0): fill_match, trainer_config_finalize",
        "accelerate/utils/dataclasses.py (1.15.0): DeepSpeedPlugin.set_mixed_precision",
    ),
    check=check,
    reads="job",
)
