"""Every rule, in the order of its code."""

from __future__ import annotations

from dsgen.linting.rules import (
    batch,
    hardware,
    keys,
    launch,
    optimizer,
    parallel,
    precision,
    program,
    scheduler,
    sections,
    text,
    zero,
)
from dsgen.linting.rules.rule import Rule

__all__ = ["RULES", "Rule"]

RULES: tuple[Rule, ...] = (
    *text.RULES,
    *keys.RULES,
    *batch.RULES,
    *zero.RULES,
    *parallel.RULES,
    *optimizer.RULES,
    *scheduler.RULES,
    *precision.RULES,
    *sections.RULES,
    *hardware.RULES,
    *program.RULES,
    *launch.RULES,
)
