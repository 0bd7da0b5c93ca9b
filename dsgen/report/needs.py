"""What a program must do, as a checklist with its code, or as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dsgen.planning.assumptions import needed, own_optimizer
from dsgen.planning.planner import Plan

if TYPE_CHECKING:
    from dsgen.frameworks.needs import Need  # a plan and its summary need nothing of frameworks

__all__ = ["as_json", "data", "joined", "sentence", "text"]

WIDTH = 80  # columns
_BOX, _CODE = "    ", "        "  # below a box, and of code


def sentence(plan: Plan) -> str:
    """What a program must do for a plan, in one sentence: plan, render and launch say the same."""
    return f"your program needs {joined([item['what'] for item in data(plan)])}; the code: dsgen needs"


def data(plan: Plan) -> list[dict[str, str]]:
    """The same as plain JSON types."""
    told = [{"code": item.code, "what": item.words} for item in needed(plan)]
    own = own_optimizer(plan.job)
    return told + ([{"code": "start", "what": own}] if own else [])


def joined(words: Sequence[str]) -> str:
    """Words as a list in a sentence: a, b and c."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def text(needs: tuple[Need, ...], target: str) -> str:
    """The checklist, words broken at 80 columns and code as it is, with a final newline."""
    lines = []
    for number, item in enumerate(needs, 1):
        lines += _wrapped(f"[ ] {number} {item.words}", _BOX)
        lines += _wrapped(f"{_BOX}else: {item.otherwise}", _BOX)
        if item.install:
            lines.append(f"{_BOX}{item.install}")
        lines += [f"{_CODE}{line}".rstrip() for line in item.snippet.splitlines()]
    lines += _wrapped(f"{len(needs)} things; dsgen render --target {target} -o ds_config.json writes the files", "  ")
    return "\n".join(lines) + "\n"


def _wrapped(line: str, indent: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def as_json(needs: tuple[Need, ...], target: str) -> str:
    """The same for programs."""
    told = [
        {
            "code": item.code,
            "what": item.words,
            "else": item.otherwise,
            "snippet": item.snippet,
            "install": item.install,
        }
        for item in needs
    ]
    return json.dumps({"target": target, "needs": told}, indent=2, ensure_ascii=False) + "\n"
