"""The instant memory model against the simulation for mixtures of experts that no built-in profile has."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from dsgen.hf_config import model_from_hf, to_hf_config

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
PHASES = ("load", "init", "forward", "backward", "step")


@pytest.fixture(scope="module")
def benchmark():
    """benchmarks/memory_types_mixtures.py."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("memory_types_mixtures")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def compared(benchmark):
    return benchmark.compare(benchmark.read(benchmark.RECORD), benchmark.MixtureCase)


def test_what_was_drawn_is_what_was_simulated(benchmark):
    rows = benchmark.read(benchmark.RECORD)["cases"]

    drawn = [(case.name, case.config, case.options, case.gpus) for case in benchmark.cases()]

    assert [(row["name"], row["config"], row["options"], row["gpus"]) for row in rows] == drawn
    assert len({benchmark.MODELS[row["model"]]["model_type"] for row in rows}) >= 1


def test_every_peak_is_within_a_thousandth(compared):
    misses = {item.case.name: f"{item.error:+.2%}" for item in compared if abs(item.error) > 0.001}

    assert all(item.ours for item in compared)
    assert misses == {}


@pytest.mark.parametrize("phase", PHASES)
def test_every_part_of_every_phase_is_within_a_hundredth(benchmark, compared, phase):
    """Or within a thousandth of the peak."""
    apart = {
        item.case.name: one
        for item in compared
        for one in benchmark.differences(item, phase)
        if phase in item.simulated["phases"] and not one.close
    }

    assert apart == {}


def test_facts_survive_the_round_trip(benchmark):
    for name, config in benchmark.MODELS.items():
        facts = model_from_hf(config, name)

        assert model_from_hf(to_hf_config(facts), name) == facts
