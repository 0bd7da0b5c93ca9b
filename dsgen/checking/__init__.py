"""A scenario against what is committed beside it: is the config what is rendered, clean, and does it fit and start."""

from __future__ import annotations

from dsgen.checking.checks import Checked, check, committed, linted, memory, rendered, tear, update
from dsgen.checking.pairs import DEEPSPEED, ENDINGS, Pair, is_named, pair, pairs

__all__ = [
    "DEEPSPEED",
    "ENDINGS",
    "Checked",
    "Pair",
    "check",
    "committed",
    "is_named",
    "linted",
    "memory",
    "pair",
    "pairs",
    "rendered",
    "tear",
    "update",
]
