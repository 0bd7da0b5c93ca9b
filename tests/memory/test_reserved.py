"""What torch reserves, from causes: against the committed replays, and that each cause counts as it must."""

from __future__ import annotations

import importlib
import statistics
from pathlib import Path
from typing import Any

import attrs
import pytest

from dsgen.asking.memory_questions import ask, ask_config, given
from dsgen.jobs.assembly import assemble
from dsgen.jobs.job import Job
from dsgen.jobs.scenarios import Scenario, layers
from dsgen.memory import Verdict, estimate, expandable
from dsgen.memory.estimates import HIGH, HIGH_DEFAULT
from dsgen.memory.reserved import DEFAULT, EXPANDABLE, Causes, reserves

REPOSITORY = Path(__file__).resolve().parents[2]
GIB = 2**30


@pytest.fixture(scope="module")
def replays() -> Any:
    """The replayed scenarios whose tensors are counted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REPOSITORY / "benchmarks"))
        fit = importlib.import_module("reserved_fit")
        return fit, tuple(fit.replayed())


@pytest.mark.parametrize(
    ("mode", "holes"), [("default", DEFAULT), ("expandable", EXPANDABLE)], ids=["default", "expandable"]
)
def test_it_is_near_what_the_replays_reserve(replays: Any, mode: str, holes: Any) -> None:
    """5.0 % is what docs/reserved.md states; nine in ten lie in the interval."""
    fit, rows = replays
    errors = fit.errors(rows, holes, fit.MODES[mode])
    assert len(rows) >= 160
    assert statistics.median(map(abs, errors)) < 0.055
    assert abs(statistics.median(errors)) < 0.015
    told = [1 / (1 + error) for error in errors]
    assert sum(holes.low <= one <= holes.high for one in told) >= 0.88 * len(rows)


def test_every_cause_adds_what_it_must() -> None:
    plain = Causes(before=0, peak=100 * GIB, apart=0, gathered=0, buckets=0)
    base = reserves(plain, DEFAULT)
    for name in ("apart", "gathered", "buckets"):
        more = reserves(plain._replace(**{name: 10 * GIB}), DEFAULT)
        assert more - base == pytest.approx(getattr(DEFAULT, name) * 10 * GIB)
    assert reserves(plain._replace(before=200 * GIB), DEFAULT) == pytest.approx(1.18 * 200 * GIB)
    assert reserves(plain, EXPANDABLE) < base


def job(hardware: str = "a100-80g") -> Job:
    profiles = {"hardware": (hardware,), "model": ("llama-3.1-8b",)}
    return assemble(layers(Scenario(profiles=profiles)), None)


def unlike(one: Job, **training: Any) -> Job:
    return attrs.evolve(one, training=attrs.evolve(one.training, **training))


def test_a_scenario_is_planned_for_expandable_segments_and_a_config_is_not() -> None:
    planned = ask(job())
    written = ask_config(job(), given({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}))
    assert expandable(planned.job)
    assert not expandable(written.job)
    assert (planned.said["expandable segments"].value, written.said["expandable segments"].value) == (True, False)


def test_default_settings_reserve_and_need_more() -> None:
    question = ask(job())
    growing, default = (
        estimate(unlike(question.job, expandable_segments=way), question.strategy).gpu for way in (True, False)
    )
    outside = growing.overhead_bytes
    assert growing.peak_bytes == default.peak_bytes
    assert growing.high_bytes == int(growing.peak_bytes * HIGH) + outside + growing.overhead_more_bytes
    assert default.high_bytes == int(growing.peak_bytes * HIGH_DEFAULT) + outside + growing.overhead_more_bytes
    assert growing.reserved_bytes < default.reserved_bytes
    for gpu in (growing, default):
        assert gpu.peak_bytes <= gpu.reserved.low <= gpu.reserved.bytes <= gpu.reserved.high
        assert gpu.allocated_bytes == gpu.peak_bytes + gpu.overhead["cuBLAS workspace"]
        beside = outside - gpu.overhead["cuBLAS workspace"]  # which torch reserves
        assert gpu.shown.bytes == min(gpu.reserved_bytes + beside, gpu.limit_bytes)


@pytest.mark.parametrize(("hardware", "grows"), [("a100-80g", True), ("generic-24g", True), ("mi300x-192g", False)])
def test_only_cuda_has_segments_that_grow(hardware: str, grows: bool) -> None:
    assert expandable(job(hardware)) is grows


def test_a_run_that_fits_only_with_expandable_segments_is_uncertain_without() -> None:
    question = ask(job())
    gpu = estimate(question.job, question.strategy).gpu
    limit = (
        gpu.high_bytes + estimate(unlike(question.job, expandable_segments=False), question.strategy).gpu.high_bytes
    ) // 2
    tight = attrs.evolve(question.job, hardware=attrs.evolve(question.job.hardware, usable_memory_bytes=limit))
    assert estimate(tight, question.strategy).gpu.verdict is Verdict.FITS
    assert estimate(unlike(tight, expandable_segments=False), question.strategy).gpu.verdict is Verdict.UNCERTAIN
