"""Two sizes of tensor parallelism that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.batch_sizes import whole
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import SECTION, tensor_parallel
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """A tp.tp_size that is neither 1 nor autotp_size, while that is above 1."""
    degree = tensor_parallel(subject)
    for inner in ("tp", "tensor_parallel"):
        path = f"{SECTION}.{inner}.tp_size"
        size = whole(subject.raw(path))
        if degree > 1 and size is not None and size not in (1, degree):
            message = f"{path} is {size} and autotp_size is {degree}: deepspeed.initialize stops"
            yield Fault(path, message, Fix("remove tp_size: autotp_size decides", (Remove(path),)), on="value")


RULE = Rule(
    code="DSG402",
    name="tensor-parallel-sizes-differ",
    severity=Severity.ERROR,
    what="tensor_parallel.tp.tp_size is not autotp_size.",
    why="`ValueError: tensor_parallel.tp.tp_size (4) does not match tensor_parallel.autotp_size (2)`.",
    example='{"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"autotp_size": 2, "tp": {"tp_size": 4}}}',
    instead='{"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"autotp_size": 2}}',
    evidence=("deepspeed/runtime/engine.py (0.19.8): _apply_autotp_partitioning", "probe TP_key_mismatch"),
    check=check,
    since="0.18.9",
)
