"""Fits the constants of dsgen.memory.reserved on the replays of benchmarks/reserved.json, and says what they are worth.

    python benchmarks/reserved_fit.py

Prints constants that make the mean absolute error of all scenarios least, and the errors of each scenario by
constants that were fitted without its model; then those of the instant replays, which have none.
"""

from __future__ import annotations

import functools
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from reserved import RECORD, drawn  # benchmarks/, beside this script
from reserved_page import UNCOUNTED

from dsgen.memory.parts import parts
from dsgen.memory.reserved import Causes, Holes, ReservedBytes, Reserving, causes, reserves
from dsgen.memory.widened import widened

MODES = {"default": "reserved_peak_bytes", "expandable": "expandable_reserved_peak_bytes"}
SHARES = ("before", "peak", "apart", "gathered", "buckets")
START = Holes(0.1, 0.1, 0.5, 0.2, 0.2, 1.0, 1.0)
STEPS = (0.2, 0.1, 0.05, 0.02, 0.01)  # of a share, by which the search goes on from the best


class Replayed(NamedTuple):
    """A scenario: its model, what its moments say, and the row of its replay."""

    model: str
    causes: Causes
    told: dict[str, Any]


def replayed() -> Iterator[Replayed]:
    """Every scenario of the record whose tensors the instant model counts."""
    told = {row["name"]: row for row in json.loads(RECORD.read_text("utf-8"))["cases"]}
    for group, case in drawn():
        if group in UNCOUNTED:
            continue
        job, strategy = case.strategy()
        single = strategy.micro_batch == 1
        of = parts(job, strategy, strategy.buffers, strategy.accumulation, single)
        yield Replayed(case.model, causes(of.moments, strategy.micro_batch), told[case.name])


def instant() -> dict[str, tuple[ReservedBytes, ReservedBytes]]:
    """What the instant model says of each scenario: reserved by default, and with expandable segments."""
    return {name: (default(), growing()) for name, (default, growing) in asked().items()}


def known() -> frozenset[str]:
    """The scenarios whose requests the instant model knows, and replays."""
    return frozenset(name for name, (default, _) in asked().items() if default.replayed())


@functools.lru_cache(maxsize=1)
def asked() -> dict[str, tuple[Reserving, Reserving]]:
    """What is asked of the instant model for each scenario, by default and with expandable segments."""
    made = {}
    for _, case in drawn():
        job, strategy = case.strategy()
        of = parts(job, strategy, strategy.buffers, strategy.accumulation, strategy.micro_batch == 1)
        peak, around = of.peak(strategy.micro_batch), widened(job, strategy, strategy.buffers)
        default, growing = (
            Reserving(job, strategy, of.moments, peak, way, *around, workspaces=False) for way in (False, True)
        )
        made[case.name] = default, growing
    return made


def errors(rows: Sequence[Replayed], holes: Holes, name: str) -> list[float]:
    """The signed error of each row."""
    return [reserves(row.causes, holes) / row.told[name] - 1 for row in rows]


def fitted(rows: Sequence[Replayed], name: str) -> Holes:
    """The shares with the least mean absolute error, none below 0."""
    score: Callable[[Holes], float] = lambda holes: statistics.fmean(map(abs, errors(rows, holes, name)))  # noqa: E731
    best = START
    least = score(best)
    for step in STEPS:
        better = True
        while better:
            better = False
            for share in SHARES:
                for way in (step, -step):
                    tried = best._replace(**{share: max(0.0, round(getattr(best, share) + way, 2))})
                    if (now := score(tried)) < least:
                        best, least, better = tried, now, True
    return best


def _print_replays(mode: str, name: str) -> None:
    """The errors of the instant replays."""
    told = {row["name"]: row[name] for row in json.loads(RECORD.read_text("utf-8"))["cases"]}
    place = list(MODES).index(mode)
    played = {case: both[place]() for case, both in asked().items() if both[place].replayed()}
    ratios = sorted(told[case] / one.bytes for case, one in played.items())
    edge = len(ratios) // 20
    absolute = [abs(1 / one - 1) for one in ratios]
    print(f"{mode}: {len(played)} are replayed, off by {statistics.median(absolute):.1%} in the median;")
    print(f"  within 3 %: {sum(one <= 0.03 for one in absolute)}; nine in ten lie between", end=" ")
    print(f"{ratios[edge]:.2f} and {ratios[-1 - edge]:.2f} of what is said")


def main() -> None:
    """Print."""
    rows = list(replayed())
    models = sorted({row.model for row in rows})
    for mode, name in MODES.items():
        holes = fitted(rows, name)
        apart: list[float] = []
        for model in models:
            others = fitted([row for row in rows if row.model != model], name)
            apart += errors([row for row in rows if row.model == model], others, name)
        ratios = sorted(1 / (1 + error) for error in errors(rows, holes, name))
        edge = len(ratios) // 20
        _print_replays(mode, name)
        print(mode, ", ".join(f"{share} {getattr(holes, share):.2f}" for share in SHARES))
        print(f"  nine in ten lie between {ratios[edge]:.2f} and {ratios[-1 - edge]:.2f} of what is expected")
        for what, those in (("fitted on all", errors(rows, holes, name)), ("its model left out", apart)):
            absolute = [abs(error) for error in those]
            near = sum(error <= 0.03 for error in absolute)
            print(f"  {what}: median {statistics.median(those):+.1%}, absolute {statistics.median(absolute):.1%},")
            print(f"    within 3 %: {near} of {len(those)}, within 10 %: {sum(one <= 0.1 for one in absolute)}")


if __name__ == "__main__":
    main()
