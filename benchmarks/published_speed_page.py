"""docs/speed.md: the published speeds beside what dsgen says, by what they have in common, and the worst explained."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import published_speed_fits as fits  # benchmarks/, beside this script
import published_speed_overall as overall
from published_page import bullets, reasons_table, table
from published_sources import SOURCES
from published_speed_calibrated import calibrated_lines
from published_speed_cases import APART, COMPARED, LEFT_OUT, SpeedCase, without_fit
from published_speed_remarks import CAUSES, FITTED, HOW, MEANINGS
from published_speed_tables import (
    WORST,
    Cases,
    agreements,
    figures,
    grouped,
    order_tables,
    parted,
    regret_tables,
    size,
    table_of_rows,
)

__all__ = ["page", "summary"]


def page(cases: Cases) -> str:
    """The whole page."""
    compared, apart = _of(cases, COMPARED), _of(cases, APART)
    left = _of(cases, LEFT_OUT)
    seen, _ = parted(compared)
    lines = [
        "# How far the speed model agrees with published measurements",
        "",
        f"Others measured {len(cases):,} training runs and published them. The speed of {len(compared)} is compared",
        f"with what dsgen says of the same job and strategy; {len(apart)} more ran with something that dsgen has no",
        f"word for, and are shown apart; {len(left)} are not compared, each for a reason. published.json and",
        "published_2.json in benchmarks/data/ have the records with their sources; `nox -s published` writes this",
        "page.",
        "",
        "An error is dsgen's tokens/s/GPU less the measured ones, of the measured ones: above 0, dsgen says faster.",
        "The interval is the one that is printed beside a speed. A third of the rows, chosen by a hash of their names,",
        "is held back: of those there are only sums here, so that a change made while looking at the others can be",
        "judged by them. End-to-end rows are a test of the model and not what its constants are fitted on.",
        "",
        *summary(cases),
        "",
        "## What is fitted",
        "",
        "All else are facts of kernels, links and hosts ([Kernels](kernels.md)) and DeepSpeed's order of work.",
        "",
        *bullets(_fitted(compared)),
        "",
        "### Without a source",
        "",
        *fits.lines(compared),
        "",
        *overall.lines(compared),
        "",
        *grouped(compared),
        "## In the measured order",
        "",
        "Two runs of one source that differ in one thing alone, and by more than 5 % in measured speed, make a pair.",
        "",
        *order_tables([*compared, *apart]),
        "",
        "## What dsgen's choice costs",
        "",
        "Wherever a source measured several strategies of one job, dsgen would take the one that it says is fastest.",
        "Its regret is how much longer that one takes than the one that was measured to be the fastest. A strategy is",
        "stage, offload, tensor parallelism, checkpointing and micro-batch; the sequences of a step may differ in",
        "number. The rows that are shown apart are among them: they differ from dsgen's words all alike.",
        "",
        *regret_tables([*compared, *apart]),
        "",
        *calibrated_lines(compared),
        "",
        "## The worst",
        "",
        *table_of_rows(sorted(seen, key=size, reverse=True)[:WORST]),
        "",
        "Where the largest errors come from, as far as the sources show it:",
        "",
        *bullets(CAUSES),
        "",
        "## What a speed means",
        "",
        *_meanings(cases),
        "",
        "## How a run becomes a question",
        "",
        *bullets(HOW),
        "",
        "## Shown apart",
        "",
        *agreements("what dsgen has no word for", apart, lambda case: case.reason),
        "",
        "## Every row that may be looked at",
        "",
        "Worst first in each source. The grade is that of the record: A is exact, C rests on guesses. The last column",
        "has the largest parts of dsgen's step, in percent of it.",
        "",
        *_every_row(seen),
        "## What is not compared",
        "",
        *reasons_table(left),
        "",
    ]
    return "\n".join(lines)


def summary(cases: Cases) -> list[str]:
    """The rows in all, those of DeepSpeed, and those that are held back."""
    compared = _of(cases, COMPARED)
    deepspeed = [case for case in compared if case.system == "deepspeed"]
    groups = {
        "all": compared,
        "all that may be looked at": [case for case in compared if not case.held_back],
        "all that are held back": [case for case in compared if case.held_back],
        "DeepSpeed": deepspeed,
        "DeepSpeed, may be looked at": [case for case in deepspeed if not case.held_back],
        "DeepSpeed, held back": [case for case in deepspeed if case.held_back],
        "grade A and B": [case for case in compared if case.grade != "C"],
        "shown apart": _of(cases, APART),
    }
    head = ("", "rows", "median error", "median absolute error", "in the interval")
    return table(head, [(title, *figures(those)) for title, those in groups.items()])


def _fitted(compared: Cases) -> list[str]:
    """The sentences on what is fitted, with the errors of rows that a figure was not fitted on."""
    own = [case for case in compared if case.source == "qwen"]
    others = [case for case in compared if case.setup["stage"] == 3 and case.source != "dsaz"]
    errors = {"host": _error(without_fit(case) for case in own), "own": _error(case.error for case in own),
              "others": _error(case.error for case in others)}  # fmt: skip
    return [sentence.format(**errors) for sentence in FITTED]


def _error(errors: Iterable[float]) -> float:
    """Median absolute error, in percent."""
    return 100 * median(abs(error) for error in errors)


def _of(cases: Cases, kind: str) -> list[SpeedCase]:
    return [case for case in cases if case.kind == kind]


def _meanings(cases: Cases) -> list[str]:
    used = {case.source for case in cases if case.kind != LEFT_OUT}
    rows = [(source.title, MEANINGS[prefix]) for prefix, source in SOURCES.items() if prefix in used]
    return table(("source", "its speed"), rows)


def _every_row(seen: Cases) -> list[str]:
    lines: list[str] = []
    for prefix, source in SOURCES.items():
        those = sorted((case for case in seen if case.source == prefix), key=size, reverse=True)
        if those:
            lines += [f"### {source.title}", "", *table_of_rows(those), ""]
    return lines
