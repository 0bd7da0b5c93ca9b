"""Strategies side by side, as text and as JSON: time by parts, memory, verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dsgen.asking.plan_questions.contests import PLANNED, Contest, Contestant
from dsgen.memory import Place
from dsgen.planning.candidates import Candidate
from dsgen.report import costs
from dsgen.report.bars import batch_words, rounded
from dsgen.report.memory import wrapped
from dsgen.report.plan import candidate_data, job_data, job_line
from dsgen.shapes.units import gib

__all__ = ["data", "text"]

NARROWEST = 60  # columns; a narrower terminal wraps the lines itself
_LABEL = 22  # columns before the first strategy: "tensor parallelism" and a little
_LEAST_COLUMN = 14  # of a strategy: "does not fit" and a gap
_GAP = 2  # columns between strategies
_LEAST = 0.0005  # share of the longest step below which a part is not worth a row
_EMPTY = "-"


def text(answer: Contest, width: int = 80) -> str:
    """The comparison for a person, with a final newline.

    Args:
        answer: The strategies.
        width: Columns of the terminal.
    """
    width = max(width, NARROWEST)
    lines = [*wrapped(job_line(answer.job), width), ""]
    for one in answer.contestants:
        lines += wrapped(f"{one.name}: {_words(one)}", width)
        lines += [line for note in one.notes for line in wrapped(f"  note: {note}", width)]
    running = [one for one in answer.contestants if one.candidate is not None]
    words = [word for one in running for word in _head(one.name, 1)]
    column = max(_LEAST_COLUMN, _GAP + max(map(len, words), default=0))
    each = max(1, (width - _LABEL) // column)
    for start in range(0, len(running), each):
        lines += ["", *_block(answer, running[start : start + each], column)]
    lines += ["", *wrapped(_result(answer), width)]
    return "\n".join(lines) + "\n"


def _words(one: Contestant) -> str:
    if one.candidate is None:
        return f"cannot run: {one.refused}"
    chosen, world = one.candidate.strategy, one.candidate.job.world
    return f"{chosen} x {batch_words(chosen, world)}, {chosen.precision}"


def _block(answer: Contest, ones: Sequence[Contestant], column: int) -> Iterator[str]:
    """So many strategies as have room beside each other, a column each."""
    heads = [_head(one.name, column - _GAP) for one in ones]
    for line in range(max(map(len, heads))):
        yield _row("", [head[line] if line < len(head) else "" for head in heads], column)
    items = [one.candidate for one in ones if one.candidate is not None]
    yield _row("tokens/s/GPU", [rounded(item.speed) for item in items], column)
    yield _row("  interval", [_between(*costs.speed_interval(item), rounded) for item in items], column)
    yield _row("beside the fastest", [_beside(answer, one) for one in ones], column)
    yield _row("seconds of a step", [costs.seconds_text(item.cost.seconds) for item in items], column)
    for name in _parts(items):
        spent = [item.cost.parts.get(name, 0.0) for item in items]
        yield _row(f"  {name}", [costs.seconds_text(seconds) if seconds else _EMPTY for seconds in spent], column)
    yield _row("sequences a step", [f"{item.strategy.global_batch:,}" for item in items], column)
    for label, place in (("GPU", "gpu"), ("host", "host"), ("NVMe", "nvme")):
        places: list[Place] = [getattr(item.memory, place) for item in items]
        if any(one.peak_bytes for one in places):
            yield _row(f"{label} GiB", [f"{gib(one.needed_bytes)}/{gib(one.limit_bytes)}" for one in places], column)
            between = [_between(one.least_bytes, one.high_bytes, gib) for one in places]
            if any(between):
                yield _row("  interval", between, column)
    yield _row("verdict", [item.memory.verdict.value for item in items], column)


def _row(label: str, cells: Sequence[str], column: int) -> str:
    return f"{label:<{_LABEL}}{''.join(f'{cell:>{column}}' for cell in cells)}".rstrip()


def _head(name: str, width: int) -> list[str]:
    """A strategy's name in lines that break behind commas only."""
    return textwrap.wrap(name.replace(",", ", "), width, break_long_words=False, break_on_hyphens=False)


def _between(low: float, high: float, shown: Callable[[float], str]) -> str:
    """An interval; nothing where it is one number."""
    return f"{shown(low)}-{shown(high)}" if shown(low) != shown(high) else ""


def _parts(items: Sequence[Candidate]) -> Iterator[str]:
    """The parts of the steps that are worth a row, those that take most first."""
    most: dict[str, float] = {}
    for item in items:
        for name, seconds in item.cost.parts.items():
            most[name] = max(most.get(name, 0.0), seconds)
    least = _LEAST * max(item.cost.seconds for item in items)
    yield from sorted((name for name, seconds in most.items() if seconds >= least), key=lambda name: -most[name])


def _beside(answer: Contest, one: Contestant) -> str:
    fastest = answer.fastest
    if fastest is None or fastest.candidate is None or one.candidate is None or not one.fits:
        return _EMPTY
    if one is fastest:
        return "fastest"
    share = round(one.candidate.speed / fastest.candidate.speed - 1, 2)
    return f"{share:.0%}" if share else "as fast"


def _result(answer: Contest) -> str:
    """One sentence: the fastest that fits, and what a plan takes."""
    fastest = answer.fastest
    first = "none of them surely fits" if fastest is None else f"the fastest that fits: {fastest.name}"
    if not answer.planned:
        return f"{first}; the planner finds nothing that fits"
    own = next(one.candidate for one in answer.contestants if one.name == answer.planned and one.candidate is not None)
    if fastest is None or answer.planned != fastest.name:
        return f"{first}; the planner takes {own.strategy} ({answer.planned})"
    return f"{first}, the planner's own choice" if fastest.name == PLANNED else f"{first}, which the planner takes too"


def data(answer: Contest) -> dict[str, Any]:
    """The comparison as plain JSON types; bytes and seconds throughout."""
    return {
        "job": job_data(answer.job),
        "strategies": [
            {
                "name": one.name,
                "refused": one.refused or None,
                "notes": list(one.notes),
                **(candidate_data(one.candidate) if one.candidate is not None else {}),
            }
            for one in answer.contestants
        ],
        "fastest": answer.fastest.name if answer.fastest is not None else None,
        "planned": answer.planned or None,
        "verdict": answer.verdict.value,
    }
