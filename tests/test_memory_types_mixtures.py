"""The instant memory model against the simulation, for mixtures of experts without a profile: every part of a phase."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from dsgen.hf_config import model_from_hf, to_hf_config
from dsgen.parameters import model_types
from dsgen.profiles import Model

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
WITHIN = 1e-3  # of a simulated peak


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
    return benchmark.compare(benchmark.read(benchmark.OF_MIXTURES))


@pytest.fixture(scope="module")
def more(benchmark):
    """benchmarks/memory_compared.py."""
    return importlib.import_module("memory_compared")


def test_every_run_of_every_mixture_is_recorded_as_it_is_asked(benchmark):
    record = benchmark.read(benchmark.OF_MIXTURES)
    asked = list(benchmark.of_mixtures())

    assert [row["name"] for row in record["cases"]] == [case.name for case in asked]
    assert [benchmark.facts(row) for row in record["cases"]] == [benchmark.attrs.asdict(case) for case in asked]
    assert set(record["versions"]) >= {"deepspeed", "torch", "transformers"}


def test_mixtures_are_sorted_known_and_written_as_they_are_read(benchmark):
    mixtures = importlib.import_module("memory_types_mixtures").MIXTURES

    assert list(mixtures) == sorted(mixtures)
    for name, config in mixtures.items():
        facts = model_from_hf(config, name)
        assert facts["architecture"] == name.partition(" ")[0] in model_types()
        assert model_from_hf(to_hf_config(facts), name) == facts
        assert Model(**facts).experts


def test_every_peak_is_within_a_thousandth(compared):
    misses = {item.case.name: f"{item.error:+.2%}" for item in compared if abs(item.error) > WITHIN}

    assert all(item.ours for item in compared)
    assert len(compared) >= 110
    assert misses == {}


def test_every_part_of_every_phase_is_close(compared, more):
    """Within a hundredth of the part, or a thousandth of the peak."""
    phases = ("load", "init", "forward", "backward", "step")
    apart = {
        (item.case.name, phase, one.part)
        for item in compared
        for phase in phases
        for one in more.differences(item, phase)
        if not one.close
    }

    assert apart == set()


def test_a_nodes_ram_is_what_its_ranks_hold_after_the_last_step(compared, more):
    offloading = {item.case.name: parts for item in compared if (parts := more.differences_on_the_host(item))}

    assert len(offloading) >= 20
    assert {name for name, parts in offloading.items() if not all(one.close for one in parts)} == set()
