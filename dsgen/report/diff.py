"""A comparison as text: one block a key, the reason below each side."""

from __future__ import annotations

import textwrap
from typing import Any

from dsgen.asking.comparisons import Comparison, Difference
from dsgen.report.summary import headline
from dsgen.shapes.layers import show

__all__ = ["data", "text"]

WIDTH = 80


def text(comparison: Comparison) -> str:
    """The comparison for a person, with a final newline."""
    lines = [
        _side("-", comparison.first.name, comparison.first.config),
        _side("+", comparison.second.name, comparison.second.config),
    ]
    for item in comparison.differences:
        lines.append(item.path)
        lines.extend(_value("-", item.first, item, "first", item.reasons[0]))
        lines.extend(_value("+", item.second, item, "second", item.reasons[1]))
    for item in comparison.written_out:
        side = comparison.second if item.missing == "first" else comparison.first
        lines.extend(
            textwrap.wrap(
                f"same: {item.path} is {show(item.first)}, DeepSpeed's default, which only {side.name} writes out",
                WIDTH,
                subsequent_indent="  ",
                break_long_words=False,
            )
        )
    if any(comparison.programs):
        lines.append("what the program must do")
        lines.extend(f"  - {words}" for words in comparison.programs[0])
        lines.extend(f"  + {words}" for words in comparison.programs[1])
    total = len(comparison.differences)
    lines.append(
        f"{total or 'no'} key{'s' if total != 1 else ''} differ{'s' if total == 1 else ''}"
        if comparison.differ
        else "no difference"
    )
    return "\n".join(lines) + "\n"


def data(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain JSON types."""
    return {
        "first": comparison.first.name,
        "second": comparison.second.name,
        "differences": [_difference(item) for item in comparison.differences],
        "written_out_defaults": [_difference(item) for item in comparison.written_out],
        "programs": dict(zip(("first", "second"), map(list, comparison.programs), strict=True)),
    }


def _difference(item: Difference) -> dict[str, Any]:
    return {
        "path": item.path,
        "first": item.first,
        "second": item.second,
        "missing": item.missing or None,
        "reasons": list(item.reasons),
    }


def _side(sign: str, name: str, config: Any) -> str:
    return f"{sign} {name}" + (f": {headline(config)}" if config is not None else "")


def _value(sign: str, value: Any, item: Difference, side: str, reason: str) -> list[str]:
    default = f"; DeepSpeed's default is {show(value)}" if item.known else ", and DeepSpeed reads no such key"
    shown = f"  {sign} {f'not written{default}' if item.missing == side else show(value)}"
    wrapped = textwrap.wrap(reason, WIDTH - 6, break_long_words=False) if reason else []
    return [shown, *(f"      {line}" for line in wrapped)]
