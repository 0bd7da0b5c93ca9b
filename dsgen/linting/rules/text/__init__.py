"""Rules about the text of a file: whether it can be read at all, and as what."""

from __future__ import annotations

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.text import (
    broken_syntax,
    byte_order_mark,
    duplicate_key,
    empty_file,
    not_a_map,
    not_a_number,
    not_strict_json,
    not_utf8,
    number_too_large,
    python_literal,
    template_placeholder,
    text_runs_on,
    too_deep,
    too_large,
    unreadable_file,
    yaml_not_read,
)

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    broken_syntax.RULE,
    empty_file.RULE,
    not_a_map.RULE,
    duplicate_key.RULE,
    too_deep.RULE,
    not_utf8.RULE,
    too_large.RULE,
    unreadable_file.RULE,
    number_too_large.RULE,
    byte_order_mark.RULE,
    not_strict_json.RULE,
    not_a_number.RULE,
    template_placeholder.RULE,
    python_literal.RULE,
    text_runs_on.RULE,
    yaml_not_read.RULE,
)
