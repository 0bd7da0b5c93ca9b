"""How long training takes, and the fewest GPUs before a deadline: held against all numbers of GPUs, one by one."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from command_line import run

import dsgen
from dsgen.asking.plan_questions.amounts import seconds_of, tokens_of, tokens_text
from dsgen.asking.plan_questions.deadlines import Fleet

JOB: dict[str, Any] = {"hw": "a100-40g", "model": "7b", "network": "ib-hdr-200g"}
DAY = 86_400


def alone(scenario: dict[str, Any], gpus: int, tokens: int) -> Fleet | None:
    """So many GPUs as a person would say them."""
    said = {name: value for name, value in scenario.items() if gpus > 8 or name != "network"}
    try:
        plan = dsgen.plan({**said, "gpus": gpus})
    except dsgen.DsgenError:
        return None
    return Fleet(plan=plan, tokens=tokens) if plan.chosen.memory.verdict.value == "fits" else None


@pytest.mark.parametrize(
    ("scenario", "tokens", "days"),
    [
        (JOB, "1B", 7),
        (JOB, "10B", 7),
        (JOB, "30B", 14),
        (JOB, "30B", 5),
        ({**JOB, "global_batch": 96}, "10B", 7),
        ({**JOB, "model": "13b"}, "10B", 7),
        ({**JOB, "network": "ethernet-10g"}, "20B", 10),
    ],
)
def test_no_smaller_number_of_gpus_meets_the_deadline(scenario: dict[str, Any], tokens: str, days: float) -> None:
    budget = dsgen.fewest_gpus(scenario, tokens, f"{days}d")

    assert budget.fewest.seconds <= days * DAY
    sizes = [*range(1, 9), *range(16, budget.fewest.gpus + 1, 8)]
    for gpus in sizes:
        fleet = alone(scenario, gpus, tokens_of(tokens))
        met = fleet is not None and fleet.seconds <= days * DAY
        assert met == (gpus == budget.fewest.gpus) or gpus > budget.fewest.gpus
    again = alone(scenario, budget.fewest.gpus, tokens_of(tokens))
    assert again is not None
    assert again.plan.chosen == budget.fewest.plan.chosen


def test_more_time_never_needs_more_gpus_and_more_tokens_never_fewer() -> None:
    by_days = [dsgen.fewest_gpus(JOB, "10B", f"{days}d").fewest.gpus for days in (2, 4, 8, 16, 32)]
    by_tokens = [dsgen.fewest_gpus(JOB, tokens, "7d").fewest.gpus for tokens in (1e8, 1e9, 1e10, 5e10)]

    assert by_days == sorted(by_days, reverse=True)
    assert by_tokens == sorted(by_tokens)
    assert by_days[0] > by_days[-1]


def test_to_be_sure_takes_as_many_or_more() -> None:
    budget = dsgen.fewest_gpus(JOB, "30B", "7d")

    assert budget.sure is not None
    assert budget.sure.gpus >= budget.fewest.gpus
    assert budget.sure.interval[1] <= 7 * DAY
    assert budget.fewest in budget.fleets
    assert budget.sure in budget.fleets
    assert [fleet.gpus for fleet in budget.fleets] == sorted({fleet.gpus for fleet in budget.fleets})


def test_time_gpu_hours_and_price_are_one_arithmetic() -> None:
    fleet = dsgen.training_time({"hw": "a100-40g", "model": "7b", "set": {"hardware.price_per_gpu_hour": 1.5}}, "1B")
    free = dsgen.training_time({"hw": "a100-40g", "model": "7b"}, 10**9)

    assert fleet.seconds == pytest.approx(1e9 / (fleet.plan.chosen.speed * 8))
    assert fleet.gpu_hours == pytest.approx(fleet.seconds * 8 / 3600)
    assert fleet.price == pytest.approx(1.5 * fleet.gpu_hours)
    assert free.price is None
    assert free.seconds == fleet.seconds
    assert fleet.interval[0] < fleet.seconds < fleet.interval[1]


def test_a_slower_network_needs_no_fewer_gpus() -> None:
    fast, slow = (
        dsgen.fewest_gpus({**JOB, "network": name}, "30B", "10d").fewest for name in ("ib-hdr-200g", "ethernet-10g")
    )

    assert slow.gpus >= fast.gpus


def test_what_a_scenario_says_of_gpus_is_left_aside(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("hw: a100-40g\nmodel: 7b\ngpus: 16\nnodes: 2\nnetwork: ib-hdr-200g\nset:\n  cluster.gpus: 16\n")

    budget = dsgen.fewest_gpus(file, "10B", datetime.timedelta(days=7))

    assert budget.fewest.gpus == dsgen.fewest_gpus(JOB, "10B", "7d").fewest.gpus


def test_one_node_has_no_network_and_several_have_the_one_that_is_named() -> None:
    few, many = dsgen.fewest_gpus(JOB, "1B", "7d").fewest, dsgen.fewest_gpus(JOB, "30B", "7d").fewest

    assert few.plan.job.network.fabric == "none"
    assert "network" not in few.plan.job.names
    assert many.plan.job.names["network"] == "ib-hdr-200g"


def test_a_deadline_that_no_number_meets_says_the_best_that_is_possible() -> None:
    with pytest.raises(dsgen.DsgenError) as raised:
        dsgen.fewest_gpus({**JOB, "network": "ethernet-10g"}, "300B", "1h")

    error = raised.value
    assert error.code == "does-not-fit"
    assert "no number of GPUs up to 8,192 trains 300B tokens in 1 h" in error.what
    assert error.must is not None
    assert "the best that is possible is" in error.must


def test_a_model_that_fits_on_no_number_says_so() -> None:
    with pytest.raises(dsgen.DsgenError, match="fits nowhere"):
        dsgen.fewest_gpus({"hw": "t4-16g", "model": "7b", "seq_len": 10**7}, "1B", "7d")


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        ("300B", 300 * 10**9),
        ("1.5T", 1_500_000_000_000),
        ("2_000", 2000),
        ("1,000 K", 10**6),
        (5e9, 5 * 10**9),
        ("5e9", 5 * 10**9),
        ("7m", 7 * 10**6),
        (1, 1),
    ],
)
def test_tokens_are_read(said: Any, tokens: int) -> None:
    assert tokens_of(said) == tokens


@pytest.mark.parametrize(
    "said", ["", "0", "-1B", "B", "300X", "3 0B", "1e99", "nan", float("nan"), float("inf"), 0, -1, True, None, "0.5"]
)
def test_what_is_no_number_of_tokens_is_refused(said: Any) -> None:
    with pytest.raises(dsgen.DsgenError, match="tokens is"):
        tokens_of(said)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("7d", 7 * DAY),
        ("36h", 1.5 * DAY),
        ("1d12h", 1.5 * DAY),
        ("1d 12h", 1.5 * DAY),
        ("90min", 5400),
        ("2w", 14 * DAY),
        ("0.5d", DAY / 2),
        ("5217w", 36_519 * DAY),  # a century has 36,525 days
        (datetime.timedelta(hours=1), 3600),
    ],
)
def test_lengths_of_time_are_read(said: Any, seconds: float) -> None:
    assert seconds_of(said) == seconds


@pytest.mark.parametrize("said", ["", "7", "0d", "-1d", "7y", "d", "7d!", "1e3d", "5218w", "200000w", 7, None])
def test_what_is_no_length_of_time_is_refused(said: Any) -> None:
    with pytest.raises(dsgen.DsgenError, match="deadline is"):
        seconds_of(said)


def test_a_negative_price_is_refused() -> None:
    with pytest.raises(dsgen.DsgenError, match="price_per_gpu_hour is -1; it must be at least 0"):
        dsgen.fewest_gpus({**JOB, "set": {"hardware.price_per_gpu_hour": -1}}, "1B", "7d")


def test_tokens_are_told_as_people_say_them() -> None:
    assert [tokens_text(tokens) for tokens in (5, 1500, 3 * 10**11, 15 * 10**11)] == ["5", "1.5K", "300B", "1.5T"]


def test_where_gpus_wait_for_the_network_a_faster_one_and_a_whole_node_are_said() -> None:
    """8B over 25 Gb/s: 376 GPUs that wait 96 % of each step, where 16 over 200 Gb/s do, and 8 take twice the time."""
    job = {"hw": "a100-80g", "model": "llama-3.1-8b"}

    slow = dsgen.fewest_gpus(job, "15B", "3d")
    fast = dsgen.fewest_gpus({**job, "network": "ib-hdr-200g"}, "15B", "3d")

    assert slow.faster is not None
    assert slow.faster.gpus == fast.fewest.gpus < slow.fewest.gpus / 10
    assert slow.faster.plan.job.names["network"] == "ib-hdr-200g"
    assert 8 in [fleet.gpus for fleet in slow.fleets]
    assert fast.faster is None
    assert dsgen.fewest_gpus(job, "1B", "7d").faster is None


def test_the_screen_says_what_a_faster_network_saves() -> None:
    asked = (
        "plan",
        "--hw",
        "a100-80g",
        "--model",
        "llama-3.1-8b",
        "--gpus",
        "auto",
        "--tokens",
        "15B",
        "--deadline",
        "3d",
    )

    told, data = " ".join(run(*asked).out.split()), json.loads(run(*asked, "--format", "json").out)

    assert "they wait for ethernet-25g 96% of each step; over ib-hdr-200g: 16 GPUs (2 x 8)" in told
    assert (data["faster_network"]["network"], data["faster_network"]["gpus"]) == ("ib-hdr-200g", 16)
    named = json.loads(run(*asked, "--format", "json", "--network", "ib-hdr-200g").out)
    assert named["faster_network"] is None
    missed = ("plan", *asked[1:5], "--gpus", "8", *asked[7:])
    said, told = " ".join(run(*missed).out.split()), json.loads(run(*missed, "--format", "json").out)
    assert "over ethernet-25g (assumed), ZeRO-2" in said
    assert "over ib-hdr-200g: 16 GPUs (2 x 8)" in said
    assert told["training"]["faster_network"]["gpus"] == 16
