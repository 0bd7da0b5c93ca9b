"""Which of several candidates is chosen: the fastest, less what its cost is doubted by, or one of fewer parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

import dsgen
from dsgen.cost import cost
from dsgen.families.parameters import parameter_count
from dsgen.memory import Verdict, estimate
from dsgen.planning.candidates import ENOUGH, FILLED, Candidate, Search, search, sized
from dsgen.planning.planner import contenders, decide, plan
from dsgen.strategies.strategies import batches

PLAIN = {
    "stage": 2,
    "tp": 1,
    "offload_optimizer": "none",
    "offload_param": "none",
    "checkpointing": False,
}
CPU, NVME, SPLIT = {"offload_optimizer": "cpu"}, {"offload_optimizer": "nvme"}, {"tp": 2}


@pytest.fixture
def choose(make_job: Callable[..., dsgen.Job]) -> Callable[..., dsgen.Plan]:
    """A Plan of candidates that are given as what sets each apart and its speed in tokens per second and GPU."""

    def chosen(*items: tuple[dict[str, Any], float], objective: str = "balanced") -> dsgen.Plan:
        job = make_job("a100-80g", "3b", training={"objective": objective})
        one = search(job).fitting[0]
        return decide(job, Search(tuple(_at(one, *item) for item in items), (), ()))

    return chosen


def _at(one: Candidate, facts: dict[str, Any], speed: float) -> Candidate:
    """A candidate that differs, with a speed; nothing but its products takes time."""
    parts = {**dict.fromkeys(one.cost.parts, 0.0), "matrix products": one.cost.tokens / one.cost.gpus / speed}
    return attrs.evolve(
        one, strategy=attrs.evolve(one.strategy, **{**PLAIN, **facts}), cost=one.cost._replace(parts=parts)
    )


@pytest.mark.parametrize(
    ("doubted", "loses", "wins"),
    [
        (CPU, 110, 120),  # counts 0.9 of its speed
        (NVME, 140, 155),  # 0.7
        (SPLIT, 115, 127),  # 0.85
        ({**CPU, "offload_param": "cpu", "stage": 3}, 120, 135),  # 0.81, as both are doubted
    ],
)
def test_what_is_doubted_must_win_by_more_than_its_doubt(choose, doubted, loses, wins):
    for slower, order in ((loses, 1), (loses, -1)):
        found = choose(*[({}, 100), (doubted, slower)][::order])
        assert found.chosen.speed == pytest.approx(100)
        assert found.reason.startswith("simpler than")
    found = choose(({}, 100), (doubted, wins))
    assert found.chosen.speed == pytest.approx(wins)
    assert found.reason == "the fastest that fits"


@pytest.mark.parametrize("more", [CPU, NVME, SPLIT])
def test_for_throughput_nothing_is_doubted(choose, more):
    found = choose(({}, 100), (more, 101), objective="throughput")

    assert (found.chosen.speed, found.reason) == (pytest.approx(101), "the fastest that fits")


@pytest.mark.parametrize("objective", ["balanced", "throughput"])
@pytest.mark.parametrize(
    ("simple", "other"),
    [
        ({}, CPU),
        (CPU, NVME),
        ({"stage": 3}, {"stage": 0, **SPLIT}),  # a split model needs the same data on each group
        ({"stage": 2}, {"stage": 0}),  # copies of all states fill the GPU
        ({"stage": 2}, {"stage": 1}),  # nothing that a user sees, and less memory
        ({"stage": 1}, {"stage": 3}),
        ({"stage": 2, "checkpointing": True}, {"stage": 3}),
        ({"stage": 2}, {"stage": 2, "checkpointing": True}),
        (SPLIT, {"tp": 4}),
    ],
)
def test_of_equals_the_simplest_is_chosen_whatever_the_order(choose, objective, simple, other):
    for items in ((simple, other), (other, simple)):
        strategy = choose(*((item, 100) for item in items), objective=objective).chosen.strategy
        assert {field: getattr(strategy, field) for field in PLAIN} == {**PLAIN, **simple}


def test_a_little_more_speed_is_no_reason_for_more_parts(choose):
    """The model's error is larger; of what is as simple the fastest is taken."""
    close = choose(({"stage": 2}, 96), ({"stage": 1}, 98), ({"stage": 3}, 100))
    apart = choose(({"stage": 2}, 94), ({"stage": 3}, 100))
    same = choose(({"stage": 2}, 96), ({"stage": 2}, 97), ({"stage": 3}, 100))

    assert (close.chosen.strategy.stage, close.chosen.speed) == (2, pytest.approx(96))
    assert close.reason.startswith("simpler than ZeRO-3")
    assert close.reason.endswith(", and as fast within the model's error")
    assert apart.chosen.strategy.stage == 3
    assert same.chosen.speed == pytest.approx(97)


@pytest.mark.parametrize(("model", "gpus", "stage"), [("125m", 8, 0), ("3b", 8, 2), ("1b", 1, 0)])
def test_plain_data_parallelism_is_simple_where_it_leaves_room(make_job, model, gpus, stage):
    assert plan(make_job("a100-80g", model, cluster={"gpus": gpus})).chosen.strategy.stage == stage


def test_what_is_as_fast_as_the_fastest_is_weighed_as_it_may_be_simpler(make_job):
    """Stages 1 and 2 send as much where every pass is a step, and differ by half a percent; the faster is chosen."""
    wishes = {"objective": "throughput", "offload": "optimizer", "micro_batch": 1, "accumulation": 1}
    job = make_job("a100-80g", "1.3b", cluster={"gpus": 1}, training=wishes)
    speeds = {item.strategy.stage: item.speed for item in search(job).fitting if not item.strategy.checkpointing}

    assert speeds[1] == pytest.approx(speeds[2], rel=0.01)
    assert max(speeds[1], speeds[2]) == max(speeds.values())
    assert plan(job).chosen.speed == max(speeds.values())


@pytest.mark.parametrize("objective", ["balanced", "throughput", "memory"])
def test_what_cannot_be_chosen_is_not_weighed(make_job, objective):
    job = make_job("h100-80g", "7b", training={"objective": objective})

    assert len(contenders(job).fitting) < len(search(job).fitting)


def test_what_is_too_large_is_measured_with_the_passes_that_the_batch_leaves(
    make_job: Callable[..., dsgen.Job],
) -> None:
    """Of one pass a step keeps no gradients of earlier ones; of two stage 1 keeps all of them, 2 bytes a parameter."""

    def missing(global_batch: int) -> int:
        job = make_job("generic-24g", training={"global_batch": global_batch, "zero_stage": 1, "checkpointing": "none"})
        plain = [one for one in search(job).rejections if (one.layout.offload_optimizer, one.layout.tp) == ("none", 1)]
        return min(one.missing_bytes for one in plain if one.place == "gpu")

    assert missing(16) - missing(8) > 1.5 * parameter_count(make_job().model)


@pytest.mark.parametrize(("gpu", "model", "method"), [("a100-40g", "7b", "full"), ("rtx4090-24g", "7b", "lora")])
def test_of_micro_batches_about_as_fast_the_largest_that_leaves_room_is_taken(make_job, gpu, model, method):
    """Asked of every micro-batch one by one; some layouts have one that leaves a tenth of the GPU, others have none."""
    job, shares = make_job(gpu, model, training={"method": method}), []
    for item in search(job).fitting:
        told = [
            (one, estimate(job, one))
            for size, passes, total in batches(job, item.strategy)
            for one in [attrs.evolve(item.strategy, micro_batch=size, accumulation=passes, global_batch=total)]
        ]
        sure = [(one, memory) for one, memory in told if memory.verdict is Verdict.FITS]
        speeds = [cost(job, one).tokens_per_second_per_gpu for one, _ in sure]
        near = [pair for pair, speed in zip(sure, speeds, strict=True) if speed >= ENOUGH * max(speeds)]
        assert item.strategy == sized(near)
        shares.append(item.memory.gpu.high_bytes / item.memory.gpu.limit_bytes)
        larger = [one for one, _ in near if one.micro_batch > item.strategy.micro_batch]
        assert (shares[-1] <= FILLED) or not [one for one, _ in near if one.micro_batch < item.strategy.micro_batch]
        assert all(estimate(job, one).gpu.high_bytes > FILLED * item.memory.gpu.limit_bytes for one in larger)
    assert min(shares) <= FILLED
