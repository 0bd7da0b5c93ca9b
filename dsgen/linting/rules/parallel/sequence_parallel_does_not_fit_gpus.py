"""A mesh of sequence and data parallelism that is not the number of GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.batch_sizes import by_autosp, whole
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_SEQUENCE = "sequence_parallel_size"
_DATA = "data_parallel_size"


def check(subject: Subject) -> Iterator[Fault]:
    """Both sizes, whose product is not the number of GPUs; or one that AutoSP cannot divide them by."""
    sequence, data, world = whole(subject.raw(_SEQUENCE)), whole(subject.raw(_DATA)), subject.facts.world_size
    if world and sequence and sequence > 1 and world % sequence and not subject.written(_DATA) and by_autosp(subject):
        message = f"{_SEQUENCE} {sequence} does not divide {world} GPUs, and AutoSP stops in engine.compile()"
        severity = Severity.ERROR if "engine.compile" in subject.facts.calls else Severity.WARNING
        yield Fault(_SEQUENCE, message, severity=severity, on="value")
    if not world or sequence is None or data is None or sequence < 1 or data < 1 or sequence * data == world:
        return
    fix = None
    if world % sequence == 0:
        fix = Fix(f"write {_DATA}: {world // sequence}", (Assign(_DATA, world // sequence),), safe=False)
    message = f"{_SEQUENCE} {sequence} x {_DATA} {data} is not {world} GPUs, and deepspeed.initialize stops"
    yield Fault(_DATA, message, fix, on="value")


RULE = Rule(
    code="DSG421",
    name="sequence-parallel-does-not-fit-gpus",
    severity=Severity.ERROR,
    what="sequence_parallel_size times data_parallel_size is not the number of GPUs, or the first alone no divisor.",
    why=(
        "The two sizes make a mesh of GPUs. Too large a mesh: `Mesh should not be bigger than default world size`. "
        "Too small a one: the ranks outside it die with an IndexError. DeepCompile's pass `autosp`, which takes the "
        "first alone, stops in engine.compile() where it is no divisor of the GPUs: `World mesh-size should be "
        "divisible by SP_SIZE`."
    ),
    example='{"train_micro_batch_size_per_gpu": 1, "sequence_parallel_size": 4, "data_parallel_size": 4}',
    instead='{"train_micro_batch_size_per_gpu": 1, "sequence_parallel_size": 2, "data_parallel_size": 4}',
    evidence=(
        "deepspeed/__init__.py (0.19.8): initialize",
        "probe B_spdp_mismatch_w2; run as rank 3 of 4 with 2 x 1",
        "deepspeed/compile/custom_ops/sp_dp_registry.py (0.19.8): extract_mesh_size",
    ),
    check=check,
    since="0.15.0",
    given={"world_size": 8},
)
