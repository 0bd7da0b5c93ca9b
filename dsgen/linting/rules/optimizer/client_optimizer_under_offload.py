"""An optimizer of the program's own under offload_optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.setups import refused
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]


def check(subject: Subject) -> Iterator[Fault]:
    """The offload, where the program's optimizer is torch's."""
    if why := refused(subject, "own-optimizer-offloaded"):
        fix = Fix("write false", (Assign("zero_force_ds_cpu_optimizer", False),), safe=False)
        yield Fault("zero_optimization.offload_optimizer", why, fix)


RULE = Rule(
    code="DSG525",
    name="client-optimizer-under-offload",
    severity=Severity.ERROR,
    what=(
        "The program passes a torch optimizer, offload_optimizer is on, and zero_force_ds_cpu_optimizer is true, "
        "as by default."
    ),
    why=(
        "deepspeed.initialize stops: a torch optimizer updates offloaded states slowly. The ways out are "
        "DeepSpeedCPUAdam, an optimizer in the config, or zero_force_ds_cpu_optimizer false."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
  "zero_force_ds_cpu_optimizer": false
}""",
    evidence=(
        "deepspeed/runtime/engine.py (0.19.8): _configure_optimizer",
        "probes O_client_opt_off, O_client_opt_off_force",
    ),
    check=check,
    given={"client_optimizer": "torch"},
)
