"""The instant cost of a step against the simulated one: recorded scenarios, and a sample simulated anew."""

from __future__ import annotations

import functools
import random
import statistics
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import simulations

ROOT = Path(__file__).parents[2]
MEDIAN, SHARE_WITHIN, WORST = 0.01, 0.98, 0.16  # of the errors; the share of scenarios within 5 %; the largest error
SAMPLE = 4  # scenarios that are simulated anew


@functools.cache
def benchmark() -> ModuleType:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import step_times
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    module: ModuleType = step_times
    return module


@functools.cache
def rows() -> tuple[Any, ...]:
    module = benchmark()
    return tuple(row for row in module.compared(module.read()) if row.ours)


def test_all_scenarios_are_recorded_as_they_are_drawn() -> None:
    module = benchmark()
    record = module.read()["cases"]

    assert [case.name for case in module.timed_cases()] == list(record)
    assert len(rows()) >= 195
    assert len({row.case.model for row in rows()}) >= 100
    assert {row.case.config["zero_optimization"]["stage"] for row in rows()} == {0, 1, 2, 3}
    assert {row.case.options["method"] for row in rows()} == {"full", "lora", "qlora"}


def test_the_instant_step_is_the_simulated_one_but_for_a_few_percent() -> None:
    errors = [row.error for row in rows()]

    assert statistics.median(map(abs, errors)) <= MEDIAN
    assert abs(statistics.median(errors)) <= MEDIAN / 2
    assert sum(abs(error) <= 0.05 for error in errors) >= SHARE_WITHIN * len(errors)
    assert max(map(abs, errors)) <= WORST


def test_what_is_farther_off_is_known_by_name() -> None:
    module = benchmark()

    assert {row.case.name for row in rows() if abs(row.error) > module.WITHIN} == set(module.BEYOND)


def test_all_collectives_are_those_of_the_simulation() -> None:
    """By kind, ranks, calls and bytes, in every scenario."""
    assert [row.case.name for row in rows() if not row.equal_exchanges()] == []


@pytest.mark.parametrize(
    ("part", "least"),
    [("matrix products", 1.0), ("attention", 1.0), ("optimizer", 1.0), ("memory traffic", 0.96), ("offload", 0.99),
     ("host", 0.97), ("communication", 0.94)],
)  # fmt: skip
def test_each_part_is_within_a_twentieth_of_the_step(part: str, least: float) -> None:
    """In nearly all scenarios; kernels that share the GPU count as communication in a simulation, as traffic here."""
    shares = [abs(row.differences()[part]) for row in rows()]

    assert sum(share <= 0.05 for share in shares) >= least * len(shares)


def test_the_step_and_every_part_are_within_a_twentieth_in_200_scenarios() -> None:
    close = [row for row in rows() if all(abs(one) <= 0.05 for one in (row.error, *row.differences().values()))]

    assert len(close) >= 200


def test_the_page_is_that_of_the_record() -> None:
    module = benchmark()

    assert module.PAGE.read_text(encoding="utf-8") == module.page(module.compared(module.read()))


@pytest.mark.proof
@pytest.mark.parametrize("number", range(SAMPLE))
def test_the_record_is_what_the_simulation_tells(number: int) -> None:
    """A seeded sample of all scenarios is simulated anew."""
    module = benchmark()
    record = module.read()["cases"]
    cases = [case for case in module.timed_cases() if "error" not in record[case.name]]
    case = random.Random(2026).sample(cases, SAMPLE)[number]
    answer = simulations.simulate(case.request())

    assert module.told(case, answer)["parts"] == pytest.approx(record[case.name]["parts"], rel=1e-4, abs=1e-7)
