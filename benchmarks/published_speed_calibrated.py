"""How much one measured run tells of another on its machine: every pair of published runs of one source.

`dsgen calibrate` takes one run's measured step by the computed one for all steps of its machine. Of two runs of a
source with one GPU, program, kernels and base, each is taken for the measurement that the other is predicted with. The
bounds were chosen on rows that may be looked at; rows that are held back judge them.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs
from published_speed_cases import STRATEGY  # benchmarks/, beside this script

from dsgen.cost.steps import HIGH_ALIKE, HIGH_MEASURED, LOW_ALIKE, LOW_MEASURED

__all__ = ["ALIKE", "MACHINE", "Foretold", "calibrated_lines", "foretold"]

# Of a setup what two runs must share to be of one machine and program, and what besides to be of one run but for its
# strategy and length.
MACHINE = ("group", "GPU", "kernels", "attention", "base")
ALIKE = (*MACHINE, "model", "GPUs")
# What tells two runs apart that are worth predicting from each other: runs that share all of it are one run twice.
_DIFFERING = (*STRATEGY, "length", "model", "GPUs", "method")


class Row(Protocol):
    """What is asked of a case."""

    source: str
    setup: Mapping[str, Any]
    measured: float

    @property
    def speed(self) -> float:
        """Tokens/s/GPU as dsgen says."""

    @property
    def within(self) -> bool:
        """Whether the measured speed lies in the interval without a measurement."""

    @property
    def held_back(self) -> bool:
        """Whether the row is kept from whoever chooses bounds."""


@attrs.frozen
class Foretold:
    """What runs are predicted like from others of their machine; each run counts once, whatever its others are.

    Attributes:
        runs: How many have another to be predicted from.
        inside: Share in the bounds.
        error: Median absolute error.
        alone_inside: Share in the interval without a measurement.
        alone_error: Median absolute error without one.
    """

    runs: int
    inside: float
    error: float
    alone_inside: float
    alone_error: float


def foretold(cases: Sequence[Row], same: Sequence[str], low: float, high: float, held_back: bool) -> Foretold | None:
    """How runs are predicted from others that share some facts; None where there are none.

    Args:
        cases: Compared cases.
        same: Facts of a setup that both share.
        low, high: Bounds of a measured speed by the one that is said.
        held_back: Of rows that are held back, predicted from all; else of the others, from the others alone.
    """
    groups: dict[tuple[Any, ...], list[Row]] = collections.defaultdict(list)
    for case in cases:
        groups[(case.source, *(case.setup[fact] for fact in same))].append(case)
    inside, errors, alone = [], [], []
    for group in groups.values():
        for case in group:
            if case.held_back is not held_back:
                continue
            others = list(_others(case, group if held_back else [one for one in group if not one.held_back]))
            if not others:
                continue
            ratios = [case.measured / case.speed * one.speed / one.measured for one in others]
            inside.append(sum(low <= ratio <= high for ratio in ratios) / len(ratios))
            errors.append(statistics.median(abs(ratio - 1) for ratio in ratios))
            alone.append(case)
    if not inside:
        return None
    return Foretold(
        len(inside),
        statistics.mean(inside),
        statistics.median(errors),
        statistics.mean(case.within for case in alone),
        statistics.median(abs(case.measured / case.speed - 1) for case in alone),
    )


def _others(case: Row, group: Iterable[Row]) -> Iterator[Row]:
    for one in group:
        if one is not case and any(one.setup[fact] != case.setup[fact] for fact in _DIFFERING):
            yield one


def calibrated_lines(cases: Sequence[Row]) -> list[str]:
    """The section of docs/speed.md, in Markdown."""
    lines = [
        "## When a machine was measured",
        "",
        "`dsgen calibrate` multiplies every step of a machine by how much longer one run of it took than computed.",
        "Here every run is predicted from each other one of its source that shares its GPU, program and kernels, as",
        "if that had been measured. The bounds were chosen on rows that may be looked at: nine in ten lie between.",
        "",
        "| predicted from | bounds | rows | in them | median absolute error | without a measurement |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for words, same, low, high in (
        ("another model, number of GPUs, strategy or length", MACHINE, LOW_MEASURED, HIGH_MEASURED),
        ("another strategy or length of the same model and GPUs", ALIKE, LOW_ALIKE, HIGH_ALIKE),
    ):
        for held_back in (False, True):
            told = foretold(cases, same, low, high, held_back)
            if told is not None:
                named = f"{words}{', held back' if held_back else ''}"
                lines.append(
                    f"| {named} | {low:.2f} to {high:.2f} | {told.runs} | {told.inside:.0%} | {told.error:.1%} "
                    f"| {told.alone_inside:.0%} in the interval, {told.alone_error:.1%} |"
                )
    return [
        *lines,
        "",
        "So a measurement of one model says little of another one, and more of other strategies of the same. What the",
        "runs of a source have in common is a small error here, because these are the cards that the model was made",
        "with; of a machine that is unlike them a measurement tells more.",
    ]
