"""Rules about keys one by one: what a release reads, what it takes for a value, what has an effect."""

from __future__ import annotations

from dsgen.linting.rules.rule import Rules

__all__ = ["RULES"]

RULES = Rules(
    __name__,
    "rejected_key",
    "unread_key",
    "removed_key",
    "deprecated_key",
    "key_has_no_effect",
    "switch_missing",
    "rejected_value",
    "coerced_value",
    "section_is_no_map",
    "two_names",
    "key_too_new",
    "dotted_key",
    "number_beyond_64_bits",
)
