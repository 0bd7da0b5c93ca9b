"""ZenFlow's update_interval in the place of gradient_accumulation_steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.batch_sizes import ACCUMULATION, TRAIN, whole
from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import refused
from dsgen.linting.subjects import OPEN, Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.zenflow"
_UPDATE = f"{_PATH}.update_interval"


def check(subject: Subject) -> Iterator[Fault]:
    """An update_interval that is "auto", or another than the accumulation, at stage 1, 2 or 3."""
    section = subject.raw(_PATH)
    if not isinstance(section, Mapping) or subject.stage == 0:
        return
    interval = section.get("update_interval", "auto")
    if why := refused(subject, "zenflow-without-interval"):
        given = whole(subject.value(ACCUMULATION))
        steps = given if given and given > 0 else 1
        yield Fault(_UPDATE, why, Fix(f"write {steps}", (Assign(_UPDATE, steps),), safe=False))
        return
    accumulation, wanted = subject.value(ACCUMULATION), whole(interval)
    given = 1 if accumulation is None else whole(accumulation)
    if accumulation is OPEN or wanted is None or given is None or wanted == given:
        return
    fix = None
    if subject.raw(TRAIN) is None:
        fix = Fix(f"write {ACCUMULATION}: {wanted}, which it does", (Assign(ACCUMULATION, wanted),))
    message = f"ZenFlow replaces {ACCUMULATION} {given} by its update_interval {wanted}; train_batch_size then is wrong"
    yield Fault(ACCUMULATION, message, fix)


RULE = Rule(
    code="DSG343",
    name="zenflow-accumulation",
    severity=Severity.WARNING,
    what="ZenFlow accumulates over its update_interval, not over gradient_accumulation_steps.",
    why=(
        "The engine overwrites gradient_accumulation_steps by update_interval after the batch sizes have been "
        'computed, so the batch is another than reported. With "auto", the default, it becomes 0, and the loss is '
        "divided by it: NaN from the second step in a run on two CPU ranks."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "zenflow": {}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 4,
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {"select_strategy": "step", "select_interval": 8, "update_interval": 4}
  }
}""",
    evidence=(
        "deepspeed/runtime/zenflow/engine.py (0.19.8): configure_zenflow, last line",
        "probes ZF_z2_default_steps, ZF_gas_overwritten, ZF_z2_step",
    ),
    check=check,
    since="0.17.5",
)
