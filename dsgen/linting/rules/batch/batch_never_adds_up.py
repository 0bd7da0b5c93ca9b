"""Batch sizes that fit no number of GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.batch_sizes import TRAIN, divisor, sizes
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """A train_batch_size that is no multiple of the micro-batch, the accumulation, or both."""
    given = sizes(subject, exact=True)
    if given is None or given.train is None or given.train % given.per_rank == 0:
        return
    if subject.written("sequence_parallel_size"):  # then DeepSpeed counts a fraction of the GPUs
        return
    message = (
        f"{TRAIN} {given.train} is no multiple of {divisor(given)}, so it fits no number of GPUs, and DeepSpeed stops "
        "at the parse"
    )
    fix = None
    if given.micro is not None:
        fix = Fix(f"remove {TRAIN}: DeepSpeed multiplies it from the others", (Remove(TRAIN),), safe=False)
    yield Fault(TRAIN, message, fix, on="value")


RULE = Rule(
    code="DSG202",
    name="batch-never-adds-up",
    severity=Severity.ERROR,
    what="train_batch_size is no multiple of micro-batch times accumulation.",
    why=(
        "DeepSpeed asserts `train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x GPUs`. "
        "What is missing it derives by division, rounding down, and then asserts the same; here no number of GPUs "
        "makes it true."
    ),
    example='{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4}',
    instead='{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4}',
    evidence=("deepspeed/runtime/config.py (0.19.8): _batch_assertion", "probes B_mismatch, B_tb_only_odd"),
    check=check,
    shows=("has to be greater than 0", "Check batch related parameters"),
)
