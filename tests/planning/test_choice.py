"""Which of several candidates is chosen: the fastest, less what its cost is doubted by, or one of fewer parts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import attrs
import pytest

import dsgen
from dsgen.cost import cost
from dsgen.families.parameters import parameter_count
from dsgen.memory import Verdict, estimate
from dsgen.planning.candidates import ENOUGH, FILLED, Candidate, Search, search, sized
from dsgen.planning.planner import TIE, compared, contenders, decide, plan
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
        one, strategy=attrs.evolve(one.strategy, **{**PLAIN, **facts}), spent=one.cost._replace(parts=parts)
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


@pytest.mark.parametrize(
    ("doubted", "speed", "margin"),
    [(CPU, 110, "offload must win by more than 17%"), (SPLIT, 115, "AutoTP must win by more than 24%"),
     ({**CPU, **SPLIT}, 130, "offload and AutoTP must win by more than 38%")],
)  # fmt: skip
def test_a_faster_way_that_is_doubted_is_said_to_be_faster_and_by_how_much_it_must_win(choose, doubted, speed, margin):
    found = choose(({}, 100), (doubted, speed))
    fastest = choose((doubted, speed)).chosen
    more = float(re.search(r"(\d+)%$", margin)[1]) / 100

    assert found.chosen.speed == pytest.approx(100)
    assert found.reason == f"simpler than {fastest.strategy}, which is {speed - 100}% faster: {margin}"
    assert compared(found, fastest) == f"{speed - 100}% faster, but {margin.partition(' than')[0]}"
    assert choose(({}, 100), (doubted, 100 * (1 + more - 0.006))).chosen.speed == pytest.approx(100)
    assert choose(({}, 100), (doubted, 100 * (1 + more + 0.006))).chosen.speed > 101


def test_a_less_simple_way_that_is_trusted_more_does_not_call_itself_simpler(choose):
    found = choose((CPU, 100), (SPLIT, 100.4))  # of speeds 90 and 85.3 are trusted

    assert found.chosen.strategy.offload_optimizer == "cpu"
    assert found.reason.endswith("mb 1 is 0% faster: AutoTP must win by more")
    assert compared(found, choose((SPLIT, 100.4)).chosen) == "as fast, but AutoTP must win by more"


@pytest.mark.parametrize(
    ("hw", "model", "cluster", "objective"),
    [
        ("a100-40g", "gemma-3-27b", (4, "ethernet-25g"), "balanced"),  # the fastest is an offload, 15 % faster
        ("gaudi2-96g", "gemma-3-4b", (4, "ethernet-25g"), "balanced"),  # the fastest is of its own kind
        ("a100-80g", "7b", (1, None), "balanced"),  # shares more, and is no simpler in any other way
        ("a100-40g-pcie", "gpt2", (1, None), "balanced"),
        ("v100-16g", "qwen2.5-14b", (4, "ib-hdr-200g"), "balanced"),  # nothing surely fits
        ("b200-180g", "8b", (1, None), "memory"),
        ("rtx3090-24g", "mistral-7b", (4, "ethernet-25g"), "memory"),
        ("a10g-24g", "pythia-12b", (4, "ib-hdr-200g"), "throughput"),
    ],
)
def test_the_reason_is_true_of_the_rows_that_are_shown(make_job, hw, model, cluster, objective):
    nodes, network = cluster
    names = (network,) if network else ()
    planned = plan(make_job(hw, model, profiles=names, **{"cluster.nodes": nodes, "training.objective": objective}))
    chosen, rows, said = planned.chosen, planned.runners_up, planned.reason
    fastest = max((chosen, *rows), key=lambda item: item.speed)
    more = fastest.speed / chosen.speed - 1

    assert ("may fit" in said) is not chosen.sure or objective == "memory"
    if said.startswith("the fastest"):
        assert more < 1e-9
    elif objective == "balanced":  # it names the fastest, which is shown
        assert f" {fastest.strategy}" in f" {said}"
        assert said.endswith("as fast within the model's error") is (chosen.speed >= (1 - TIE) * fastest.speed)
        assert said.endswith("within the model's error") or f"{more:.0%} faster: " in said
    for row in rows:
        words = compared(planned, row)
        if "slower" in words:
            assert row.speed < chosen.speed
        elif words.startswith("as fast"):
            assert row.speed == pytest.approx(chosen.speed, rel=0.006)
        else:
            assert words.startswith(f"{row.speed / chosen.speed - 1:.0%} faster")
        if "within the model's error" in words:
            assert row.speed * (1 - TIE) <= chosen.speed
        assert ("GiB more" not in words) or objective == "memory"


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
