"""A checkpoint.writer that stops deepspeed.initialize."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_PATH = "checkpoint.writer"


def check(subject: Subject) -> Iterator[Fault]:
    """Any writer: its factory needs what no launcher of DeepSpeed gives."""
    writer = subject.raw(_PATH)
    if not isinstance(writer, Mapping) or subject.surface.key(_PATH) is None:
        return
    message = (
        f"DeepSpeed {subject.surface.version} stops with KeyError 'CROSS_SIZE' when {_PATH} is given: it reads "
        f"CROSS_SIZE and CROSS_RANK from the environment, and no launcher sets them"
    )
    if writer.get("data_parallel") is None and subject.stage < 3:
        message += ". With them it stops with an AttributeError, because data_parallel is not given"
    yield Fault(_PATH, message, Fix("remove writer", (Remove(_PATH),), safe=False))


RULE = Rule(
    code="DSG702",
    name="checkpoint-writer-fails",
    severity=Severity.ERROR,
    what="The section checkpoint.writer stops deepspeed.initialize.",
    why=(
        "The fast checkpoint writer asks the environment for the number of machines (CROSS_SIZE) and the rank of "
        "this one (CROSS_RANK). Neither `deepspeed` nor torchrun nor mpirun sets them. With both set by hand it "
        "works at stage 3, and below it only with `data_parallel`."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "checkpoint": {"writer": {"type": "fast"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1
}""",
    evidence=(
        "deepspeed/runtime/model_checkpointing/utils.py (0.19.8), create_universal_parallel_info",
        "seen on 0.19.8: KeyError: 'CROSS_SIZE' in deepspeed.initialize, at stages 2 and 3",
    ),
    check=check,
    shows=("UniversalParallelInfo", "CROSS_SIZE"),
)
