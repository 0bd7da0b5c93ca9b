"""Curriculum learning without the metrics it is to follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_SECTION = "data_efficiency.data_sampling.curriculum_learning"


def check(subject: Subject) -> Iterator[Fault]:
    """enabled without curriculum_metrics; whether the sections around it are on does not matter."""
    section = subject.raw(_SECTION)
    if isinstance(section, Mapping) and section.get("enabled") and "curriculum_metrics" not in section:
        message = (
            f"{_SECTION} is enabled without curriculum_metrics, and DeepSpeed stops at the parse; name the metrics "
            f"that say how hard a sample is"
        )
        if subject.raw("data_efficiency.enabled") is not True:
            message += ". It asks even though data_efficiency.enabled is not true"
        yield Fault(f"{_SECTION}.curriculum_metrics", message)


RULE = Rule(
    code="DSG704",
    name="curriculum-without-metrics",
    severity=Severity.ERROR,
    what="Curriculum learning is enabled and curriculum_metrics is missing.",
    why=(
        "The parse asserts the key whenever `curriculum_learning.enabled` is true, whether data_efficiency and "
        "data_sampling are enabled or not."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "data_efficiency": {
    "enabled": true, "data_sampling": {"enabled": true, "curriculum_learning": {"enabled": true}}
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "data_efficiency": {
    "enabled": true,
    "data_sampling": {"enabled": true, "curriculum_learning": {"enabled": true, "curriculum_metrics": {"seqlen": {}}}}
  }
}""",
    evidence=("deepspeed/runtime/data_pipeline/config.py (0.19.8), get_curriculum_learning",),
    check=check,
)
