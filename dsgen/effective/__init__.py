"""A config as the installed DeepSpeed takes it: what it refuses, and what survives of every key."""

from __future__ import annotations

from dsgen.effective.loading import load, load_many
from dsgen.effective.outcomes import Answers, Effective, Refusal, WrittenKey

__all__ = ["Answers", "Effective", "Refusal", "WrittenKey", "load", "load_many"]
