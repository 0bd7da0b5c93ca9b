"""A monitor that needs a package which DeepSpeed does not install."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "comet": "comet_ml"}


def check(subject: Subject) -> Iterator[Fault]:
    """Every monitor that is switched on."""
    for section, package in _PACKAGES.items():
        if not subject.on(section):
            continue
        missing = package in subject.facts.missing
        has = "this machine does not have it" if missing else "DeepSpeed does not install it"
        yield Fault(
            f"{section}.enabled",
            f"{section} needs the package {package}, and {has}: without it deepspeed.initialize stops with a "
            f"ModuleNotFoundError",
            Fix(f"switch {section} off", (Assign(f"{section}.enabled", False),), safe=False) if missing else None,
            Severity.ERROR if missing else None,
        )


RULE = Rule(
    code="DSG707",
    name="monitor-package",
    severity=Severity.INFO,
    what="A monitor is on whose Python package DeepSpeed does not bring.",
    why=(
        "tensorboard, wandb and comet_ml are imported when the engine is made. It is an error where the package "
        "is known to be missing."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "tensorboard": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "csv_monitor": {"enabled": true, "output_path": "logs"}
}""",
    evidence=("deepspeed/monitor/utils.py (0.19.8)",),
    check=check,
)
