"""Batch sizes that fit no number of GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.batch_sizes import MICRO, TRAIN, divides, divisor, sizes, whole
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_SEQUENCE = "sequence_parallel_size"


def check(subject: Subject) -> Iterator[Fault]:
    """A train_batch_size that is no multiple of the micro-batch, the accumulation, or both; or that two count apart."""
    if (shared := _counted_apart(subject)) is not None:
        yield shared
        return
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


def _counted_apart(subject: Subject) -> Fault | None:
    """A train_batch_size that a program counts over all GPUs, and DeepSpeed over those that share no sequence."""
    product, sequence = subject.target.matched.get(TRAIN), whole(subject.raw(_SEQUENCE)) or 1
    three = subject.raw(TRAIN) is not None and subject.raw(MICRO) is not None  # else DeepSpeed derives the micro-batch
    if product is None or not three or not divides(subject) or sequence <= 1:
        return None
    message = (
        f"{subject.target.title} wants {product} as {TRAIN}, and DeepSpeed that / {sequence}, for it divides the GPUs "
        f"by {_SEQUENCE}: on any number of GPUs it stops at the parse"
    )
    fix = Fix(f"remove {TRAIN}: DeepSpeed multiplies it from the others", (Remove(TRAIN),), safe=False)
    return Fault(TRAIN, message, fix, on="value")


RULE = Rule(
    code="DSG202",
    name="batch-never-adds-up",
    severity=Severity.ERROR,
    what="train_batch_size is no multiple of micro-batch times accumulation.",
    why=(
        "DeepSpeed asserts `train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x GPUs`. "
        "What is missing it derives by division, rounding down, and then asserts the same; here no number of GPUs "
        "makes it true. The Trainer counts all GPUs, also where `sequence_parallel_size` of them share a sequence and "
        "DeepSpeed counts them once: then no train_batch_size, `auto` neither, is right for both."
    ),
    example='{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4}',
    instead='{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4}',
    evidence=(
        "deepspeed/runtime/config.py (0.19.8): _batch_assertion",
        "probes B_mismatch, B_tb_only_odd",
        "the Trainer of transformers 5.23.0 run with sequence_parallel_size 2 and train_batch_size 2, 1 and auto",
    ),
    check=check,
    shows=("has to be greater than 0", "Check batch related parameters"),
)
