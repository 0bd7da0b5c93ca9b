"""What is recorded of the replayed allocator: its laws, the page, and what the instant model's verdict rests on."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from dsgen.memory import estimate

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark():
    """benchmarks/reserved.py."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("reserved")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def record(benchmark):
    return json.loads(benchmark.RECORD.read_text("utf-8"))


@pytest.fixture(scope="module")
def drawn(benchmark):
    return {case.name: (group, case) for group, case in benchmark.drawn()}


def test_every_drawn_scenario_is_recorded_with_its_own_facts(benchmark, record, drawn):
    rows = {row["name"]: row for row in record["cases"]}

    assert list(rows) == list(drawn)
    assert len(rows) == 14 * len(benchmark.GROUPS)
    for name, (group, case) in drawn.items():
        assert rows[name] == benchmark.described(group, case, rows[name])


def test_tensors_take_least_and_what_is_reserved_most(record):
    for row in record["cases"]:
        for prefix in ("", "expandable_"):
            least, reserved = row[f"{prefix}least_bytes"], row[f"{prefix}reserved_peak_bytes"]
            assert row["allocated_peak_bytes"] <= least + (2 << 20), row["name"]  # it is a whole number of 2 MiB
            assert least <= reserved, row["name"]


def test_the_page_is_made_of_the_record(benchmark, record):
    assert benchmark.PAGE.read_text("utf-8") == benchmark.page(record)


def test_what_fits_by_the_instant_model_runs_with_expandable_segments(record, drawn):
    """A launch by dsgen sets them. With torch's default settings many need more than the instant model says."""
    more = 0
    for row in record["cases"]:
        gpu = estimate(*drawn[row["name"]][1].strategy()).gpu
        within = gpu.high_bytes - gpu.overhead_bytes
        assert row["expandable_least_bytes"] <= within, row["name"]
        more += row["least_bytes"] > within
    assert 0 < more < len(record["cases"])


def test_lengths_that_change_are_recorded_for_the_first_scenarios(benchmark, record, drawn):
    assert [row["name"] for row in record["varied"]] == list(drawn)[: benchmark.VARIED]
    assert benchmark.TURNS[-1] == max(benchmark.TURNS) == 1
