"""One of the two sizes that only work together."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from dsgen.linting.rules.batch_sizes import SEQUENCE_ALONE, by_autosp, whole
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_SEQUENCE = "sequence_parallel_size"
_DATA = "data_parallel_size"


def check(subject: Subject) -> Iterator[Fault]:
    """sequence_parallel_size without data_parallel_size, whatever number other than 1 it is, or the other way round."""
    sequence, data = _number(subject.raw(_SEQUENCE)), whole(subject.raw(_DATA))
    if sequence is not None and sequence != 1 and not subject.written(_DATA) and not by_autosp(subject):
        message = f"{_SEQUENCE} {sequence:.12g} without {_DATA} builds no sequence-parallel groups"
        if subject.version >= SEQUENCE_ALONE:
            message += f"; DeepSpeed only divides the number of GPUs by {sequence:.12g} where it checks the batch size"
        fix = Fix(f"remove {_SEQUENCE}", (Remove(_SEQUENCE),), safe=False)
        yield Fault(_SEQUENCE, message, fix)
    elif data is not None and data > 1 and not subject.written(_SEQUENCE):
        message = f"{_DATA} does nothing without {_SEQUENCE}"
        yield Fault(_DATA, message, Fix(f"remove {_DATA}", (Remove(_DATA),)))


def _number(size: Any) -> float | None:
    """A size that the parse divides by; None of what stops it, which other rules say."""
    is_number = isinstance(size, (int, float)) and not isinstance(size, bool)
    return float(size) if is_number and 0 < size <= sys.float_info.max else None


RULE = Rule(
    code="DSG420",
    name="sequence-parallel-alone",
    severity=Severity.WARNING,
    what="Only one of sequence_parallel_size and data_parallel_size is given.",
    why=(
        "deepspeed.initialize builds the mesh of groups when both are there. sequence_parallel_size alone leaves "
        "plain data parallelism on all GPUs, while the batch arithmetic counts GPUs / sequence_parallel_size. "
        "DeepCompile's pass `autosp` alone, at stage 0 or 1, makes its groups of that size."
    ),
    example='{"train_micro_batch_size_per_gpu": 1, "sequence_parallel_size": 2}',
    instead='{"train_micro_batch_size_per_gpu": 1, "sequence_parallel_size": 2, "data_parallel_size": 4}',
    evidence=(
        "deepspeed/__init__.py (0.19.8): initialize; deepspeed/runtime/config.py: world_size",
        "deepspeed/runtime/engine.py (0.19.8): get_autosp_backend; deepspeed/compile/init_sp.py: extract_mesh_size",
        "probes B_seqsize2_w2, T_seqsize",
    ),
    check=check,
    shows=("train batch: ",),
    since="0.15.0",
)
