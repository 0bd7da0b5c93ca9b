"""Rules about keys one by one: what a release reads, what it takes for a value, what has an effect."""

from __future__ import annotations

from dsgen.linting.rules.keys import (
    coerced_value,
    deprecated_key,
    key_has_no_effect,
    key_too_new,
    rejected_key,
    rejected_value,
    removed_key,
    section_is_no_map,
    switch_missing,
    two_names,
    unread_key,
)
from dsgen.linting.rules.rule import Rule

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    rejected_key.RULE,
    unread_key.RULE,
    removed_key.RULE,
    deprecated_key.RULE,
    key_has_no_effect.RULE,
    switch_missing.RULE,
    rejected_value.RULE,
    coerced_value.RULE,
    section_is_no_map.RULE,
    two_names.RULE,
    key_too_new.RULE,
)
