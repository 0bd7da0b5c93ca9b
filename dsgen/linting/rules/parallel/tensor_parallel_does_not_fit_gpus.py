"""More GPUs per layer than there are, or a number that does not divide them."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.tensor_parallelism import SIZE, tensor_parallel
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """An autotp_size above 1 that does not divide the number of GPUs."""
    degree, world = tensor_parallel(subject), subject.facts.world_size
    why = refused(subject, "autotp-and-gpus")
    if why is None or degree == 1 or not world:
        return
    best = max(part for part in range(1, min(degree, world) + 1) if world % part == 0)
    outcome = (
        "deepspeed.initialize stops"
        if degree > world
        else f"DeepSpeed does not check it, and what is left over ({world % degree}) stops with an IndexError"
    )
    fix = Fix(f"write {best}", (Assign(SIZE, best),), safe=False)
    yield Fault(SIZE, f"{why}: {outcome}", fix, on="value")


RULE = Rule(
    code="DSG404",
    name="tensor-parallel-does-not-fit-gpus",
    severity=Severity.ERROR,
    what="The number of GPUs is no multiple of autotp_size.",
    why=(
        "The GPUs form groups of autotp_size. With fewer GPUs than that the start ends in a bare AssertionError; with "
        "a remainder the ranks outside every group die and the others wait for them."
    ),
    example='{"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"autotp_size": 4}}',
    instead='{"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"autotp_size": 3}}',
    evidence=(
        "deepspeed/utils/groups.py (0.19.8): _init_tp_mesh_device",
        "probes TP_gt_world_w2, TP_nondiv_w3",
    ),
    check=check,
    given={"world_size": 6},
    since="0.16.4",
)
