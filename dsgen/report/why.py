"""The answer to `why`: the winner first, the losers below it, the reason beside each."""

from __future__ import annotations

import textwrap
from typing import Any

from dsgen.asking.questions import Answer, OtherValue
from dsgen.report.costs import differences
from dsgen.shapes.layers import Override, show
from dsgen.shapes.units import gib

__all__ = ["data", "text"]

WIDTH = 80  # columns; a reason that needs more goes on below
ORIGIN_WIDTH = 34  # columns: profiles/hardware/a100-40g.yaml:22 and a little more
SAME_BYTES = 50 * 2**20  # a change of the peak below this is none: it would print as 0.0 GiB
SAME_SPEED = 0.005


def text(answer: Answer) -> str:
    """The answer for a person."""
    if answer.children or (answer.value is None and not answer.overrides and not answer.default_of):
        return _section(answer)
    lines = [f"{answer.key} = {show(answer.value)}" if answer.value is not None else f"{answer.key} is not written"]
    if answer.dropped:
        lines.append(_wrap("left out: " + answer.dropped, 2))
    origins = [str(override.origin) for override in answer.overrides] + [answer.default_of]
    values = [show(override.value) for override in answer.overrides] + [show(answer.default)]
    left = min(ORIGIN_WIDTH, max(map(len, origins)))
    middle = min(24, max(map(len, values)))
    for position, override in enumerate(reversed(answer.overrides)):
        note = _note(override, lost=position > 0)
        lines.append(_row(str(override.origin), show(override.value), note, left, middle))
    if answer.default_of:
        lines.append(_row(answer.default_of, show(answer.default), "its default", left, middle))
    if answer.source:
        lines.append(_wrap(f"source: {answer.source}", 2))
    lines.append(_wrap(answer.description, 2))
    lines += [_wrap(words, 2) for words in (answer.planned, answer.calibration) if words]
    lines.extend(_alternative(other) for other in answer.alternatives)
    return "\n".join(lines) + "\n"


def _section(answer: Answer) -> str:
    """A section: every key below it with its value and reason."""
    lines = [answer.key, _wrap(answer.description, 2)]
    for child in answer.children:
        lines += [f"{child.path} = {show(child.value)}", _wrap(child.reason, 4)]
    return "\n".join(lines) + "\n"


def data(answer: Answer) -> dict[str, Any]:
    """The answer as plain JSON types."""
    return {
        "key": answer.key,
        "value": answer.value,
        "overrides": [
            {
                "value": item.value,
                "origin": str(item.origin),
                "rank": item.rank.name.lower(),
                "reason": item.reason,
                "won": item is answer.overrides[-1],
            }
            for item in answer.overrides
        ],
        "default": answer.default,
        "description": answer.description,
        "source": answer.source,
        "dropped": answer.dropped,
        "planned": answer.planned,
        "calibration": answer.calibration or None,
        "children": [{"key": child.path, "value": child.value, "reason": child.reason} for child in answer.children],
        "alternatives": [
            {
                "value": item.value,
                "strategy": item.strategy,
                "gpu_bytes": item.gpu_bytes,
                "speed": round(item.speed, 4),
                "seconds_more": dict(item.parts),
                "doubt": item.doubt or None,
                "refused": item.refused,
            }
            for item in answer.alternatives
        ],
    }


def _note(override: Override, lost: bool) -> str:
    reason = override.reason or ("deleted" if override.value is None else "")
    return f"lost: {reason}" if lost and reason else "lost" if lost else reason


def _row(origin: str, value: str, note: str, left: int, middle: int) -> str:
    if len(origin) > left:  # a long path has a line of its own
        return f"  {origin}\n{_row('', value, note, left, middle)}"
    head = f"  {origin:<{left}}  {value:<{middle}}"
    if not note:
        return head.rstrip()
    room = WIDTH - len(head) - 2
    if room < 24:  # too narrow beside: below, indented
        return f"{head}\n{_wrap(note, 6)}"
    first, *rest = textwrap.wrap(note, room) or [""]
    return "\n".join([f"{head}  {first}", *(" " * (len(head) + 2) + line for line in rest)])


def _wrap(words: str, indent: int) -> str:
    return textwrap.fill(
        words,
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _alternative(other: OtherValue) -> str:
    if other.refused:
        refused = other.refused.replace("fits nowhere on", "does not fit on")  # with this value
        return _wrap(f"If it were {show(other.value)}: {refused}", 0)
    memory = (
        "GPU as now"
        if abs(other.gpu_bytes) < SAME_BYTES
        else (f"GPU {'+' if other.gpu_bytes > 0 else '-'}{gib(abs(other.gpu_bytes))} GiB")
    )
    change = other.speed - 1
    speed = "as fast" if abs(change) < SAME_SPEED else f"about {abs(change):.0%} {'faster' if change > 0 else 'slower'}"
    why = differences(other.parts, other.seconds)
    doubt = f"; it {other.doubt}" if other.doubt else ""
    told = f"{other.strategy}; {memory}, {speed}{': ' if why else ''}{why}{doubt}"
    return _wrap(f"If it were {show(other.value)}: {told}.", 0)
