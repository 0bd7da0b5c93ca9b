"""What fits by its sum and has no place on the card: against the cards that the engine's own requests need."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import attrs
import pytest

import dsgen
from dsgen.memory import MemoryEstimate, Verdict, estimate
from dsgen.memory.estimates import HIGH_DEFAULT, room
from dsgen.memory.placed import MOST_HOLES, placed
from dsgen.memory.reserved import Reserving
from dsgen.planning.planner import plan

REPOSITORY = Path(__file__).resolve().parents[2]
# The instant replay needs 5 % less than the engine's requests do, or even less.
MISSED = {"mixtral-8x22b e4", "qwen3-32b n1"}


@pytest.fixture(scope="module")
def scenarios() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Scenario -> its case, and the row of the engine's replay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPOSITORY / "benchmarks"))
        fit = importlib.import_module("reserved_fit")
        rows = {row["name"]: row for row in json.loads(fit.RECORD.read_text("utf-8"))["cases"]}
        return {case.name: (case, rows[case.name]) for group, case in fit.drawn() if group not in fit.UNCOUNTED}


def on_a_card(case: Any, tensors: int) -> MemoryEstimate:
    """The memory of a case, with the default allocator, on a GPU that leaves some bytes to tensors."""
    job, strategy = case.strategy()
    job = attrs.evolve(job, training=attrs.evolve(job.training, expandable_segments=False))
    has = room(job, strategy, strategy.buffers)
    hardware = attrs.evolve(job.hardware, usable_memory_bytes=tensors + has.outside + has.beyond)
    memory = estimate(attrs.evolve(job, hardware=hardware), strategy)
    holds = memory.gpu.holds
    assert isinstance(holds, Reserving)
    return attrs.evolve(memory, gpu=memory.gpu._replace(holds=holds._replace(workspaces=False)))  # as the record


def test_what_runs_out_of_memory_on_a_card_is_uncertain_though_its_tensors_fit(scenarios: Any) -> None:
    fitted, missed = [], set()
    for name, (case, row) in scenarios.items():
        memory = on_a_card(case, int(0.97 * row["least_bytes"]))
        if memory.gpu.verdict is Verdict.FITS:
            fitted.append(name)
            gpu = placed(memory).gpu
            if gpu.verdict is Verdict.FITS:
                missed.add(name)
            else:
                assert gpu.high_bytes > gpu.limit_bytes >= memory.gpu.high_bytes
                assert gpu.peak_bytes == memory.gpu.peak_bytes
    assert len(fitted) >= 8
    assert missed == MISSED


def test_what_has_a_place_on_a_card_stays_what_it_was(scenarios: Any) -> None:
    kept = 0
    for case, row in scenarios.values():
        memory = on_a_card(case, int(1.05 * row["least_bytes"]))
        if not memory.gpu.holds.replayed():
            continue  # what is expected to be reserved decides, which is more than is needed
        assert placed(memory).gpu.verdict is memory.gpu.verdict
        kept += memory.gpu.verdict is Verdict.FITS
    assert kept >= 15


def test_no_scenario_needs_more_holes_than_are_replayed(scenarios: Any) -> None:
    needs = [row["least_bytes"] / row["allocated_peak_bytes"] for _, row in scenarios.values()]
    assert HIGH_DEFAULT < max(needs) < MOST_HOLES


def test_segments_that_grow_are_not_replayed(scenarios: Any) -> None:
    case, _ = scenarios["gemma-7b f4"]
    job, strategy = case.strategy()
    job = attrs.evolve(job, training=attrs.evolve(job.training, expandable_segments=True))
    memory = estimate(job, strategy)
    assert placed(memory) is memory


def test_a_plan_that_may_find_no_place_says_so() -> None:
    layers = dsgen.profile("gaudi3-128g") | dsgen.profile("175b") | dsgen.profile("ib-hdr-200g")
    made = plan(dsgen.job(layers | {"cluster.nodes": 4}))
    assert made.chosen.memory.verdict is Verdict.UNCERTAIN
    assert any(said.startswith("it may run out of memory though its tensors fit") for said in made.warnings)
    assert not any("--expandable-segments" in said for said in made.warnings)  # Gaudi has none
    assert any(said.endswith("; a smaller micro-batch takes less") for said in made.warnings)
