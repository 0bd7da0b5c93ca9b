"""Batch sizes that tie the config to a number of GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.batch_sizes import ACCUMULATION, MICRO, TRAIN, sizes
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """A train_batch_size beside the micro-batch, the accumulation or both, while the number of GPUs is not known."""
    given = sizes(subject)
    if given is None or given.train is None or subject.facts.world_size is not None:
        return
    if given.train % given.per_rank or (given.micro is None and given.accumulation is None):
        return
    count = given.train // given.per_rank
    fix = None
    if given.micro is not None:
        fix = Fix(f"remove {TRAIN}: DeepSpeed multiplies it from the others", (Remove(TRAIN),), safe=False)
    if given.micro is not None and given.accumulation is not None:
        gpus = "1 GPU" if count == 1 else f"{count} GPUs"
        message = f"{TRAIN} {given.train} / ({MICRO} {given.micro} x {ACCUMULATION} {given.accumulation}) = {count}"
        yield Fault(TRAIN, f"{message}: this config is for exactly {gpus}, and DeepSpeed refuses any other number", fix)
    else:
        message = f"{TRAIN} {given.train} beside the other sizes: the number of GPUs must divide {count}"
        yield Fault(TRAIN, message, fix)


RULE = Rule(
    code="DSG204",
    name="batch-fixes-gpu-count",
    severity=Severity.INFO,
    what="All three batch sizes are given, so the config is for one number of GPUs only.",
    why=(
        "DeepSpeed asserts `train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x GPUs`. "
        "With all three fixed, one more or one fewer GPU stops the parse. That is no fault: the samples of a step, and "
        "the learning rate that was chosen for them, then cannot change unseen with the number of GPUs, and "
        "`--world-size` checks that it is the right one. A job that is resumed on other numbers wants two of them, the "
        "micro-batch and the accumulation; its steps then grow and shrink with the GPUs."
    ),
    example="""{
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4
}""",
    instead='{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}',
    evidence=("deepspeed/runtime/config.py (0.19.8): _batch_assertion",),
    check=check,
)
