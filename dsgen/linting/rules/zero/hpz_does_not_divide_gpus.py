"""A size of hpZ groups that does not fit the number of GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.batch_sizes import whole
from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.zero_hpz_partition_size"


def check(subject: Subject) -> Iterator[Fault]:
    """A group size above 1 at stage 3 that does not divide the number of GPUs, or exceeds it."""
    size, world = whole(subject.value(_PATH)), subject.facts.world_size
    if size is None or not world:
        return
    if why := refused(subject, "hpz-above-gpus"):
        fix = Fix("write 1, which is off", (Assign(_PATH, 1),), safe=False)
        yield Fault(_PATH, why, fix, Severity.WARNING, on="value")
    elif why := refused(subject, "hpz-and-gpus"):
        best = max(part for part in range(1, size) if world % part == 0)
        yield Fault(_PATH, why, Fix(f"write {best}", (Assign(_PATH, best),), safe=False), on="value")


RULE = Rule(
    code="DSG320",
    name="hpz-does-not-divide-gpus",
    severity=Severity.ERROR,
    what="The number of GPUs is no multiple of the hpZ group.",
    why=(
        "hpZ keeps a second copy of the parameters in every group of so many GPUs, best those of one node, so that "
        "the backward pass gathers inside the group. `AssertionError: 12 is not divisible by 8` when the groups do "
        "not come out even; a group larger than all GPUs is cut down without a word."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}
}""",
    evidence=(
        "deepspeed/utils/groups.py (0.19.8): _create_zero_param_parallel_group",
        "probes ZPP_hpz2_z3_w3, ZPP_hpz8_gt_world",
    ),
    check=check,
    shows=(r"\d is not divisible by \d",),
    given={"world_size": 12},
)
