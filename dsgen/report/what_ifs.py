"""The best plan for each value of a field, as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from dsgen.asking.plan_questions.what_ifs import Case, Turn, WhatIf, told
from dsgen.report import costs
from dsgen.report.bars import machine_words, rounded
from dsgen.report.memory import wrapped
from dsgen.report.plan import candidate_data, job_data
from dsgen.shapes.units import gib

__all__ = ["data", "text"]

NARROWEST = 60  # columns; a narrower terminal wraps the lines itself
_NUMBERS = 42  # columns of the five numbers behind a value
_LEAST_VALUE, _MOST_VALUE = 8, 24  # columns of a value
_BESIDE = 40  # least room in which a strategy is readable beside its numbers; else it goes below


def text(answer: WhatIf, width: int = 80) -> str:
    """The table for a person, with a final newline.

    Args:
        answer: The plans.
        width: Columns of the terminal.
    """
    width = max(width, NARROWEST)
    first = next(case.plan.job for case in answer.cases if case.plan is not None)
    column = max(_LEAST_VALUE, len(answer.field), *(len(told(case.value)) for case in answer.cases))
    column = min(column, _MOST_VALUE)
    beside = width - column - _NUMBERS - 2 >= _BESIDE
    model = first.names.get("model", "model") if answer.field != "model" else "a model"
    where = machine_words(first) if answer.field not in ("hw", "gpu_memory") else "some hardware"
    head = f"{'tok/s/GPU':>9} {'all GPUs':>10} {'a step':>9} {'GPU GiB':>7} {'comm':>4}"
    lines = [
        *wrapped(f"{model} on {where}: the best plan for each {answer.field}", width),
        "",
        f"{answer.field:<{column}} {head}{'  strategy' if beside else ''}",
    ]
    for case in answer.cases:
        lines += _row(case, column, width, beside)
    lines += ["", *_turns(answer, width)]
    return "\n".join(lines) + "\n"


def _row(case: Case, column: int, width: int, beside: bool) -> Iterator[str]:
    value = told(case.value)
    shown = value if len(value) <= column else f"{value[: column - 1]}…"
    if case.plan is None:
        lead = f"{shown:<{column}} "
        yield from textwrap.wrap(case.refused, width, initial_indent=lead, subsequent_indent=" " * len(lead))
        return
    chosen = case.plan.chosen
    numbers = (
        f"{rounded(chosen.speed):>9} {rounded(chosen.speed * case.plan.job.world):>10} "
        f"{costs.seconds_text(chosen.cost.seconds):>9} {gib(chosen.memory.gpu.needed_bytes):>7} "
        f"{chosen.cost.communication_share:>4.0%}"
    )
    row = f"{shown:<{column}} {numbers}"
    if beside:
        first, *rest = textwrap.wrap(str(chosen.strategy), width - len(row) - 2)
        yield f"{row}  {first}"
        yield from (f"{'':<{len(row)}}  {line}" for line in rest)
    else:
        yield row
        yield from textwrap.wrap(str(chosen.strategy), width, initial_indent="     ", subsequent_indent="     ")


def _turns(answer: WhatIf, width: int) -> Iterator[str]:
    if not answer.turns:
        yield from wrapped(_unchanged(answer), width)
        return
    yield "where the winner changes"
    for turn in answer.turns:
        yield from _indented(_turn(turn), width)
    for one in answer.by_bandwidth:
        yield from wrapped(f"by bandwidth alone, from {one.first} to {one.last} and else as {one.network}", width)
        if not one.turns:
            yield from _indented("no change: latency or fabric make it", width)
        for turn in one.turns:
            yield from _indented(_turn(turn), width)


def _unchanged(answer: WhatIf) -> str:
    """That the winner does not change, or not between two values that are neighbours."""
    winners = list(dict.fromkeys(case.winner for case in answer.cases if case.plan is not None))
    if len(winners) > 1:
        return "where the winner changes lies a value that has no plan"
    where = "these values" if all(case.plan is not None for case in answer.cases) else "these values that has a plan"
    return f"the choice does not change: {winners[0]} wins at each of {where}"


def _indented(words: str, width: int) -> list[str]:
    return textwrap.wrap(words, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _turn(turn: Turn) -> str:
    return f"between {turn.last} and {turn.first}: {turn.before} -> {turn.after}"


def data(answer: WhatIf) -> dict[str, Any]:
    """The table as plain JSON types; bytes and seconds throughout."""
    return {
        "field": answer.field,
        "cases": [_case(case) for case in answer.cases],
        "turns": [turn._asdict() for turn in answer.turns],
        "by_bandwidth": [
            {**one._asdict(), "turns": [turn._asdict() for turn in one.turns]} for one in answer.by_bandwidth
        ],
        "warnings": list(answer.warnings),
    }


def _case(case: Case) -> dict[str, Any]:
    if case.plan is None:
        return {"value": case.value, "refused": case.refused}
    return {
        "value": case.value,
        "refused": None,
        "job": job_data(case.plan.job),
        "reason": case.plan.reason,
        "chosen": candidate_data(case.plan.chosen),
        "warnings": list(case.plan.warnings),
    }
