"""Dynamic batching without the number of tokens of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["RULE", "check"]

_SECTION = "data_efficiency.data_sampling.dynamic_batching"


def check(subject: Subject) -> Iterator[Fault]:
    """enabled without max_tokens; whether the sections around it are on does not matter."""
    section = subject.raw(_SECTION)
    if subject.surface.key(_SECTION) is None or not isinstance(section, Mapping) or not section.get("enabled"):
        return
    if "max_tokens" not in section:
        message = f"{_SECTION} is enabled without max_tokens, and DeepSpeed stops at the parse"
        yield Fault(f"{_SECTION}.max_tokens", message)


RULE = Rule(
    code="DSG705",
    name="dynamic-batching-without-max-tokens",
    severity=Severity.ERROR,
    what="Dynamic batching is enabled and max_tokens is missing.",
    why="Batches are filled up to `max_tokens`, and the parse asserts that it is there.",
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "data_efficiency": {
    "enabled": true, "data_sampling": {"enabled": true, "dynamic_batching": {"enabled": true}}
  }
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "data_efficiency": {
    "enabled": true,
    "data_sampling": {"enabled": true, "dynamic_batching": {"enabled": true, "max_tokens": 8192}}
  }
}""",
    evidence=("deepspeed/runtime/data_pipeline/config.py (0.19.8), get_dynamic_batching",),
    check=check,
)
