"""Rules about the three batch sizes and the number of GPUs."""

from __future__ import annotations

from dsgen.linting.rules.rule import Rules

__all__ = ["RULES"]

RULES = Rules(
    __name__,
    "batch_size_missing",
    "batch_not_positive",
    "batch_never_adds_up",
    "batch_mismatches_gpus",
    "batch_fixes_gpu_count",
    "accumulation_fraction",
)
