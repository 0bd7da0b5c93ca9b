"""Batch sizes that force a number of GPUs which leaves a node half used."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]


_SIZES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def check(subject: Subject) -> Iterator[Fault]:
    """The number of GPUs that the three batch sizes force, where it is above one node and no multiple of it."""
    hardware = subject.facts.hardware
    total, micro, steps = (subject.value(path) for path in _SIZES)
    if hardware is None or not all(type(size) is int and size > 0 for size in (total, micro, steps)):
        return
    world, full = total // (micro * steps), hardware.gpus_per_node
    if total % (micro * steps) == 0 and world > full and world % full:
        message = f"the batch sizes force {world} GPUs, which do not fill nodes of {full}"
        yield Fault(_SIZES[0], f"{message}: the collectives go at the pace of the emptiest node")


RULE = Rule(
    code="DSG813",
    name="nodes-not-full",
    severity=Severity.INFO,
    what="The batch sizes force a number of GPUs that is no multiple of those in a node.",
    why=(
        "Groups of ranks then cross nodes unevenly, and hpZ and tensor parallelism may not divide. It may be what"
        " the job got."
    ),
    example="""{
  "train_batch_size": 12, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1
}""",
    instead="""{
  "train_batch_size": 16, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1
}""",
    evidence=("the field gpus_per_node of the hardware profile",),
    check=check,
    given={"hardware": "a100-40g"},
)
