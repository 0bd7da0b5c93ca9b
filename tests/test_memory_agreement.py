"""The instant memory model against what the simulation of the real DeepSpeed counted, scenario by scenario."""

from __future__ import annotations

import importlib
import statistics
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
STATES = ("fp32 master weights", "optimizer states")


@pytest.fixture(scope="module")
def benchmark():
    """benchmarks/memory_agreement.py."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("memory_agreement")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def compared(benchmark):
    return benchmark.compare(benchmark.read())


def test_every_drawn_scenario_is_recorded_with_its_versions(benchmark):
    record = benchmark.read()
    names = [row["name"] for row in record["cases"]]

    assert names == [case.name for case in benchmark.cases()]
    assert len(names) >= 300
    assert set(record["versions"]) >= {"deepspeed", "torch", "transformers"}


def test_what_was_drawn_is_what_was_simulated(benchmark):
    rows = {row["name"]: row for row in benchmark.read()["cases"]}

    for case in benchmark.cases():
        row = rows[case.name]
        assert (row["config"], row["options"], row["gpus"]) == (case.config, case.options, case.gpus)


def test_every_peak_but_three_is_within_a_percent(compared):
    """The misses are named on the page first: experts in fp16 and fp32. Nine of ten are within a thousandth."""
    counted = [item for item in compared if item.ours]
    misses = {item.case.name: f"{item.error:+.1%}" for item in counted if abs(item.error) > 0.01}
    exact = [item for item in counted if abs(item.error) <= 0.001]

    assert len(counted) >= 319
    assert len(misses) <= 3, misses
    assert len(exact) >= 0.9 * len(counted)
    assert statistics.median(abs(item.error) for item in counted) < 1e-6
    assert max(abs(item.error) for item in counted) < 0.085


def test_stage_3_without_adapters_is_within_two_thousandths(compared):
    """But for experts in fp32 with flash attention, whose gathered parameters are overestimated."""
    for item in compared:
        whole = item.case.options["method"] == "full" and item.case.config["zero_optimization"]["stage"] == 3
        bound = 0.03 if item.case.name == "mixtral-8x7b 2" else 0.002
        assert item.ours is None or not whole or abs(item.error) < bound, (item.case.name, f"{item.error:+.2%}")


def test_optimizer_states_are_equal_to_the_byte(compared):
    """But for what a fused optimizer counts in tensors of one number, and for adapters that stage 3 pads."""
    for item in compared:
        if item.ours is None or item.case.options["method"] != "full":
            continue
        step = item.simulated["phases"]["step"]
        ours = next(phase.gpu for phase in item.ours.phases if phase.phase == "step")
        for name in STATES:
            assert ours.get(name, 0) == pytest.approx(step.get(name, 0), rel=1e-4, abs=1e5), (item.case.name, name)


def test_intervals_cover_the_simulated_peaks(compared):
    outside = [
        item.case.name
        for item in compared
        if item.ours and not item.ours.gpu.low_bytes <= item.simulated["peak"] <= item.ours.gpu.high_bytes
    ]

    assert outside == []


def test_the_page_shows_every_scenario(benchmark, compared):
    text = benchmark.PAGE.read_text(encoding="utf-8")

    assert text == benchmark.page(compared, benchmark.read()["versions"])
    assert all(item.case.name in text for item in compared)
