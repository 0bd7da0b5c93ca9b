"""The best plan for each value of a field, and where the strategy that wins changes."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import attrs

from dsgen.asking.memory_questions import for_program
from dsgen.asking.plan_questions.variations import KINDS, SOURCE, job_with, number, spelled, varied
from dsgen.jobs.scenarios import Scenario
from dsgen.planning.planner import Plan, plan
from dsgen.shapes import units
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.layers import same, show
from dsgen.strategies.strategies import describe

__all__ = ["NOTHING", "ByBandwidth", "Case", "Turn", "WhatIf", "told", "what_if"]

MOST_VALUES = 64  # plans at once; a person reads no longer table
MOST_TURNS = 8  # break-evens between two values; where there are more, winners differ by a hair
CLOSE = 0.01  # of a value: a break-even is not told more finely
NOTHING = "no plan"  # what wins where no strategy fits
# Mistakes that make a value wrong in itself; with any other the value is a row of the table that says why.
_WRONG = ("unknown-name", "bad-value", "missing", "unreadable")
# Fields between whose values a break-even is searched: those whose every whole number is a value like another, counts
# that are tried in steps that all given values share, and quantities.
_FINE = ("seq_len", "target_len", "mean_len", "lora_rank")
_SHARED = ("gpus", "nodes", "global_batch")
_INNER = {units.BYTES: "B", units.BANDWIDTH: "B/s", units.FLOPS: "FLOP/s"}
_NETWORK, _BANDWIDTH, _GIGABITS = "network", "network.bandwidth", "1 Gb/s"


class Case(NamedTuple):
    """One value: as it was said, and its best plan; without a plan why there is none, and the kind of mistake."""

    value: Any
    plan: Plan | None
    refused: str = ""
    code: str = ""

    @property
    def winner(self) -> str:
        """What wins: the strategy without its batch."""
        return describe(self.plan.chosen.strategy) if self.plan is not None else NOTHING


class _Asked(NamedTuple):
    """What is varied: a field of a scenario, and for which program."""

    scenario: Scenario
    field: str
    target: str | None


class Turn(NamedTuple):
    """Where the winner changes.

    Attributes:
        last: The last value that has one winner, as a person would write it.
        first: The first that has the other.
        before, after: What wins there.
        searched: Whether values between those that were given were tried, so that no other lies between by more than
            CLOSE, or than a step.
    """

    last: str
    first: str
    before: str
    after: str
    searched: bool = False


class ByBandwidth(NamedTuple):
    """Where the winner changes between two networks by their bandwidth alone.

    Attributes:
        network: The slower of the two, which all else is of: latency, fabric, RDMA.
        first, last: The bandwidths of both.
        turns: Where the winner changes between these; none where what else differs makes the change.
    """

    network: str
    first: str
    last: str
    turns: tuple[Turn, ...]


@attrs.frozen(kw_only=True)
class WhatIf:
    """The best plan for each value of a field.

    Attributes:
        field: The field that is varied.
        cases: The values with their plans, as they were said.
        turns: Where the winner changes, in the order of the values; of numbers from the smallest on.
        by_bandwidth: Of networks with different winners, where that is by bandwidth; from the slowest pair on.
    """

    field: str
    cases: tuple[Case, ...]
    turns: tuple[Turn, ...]
    by_bandwidth: tuple[ByBandwidth, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know of the jobs, each sentence once; not that a row is what is said already."""
        said = dict.fromkeys(warning for case in self.cases if case.plan for warning in case.plan.job.warnings)
        return tuple(one for one in said if not (one.startswith(f"{SOURCE}: ") and "changes nothing" in one))


def what_if(
    scenario: Scenario, field: str, values: Sequence[Any], *, turning: bool = True, target: str | None = None
) -> WhatIf:
    """The best plan for each value of a field, and where the winner changes.

    Args:
        scenario: What else is said.
        field: A field of a scenario, or a path; see `variations.field_named`.
        values: Two values or more.
        turning: Whether it is searched where the winner changes.
        target: The program that trains, where it is known.

    Raises:
        DsgenError: Fewer than two values, one that the field cannot have, or a job that has a plan for none of them.
    """
    distinct: list[Any] = []
    for value in values:
        if not any(same(value, other) for other in distinct):
            distinct.append(value)
    if not 2 <= len(distinct) <= MOST_VALUES:
        one = f"{field} is {told(distinct[0])} in each" if distinct else f"{field} has no value"
        raise mistake(
            f"{field} has {len(distinct)} values" if len(distinct) > 1 else one,
            must=f"a table needs from 2 to {MOST_VALUES} that differ",
            where=SOURCE,
            todo=f"Name another one: {field}={told(distinct[0])},..." if len(distinct) == 1 else None,
        )
    refusals: list[DsgenError] = []
    asked = _Asked(scenario, field, target)
    cases = [_case(asked, value, refusals) for value in distinct]
    if len(refusals) == len(cases):
        raise refusals[0]
    return WhatIf(
        field=field,
        cases=tuple(cases),
        turns=tuple(_turns(asked, cases) if turning else ()),
        by_bandwidth=tuple(_by_bandwidth(asked, cases) if turning and field == _NETWORK else ()),
    )


def _case(asked: _Asked, value: Any, refusals: list[DsgenError]) -> Case:
    """A value with its plan; a mistake that is not of the value alone is told with it."""
    try:
        return Case(value, plan(for_program(job_with(asked.scenario, asked.field, value), asked.target)))
    except DsgenError as error:
        if error.code in _WRONG:
            raise
        refusals.append(error)
        return Case(value, None, "; ".join(filter(None, (error.what, error.must))), error.code)


def _turns(asked: _Asked, cases: Sequence[Case]) -> Iterator[Turn]:
    numbers = [number(case.value) for case in cases]
    step = _step(asked.field, cases, [one for one in numbers if one is not None])
    if step is None or None in numbers:
        for before, after in itertools.pairwise(cases):
            if before.winner != after.winner:
                yield Turn(told(before.value), told(after.value), before.winner, after.winner)
        return
    known = {one: _known(case) for one, case in zip(numbers, cases, strict=True) if one is not None}
    like = cases[0].value

    def winner(value: float) -> str | None:
        """What wins at a number; None where it is no value that the job can have."""
        if value not in known:
            known[value] = _known(_case(asked, _said(value, like, step), []))
        return known[value]

    for low, high in itertools.pairwise(sorted(known)):
        if high - low > max(2 * step, CLOSE * low):  # one that wins between two values at which another does
            middle = _middle(low, high, step)
            winner(middle if step else number(spelled(middle, like)) or middle)
    for low, high in itertools.pairwise(sorted(one for one, won in known.items() if won is not None)):
        for last, first, searched in _between(low, high, step, winner, like):
            words = (spelled(last, like), spelled(first, like), winner(last) or NOTHING, winner(first) or NOTHING)
            yield Turn(*words, searched)


def _by_bandwidth(asked: _Asked, cases: Sequence[Case]) -> Iterator[ByBandwidth]:
    """For each two networks that are neighbours by bandwidth and have different winners."""
    planned = [(case.plan.job.network.bandwidth_bytes_per_second, case) for case in cases if case.plan is not None]
    for (low, slower), (high, faster) in itertools.pairwise(sorted(planned, key=lambda pair: pair[0])):
        if low == high or slower.winner == faster.winner:
            continue
        base = _Asked(varied(asked.scenario, _NETWORK, slower.value), _BANDWIDTH, asked.target)

        @functools.cache
        def winner(value: float, base: _Asked = base) -> str | None:
            return _known(_case(base, _said(value, _GIGABITS, 0.0), []))

        turns = (
            Turn(spelled(last, _GIGABITS), spelled(first, _GIGABITS), winner(last) or NOTHING, winner(first) or NOTHING,
                 searched)
            for last, first, searched in _between(low, high, 0.0, winner, _GIGABITS)
        )  # fmt: skip
        yield ByBandwidth(slower.value, spelled(low, _GIGABITS), spelled(high, _GIGABITS), tuple(turns))


def _known(case: Case) -> str | None:
    return case.winner if case.plan is not None or case.code == "does-not-fit" else None


def _said(value: float, like: Any, step: float) -> Any:
    """A number as a value of the field: whole, or a quantity in the inner unit."""
    if isinstance(like, str):
        unit = units.unit_of(like)
        return f"{value:.12f} s" if unit == units.SECONDS else f"{value:.0f} {_INNER[unit]}" if unit else like
    return int(value) if step else value


def _step(field: str, cases: Sequence[Case], numbers: Sequence[float]) -> float | None:
    """The steps in which a break-even is searched: 0 for quantities, None for fields that are not searched."""
    if all(isinstance(case.value, str) for case in cases):
        kinds = {units.unit_of(case.value) for case in cases}
        return 0.0 if len(kinds) == 1 and kinds.isdisjoint((None,)) and field not in KINDS else None
    if len(numbers) < len(cases) or any(value != int(value) for value in numbers):
        return None
    name = field.rpartition(".")[2]
    return 1.0 if name in _FINE else float(math.gcd(*map(int, numbers))) if name in _SHARED else None


def _between(
    low: float, high: float, step: float, winner: Callable[[float], str | None], like: Any
) -> Iterator[tuple[float, float, bool]]:
    """Every change of the winner from one number to a higher one, as finely as it is worth telling.

    Numbers are tried as they are told: a rounded one may lie beyond the turn.
    """
    last = winner(high)
    for _ in range(MOST_TURNS):
        before = winner(low)
        if before == last or before is None or last is None:
            return
        first, searched = high, True
        while first - low > max(step, CLOSE * low) and searched:
            middle = _middle(low, first, step)
            middle = middle if step else number(spelled(middle, like)) or middle
            at = winner(middle)
            if at is None:
                searched = False
            else:
                low, first = (middle, first) if at == before else (low, middle)
        yield low, first, searched
        low = first


def _middle(low: float, high: float, step: float) -> float:
    """A number halfway: of sizes that differ by factors the geometric mean, on the steps."""
    middle = math.sqrt(low * high) if low > 0 else (low + high) / 2
    if not step:
        return middle
    return min(max(low + step, step * round(middle / step)), high - step)


def told(value: Any) -> str:
    """A value as it was typed."""
    return (
        "+".join(map(str, value)) if isinstance(value, list) else str(value) if isinstance(value, str) else show(value)
    )
