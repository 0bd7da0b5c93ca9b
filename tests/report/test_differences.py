"""Why a plan or another value of a key is slower: the parts of the time that make it so, as plan and why tell them."""

from __future__ import annotations

import pytest

import dsgen
from dsgen.asking.questions import ask
from dsgen.planning.planner import plan
from dsgen.report import costs, why
from dsgen.report import plan as plan_report


def test_parts_of_a_difference_add_up_to_it_for_as_many_tokens(make_job):
    planned = plan(make_job("a100-40g", "7b"))
    now = planned.chosen.cost
    half = plan(make_job("a100-40g", "7b", **{"training.global_batch": 128})).chosen.cost

    for other in (*(item.cost for item in planned.runners_up), half):
        more = sum(now.less_than(other).values())
        assert more == pytest.approx(other.seconds * now.tokens / other.tokens - now.seconds)


def test_each_rival_says_what_makes_it_slower(make_job):
    planned = plan(make_job("a100-40g", "7b"))
    offloads = next(item for item in planned.runners_up if str(item.strategy).startswith("ZeRO-1 + CPU optimizer"))
    more = offloads.cost.parts["offload"] - planned.chosen.cost.parts["offload"]

    line = next(line for line in plan_report.text(planned, width=200).splitlines() if str(offloads.strategy) in line)

    assert f"slower: offload +{costs.seconds_text(more)}" in line


def test_why_says_the_same_of_another_stage():
    answer = ask(dsgen.job({"hw": "a100-40g", "model": "7b"}), "zero_optimization.stage")
    other = next(item for item in answer.alternatives if item.value == 1)
    said = " ".join(why.text(answer).split())

    assert max(other.parts, key=lambda name: other.parts[name]) == "offload"
    assert f"{1 - other.speed:.0%} slower: offload +{costs.seconds_text(other.parts['offload'])}" in said
    (told,) = [item for item in why.data(answer)["alternatives"] if item["value"] == 1]
    assert told["seconds_more"] == dict(other.parts)
    assert other.seconds * (1 / other.speed - 1) == pytest.approx(sum(other.parts.values()))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"offload": 3.4, "communication": -0.12, "host": 0.2}, "offload +3.4 s, host +200 ms"),
        ({"offload": -3.4, "communication": 0.1}, "offload -3.4 s"),
        ({"offload": 0.09}, ""),
        ({}, ""),
    ],
)
def test_only_parts_that_matter_are_told_the_largest_first(parts, said):
    assert costs.differences(parts, 15.0) == said


@pytest.mark.parametrize(
    ("hw", "model", "key", "value", "place"),
    [
        ("a100-40g", "qwen3-1.7b", "zero_optimization.stage", 0, "GiB"),
        ("a100-80g-pcie", "qwen2.5-14b", "train_micro_batch_size_per_gpu", 8, "GiB"),
        ("l40s-48g", "qwen3-8b", "zero_optimization.stage", 1, "GiB"),
    ],
)
def test_another_value_fits_by_the_margin_of_a_plan_or_is_said_not_to(hw, model, key, value, place):
    job = dsgen.job({"hw": hw, "model": model})
    answer = ask(job, key)
    (other,) = [item for item in answer.alternatives if item.value == value]
    chosen = plan(dsgen.job({"hw": hw, "model": model, "set": {f"deepspeed.{key}": value}})).chosen

    assert not chosen.sure
    assert other.strategy == str(chosen.strategy)
    assert other.doubt.startswith("may not fit: needs ")
    assert other.doubt.endswith(f" {place}")
    assert f"; it {other.doubt}." in " ".join(why.text(answer).split())
    told = {item["value"]: item["doubt"] for item in why.data(answer)["alternatives"]}
    assert told[value] == other.doubt
    for item in answer.alternatives:
        if item.value != value and not item.refused:
            sure = plan(dsgen.job({"hw": hw, "model": model, "set": {f"deepspeed.{key}": item.value}})).chosen.sure
            assert (told[item.value] is None) is sure
