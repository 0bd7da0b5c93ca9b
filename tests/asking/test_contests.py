"""Named strategies: the grammar, and that each is what its name says, with the numbers of that strategy."""

from __future__ import annotations

from typing import Any

import pytest

import dsgen
from dsgen.asking.plan_questions.contests import PLANNED, contest
from dsgen.asking.plan_questions.named_strategies import named
from dsgen.cost import cost
from dsgen.memory import Verdict, estimate
from dsgen.report import contests as report

JOB = {"hw": "a100-40g", "model": "7b"}
FAST, SLOW = ({**JOB, "nodes": 2, "network": name} for name in ("ib-hdr-200g", "ethernet-10g"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("zero3", {"stage": 3}),
        ("ZeRO-3", {"stage": 3}),
        ("zero0", {"stage": 0}),
        ("zero1,tp=4", {"stage": 1, "tp": 4}),
        ("zero2 offload=cpu", {"stage": 2, "offload_optimizer": "cpu"}),
        ("zero2,offload=optimizer", {"stage": 2, "offload_optimizer": "cpu"}),
        ("zero3,offload=all", {"stage": 3, "offload_optimizer": "cpu", "offload_param": "cpu"}),
        ("zero3, offload=nvme, param=cpu", {"stage": 3, "offload_optimizer": "nvme", "offload_param": "cpu"}),
        ("mb=4,accum=2,checkpointing", {"micro_batch": 4, "accumulation": 2, "checkpointing": True}),
        ("no-checkpointing", {"checkpointing": False}),
        ("hpz=8", {"stage": 3, "secondary": 8}),
    ],
)
def test_a_name_says(text: str, said: dict[str, Any]) -> None:
    assert named(text) == said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("zero4", "did you mean zero3"),
        ("zeor3", "did you mean zero3?"),
        ("zero1,tp4", "did you mean tp=N?"),
        ("ofload=cpu", "did you mean offload=cpu?"),
        ("zero3,checkpoint", "did you mean checkpointing or no-checkpointing?"),
        ("zero3,offload=gpu", "offload= takes optimizer, all, cpu, nvme or none"),
        ("zero3,param=all", "param= takes cpu, nvme or none"),
        ("zero3,offload=all,param=cpu", "offload=all and param=cpu in one strategy"),
        ("tp=0", "tp= takes a whole number of at least 1"),
        ("tp=-1", "tp= takes a whole number of at least 1"),
        ("mb=", "mb= takes a whole number of at least 1"),
        ("mb=1.5", "mb= takes a whole number of at least 1"),
        ("accum=\u0663", "accum= takes a whole number of at least 1"),
        ("mb=" + "9" * 5000, "mb= takes a whole number of at least 1"),
        ("zero3 zero1", "--compare zero3 zero1"),
        ("zero1,hpz=2", "hpZ is a part of zero3"),
        ("", "names no strategy"),
        (" , ", "names no strategy"),
    ],
)
def test_what_is_no_name_is_one_clear_error(text: str, words: str) -> None:
    with pytest.raises(dsgen.DsgenError) as raised:
        named(text)

    assert words in str(raised.value)


def test_each_is_what_its_name_says_with_its_own_numbers() -> None:
    told = dsgen.compare(FAST, "zero3", "zero1,tp=4", "zero2,offload=cpu,mb=2,checkpointing", "zero3,hpz=8")

    stages = {one.name: one.candidate.strategy for one in told.contestants if one.candidate is not None}
    assert (stages["zero3"].stage, stages["zero3"].tp, stages["zero3"].offload_optimizer) == (3, 1, "none")
    assert (stages["zero1,tp=4"].stage, stages["zero1,tp=4"].tp) == (1, 4)
    third = stages["zero2,offload=cpu,mb=2,checkpointing"]
    assert (third.stage, third.offload_optimizer, third.micro_batch, third.checkpointing) == (2, "cpu", 2, True)
    assert (stages["zero3"].buffers.secondary, stages["zero3,hpz=8"].buffers.secondary) == (0, 8)
    for one in told.contestants:
        assert one.candidate is not None
        assert one.candidate.cost == cost(told.job, one.candidate.strategy)
        if "hpz" not in one.name:
            assert one.candidate.memory.gpu == estimate(told.job, one.candidate.strategy).gpu


def test_a_name_wins_over_a_pin_and_a_pin_holds_for_what_it_leaves_out() -> None:
    told = dsgen.compare({**JOB, "zero_stage": 2, "offload": "optimizer"}, "zero3", "zero3,offload=none")

    first, second = (one.candidate.strategy for one in told.contestants[:2] if one.candidate is not None)
    assert (first.stage, first.offload_optimizer) == (3, "cpu")
    assert (second.stage, second.offload_optimizer) == (3, "none")


def test_what_does_not_fit_is_shown_and_what_cannot_run_says_why() -> None:
    told = dsgen.compare(JOB, "zero0", "zero1,tp=3")

    first, second = told.contestants[:2]
    assert first.candidate is not None
    assert first.candidate.memory.verdict is Verdict.DOES_NOT_FIT
    assert second.candidate is None
    assert "do not divide into tensor-parallel groups of 3" in second.refused
    assert told.verdict is Verdict.DOES_NOT_FIT


def test_the_planner_s_choice_stands_beside_them_once() -> None:
    own = dsgen.plan(JOB).chosen
    told = dsgen.compare(JOB, "zero0")
    name = f"zero{own.strategy.stage}" if own.strategy.tp == 1 else f"zero{own.strategy.stage},tp={own.strategy.tp}"
    again = dsgen.compare(JOB, name)

    assert [one.name for one in told.contestants] == ["zero0", PLANNED]
    assert told.contestants[1].candidate == own
    assert [one.name for one in again.contestants] == [name]
    assert again.planned == name


def test_the_fastest_is_the_fastest_of_those_that_fit() -> None:
    told = dsgen.compare(JOB, "zero0", "zero3", "zero2,mb=1", "zero3,offload=cpu,param=cpu,mb=1")

    speeds = {one.name: one.candidate.speed for one in told.contestants if one.fits and one.candidate is not None}
    assert "zero0" not in speeds
    assert told.fastest is not None
    assert speeds[told.fastest.name] == max(speeds.values())


def test_a_slower_network_slows_what_it_carries() -> None:
    fast, slow = (dsgen.compare(job, "zero2,mb=1,accum=1,checkpointing").contestants[0] for job in (FAST, SLOW))

    assert fast.candidate is not None
    assert slow.candidate is not None
    assert slow.candidate.cost.seconds > fast.candidate.cost.seconds
    assert slow.candidate.cost.communication_share > fast.candidate.cost.communication_share


@pytest.mark.parametrize("names", [(), ("zero3", "zero3"), ("zero1,tp=2", "tp=2,zero1"), ("zero3",) * 13])
def test_none_twice_or_too_many_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(dsgen.DsgenError):
        dsgen.compare(JOB, *names)


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(dsgen.DsgenError, match="a strategy is 3; it must be text"):
        dsgen.compare(JOB, 3)  # type: ignore[arg-type]


def test_a_rival_within_half_a_percent_is_called_as_fast() -> None:
    wanted = {"hw": "h100-80g", "gpus": 4, "model": "llama-3.1-8b"}

    told = report.text(contest(dsgen.job(wanted), ("zero2", "zero1")), 80)

    assert "as fast" in told and "-0%" not in told
