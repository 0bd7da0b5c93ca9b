"""Rules about the three batch sizes and the number of GPUs."""

from __future__ import annotations

from dsgen.linting.rules.batch import (
    batch_fixes_gpu_count,
    batch_mismatches_gpus,
    batch_never_adds_up,
    batch_not_positive,
    batch_size_missing,
)
from dsgen.linting.rules.rule import Rule

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    batch_size_missing.RULE,
    batch_not_positive.RULE,
    batch_never_adds_up.RULE,
    batch_mismatches_gpus.RULE,
    batch_fixes_gpu_count.RULE,
)
