"""The size of tensor parallelism only where DeepSpeed does not take it from."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.batch_sizes import whole
from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import SECTION, SIZE
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Move, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """A tp_size above 1 in tensor_parallel.tp (or its long name) without autotp_size."""
    if subject.written(SIZE) and subject.raw(SIZE) not in (0, 1):
        return
    for inner in ("tp", "tensor_parallel"):
        section = f"{SECTION}.{inner}"
        path = f"{section}.tp_size"
        size = whole(subject.raw(path))
        if size is not None and size > 1:
            fix = None if subject.written(SIZE) else Fix("move tp_size to autotp_size", (Move(path, SIZE),), safe=False)
            message = f"{path} {size} does nothing without autotp_size: every GPU holds and computes all layers"
            yield Fault(section, message, fix)


RULE = Rule(
    code="DSG401",
    name="tensor-parallel-size-elsewhere",
    severity=Severity.WARNING,
    what="Tensor parallelism is sized in tensor_parallel.tp alone, so it is off.",
    why=(
        "DeepSpeed asks autotp_size whether to split the model and how far. tp.tp_size is taken and must agree with "
        "it; by itself it changes nothing, and nothing says so."
    ),
    example='{"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"tp": {"tp_size": 2}}}',
    instead='{"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"autotp_size": 2}}',
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): autotp_size() > 1 is the condition",
        "probes TP_key_tp_dict_only, TP_key_tp_dict_full",
    ),
    check=check,
    since="0.16.4",
)
