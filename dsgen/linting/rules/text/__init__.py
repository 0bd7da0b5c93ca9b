"""Rules about the text of a file: whether it can be read at all, and as what."""

from __future__ import annotations

from dsgen.linting.rules.rule import Rules

__all__ = ["RULES"]

RULES = Rules(
    __name__,
    "broken_syntax",
    "empty_file",
    "not_a_map",
    "duplicate_key",
    "too_deep",
    "not_utf8",
    "too_large",
    "unreadable_file",
    "number_too_large",
    "byte_order_mark",
    "not_strict_json",
    "not_a_number",
    "template_placeholder",
    "python_literal",
    "text_runs_on",
    "yaml_not_read",
)
