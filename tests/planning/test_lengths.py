"""Steps of a run: tokens of each by method, a schedule that follows the run's length, what is said of a long one."""

from __future__ import annotations

import math
from typing import Any

import pytest

import dsgen
from dsgen import catalog
from dsgen.jobs.job import DEFAULT_SEQ_LEN
from dsgen.planning.lengths import LONG_STEP_SECONDS, WARMUP_STEPS, long_step, schedule, took
from dsgen.planning.planner import Plan
from dsgen.report import schedules
from dsgen.report.plan import data
from dsgen.report.plan import text as plan_text
from dsgen.report.summary import text as summary_text
from dsgen.strategies.strategies import default_sequences

# The band of a step that nobody counted: at most so many tokens, and more than half of them, for a GPU's sequences are
# a power of two; one sequence for each GPU all the same.
MOST = {"full": 1_048_576, "lora": 262_144, "qlora": 262_144}
MOST_OF_ONE_GPU = {"full": 1_048_576, "lora": 65_536, "qlora": 65_536}
COMMON = (("llama-3.2-1b", "mixtral-8x7b"), ("llama-3.1-8b", "70b"))  # every other card has the other two


def planned(hardware: str, model: str, method: str = "full", gpus: int | None = None, **wishes: Any) -> Plan:
    cluster = {"cluster": {"gpus": gpus}} if gpus else {}
    layers = dsgen.profile(hardware) | dsgen.profile(model) | {"training": {"method": method, **wishes}}
    return dsgen.plan(layers | cluster)


def in_band(plan: Plan) -> bool:
    """Whether the tokens of a step lie in the band."""
    job, chosen = plan.job, plan.chosen.strategy
    method = job.training.method
    most = min(MOST[method], MOST_OF_ONE_GPU[method] * job.world) // max(job.seq_len, DEFAULT_SEQ_LEN)
    replicas = job.world // chosen.tp
    return chosen.global_batch == replicas >= most or most / 2 < chosen.global_batch <= most


@pytest.mark.parametrize("method", sorted(MOST))
@pytest.mark.parametrize("hardware", catalog.names("hardware"))
def test_a_step_has_the_tokens_of_its_method_and_a_schedule_that_runs(hardware: str, method: str) -> None:
    """On all hardware, with two of four common models, on one GPU and on all of a node."""
    seen = 0
    for model in COMMON[catalog.names("hardware").index(hardware) % len(COMMON)]:
        for gpus in (1, None):
            try:
                plan = planned(hardware, model, method, gpus)
            except dsgen.DsgenError as error:
                assert error.code in ("does-not-fit", "refused"), error
                continue
            seen += 1
            assert in_band(plan), (model, gpus, plan.chosen.strategy)
            constant = schedule(plan.job, plan.chosen.strategy)
            assert (constant.kind, constant.warmup_steps) == ("WarmupLR", WARMUP_STEPS[method])
            assert (plan.chosen.cost.seconds > LONG_STEP_SECONDS) == any("a step of" in said for said in plan.warnings)
    assert seen or method == "qlora"  # bitsandbytes does not run on every accelerator


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("length", [128, 512, 2048, 4096, 32768, 131072])
def test_a_step_of_any_length_lies_in_the_band(method: str, length: int) -> None:
    plan = planned("h200-141g", "llama-3.2-1b", method, seq_len=length, chunked_loss=True)

    assert in_band(plan)
    assert plan.chosen.cost.tokens <= max(MOST[method], 8 * length)


def test_shorter_sequences_are_no_more_than_of_the_default_length() -> None:
    assert default_sequences(planned("a100-40g", "7b", seq_len=128).job) == 256
    assert default_sequences(planned("a100-40g", "7b", "lora", seq_len=128).job) == 64


def test_the_batch_of_the_default_follows_the_gpus_with_adapters_alone() -> None:
    def batch(method: str, gpus: int) -> int:
        return planned("h100-80g", "llama-3.2-1b", method, gpus).chosen.strategy.global_batch

    assert [batch("lora", gpus) for gpus in (1, 2, 4, 8)] == [16, 32, 64, 64]
    assert [batch("full", gpus) for gpus in (1, 8)] == [256, 256]


@pytest.mark.parametrize(
    ("wishes", "batch"), [({"global_batch": 128}, 128), ({"micro_batch": 2, "accumulation": 24}, 48), ({}, 16)]
)
def test_what_a_person_counts_wins(wishes: dict[str, int], batch: int) -> None:
    assert planned("a100-80g", "llama-3.2-1b", "lora", 1, **wishes).chosen.strategy.global_batch == batch


def test_why_names_the_wish_that_bounds_the_batch() -> None:
    def place(method: str, gpus: int, **wishes: Any) -> tuple[str, str]:
        layers = dsgen.profile("h100-80g") | dsgen.profile("llama-3.2-1b")
        asked = layers | {"training": {"method": method, **wishes}, "cluster": {"gpus": gpus}}
        winner = dsgen.why(asked, "train_batch_size").overrides[-1]
        return winner.origin.source.rpartition("/")[2], winner.reason or ""

    assert place("full", 8)[0] == "standard.yaml"
    assert "Zephyr" in place("full", 8)[1]
    assert "table 9" in place("lora", 1)[1]
    assert "64 x 4096" in place("lora", 8)[1]
    assert place("lora", 8, global_batch=8)[0] == "python"
    assert place("lora", 8, micro_batch=1, accumulation=1)[0] == "planner"


# The schedule.


@pytest.mark.parametrize("method", sorted(WARMUP_STEPS))
@pytest.mark.parametrize("total", [1, 2, 3, 10, 33, 50, 1000, 10**6])
def test_a_run_of_known_length_decays_after_a_warm_up_that_fits(method: str, total: int) -> None:
    plan = planned("a100-80g", "llama-3.2-1b", method, total_steps=total)
    made = schedule(plan.job, plan.chosen.strategy)
    params = dsgen.render(plan).tree["scheduler"]["params"]

    assert (made.kind, made.total_steps) == ("WarmupCosineLR", total)
    assert made.warmup_steps == min(2000, max(1, round(0.03 * total)))
    assert (params["total_num_steps"], params["warmup_num_steps"]) == (total, made.warmup_steps)


def test_a_length_in_tokens_is_the_steps_that_hold_them() -> None:
    plan = planned("a100-40g", "7b", total_tokens=3e8)
    tree = dsgen.render(plan).tree

    assert plan.chosen.cost.tokens == 1_048_576
    assert tree["scheduler"]["type"] == "WarmupCosineLR"
    assert tree["scheduler"]["params"]["total_num_steps"] == math.ceil(3e8 / 1_048_576) == 287
    smaller = dsgen.render(planned("a100-40g", "7b", total_tokens=3e8, global_batch=64)).tree["scheduler"]["params"]
    assert smaller["total_num_steps"] == math.ceil(3e8 / 262_144)
    answer = dsgen.why(plan.job, "scheduler.params.total_num_steps")
    assert "300,000,000 tokens / 1,048,576 of a step" in (answer.overrides[-1].reason or "")


def test_a_wished_warm_up_stays_unless_it_fills_the_run() -> None:
    def warmup(**wishes: Any) -> int:
        plan = planned("a100-40g", "7b", **wishes)
        return schedule(plan.job, plan.chosen.strategy).warmup_steps

    assert warmup(warmup_steps=9) == warmup(warmup_steps=9, total_steps=99) == 9
    assert warmup(warmup_steps=90, total_steps=50) == warmup(warmup_steps=50, total_steps=50) == 5
    assert warmup(warmup_steps=49, total_steps=50) == 49


@pytest.mark.parametrize(("method", "source"), [("full", "Adam's averages"), ("lora", "Axolotl"), ("qlora", "Axolotl")])
def test_a_warm_up_that_nobody_wished_says_where_it_is_from(method: str, source: str) -> None:
    plan = dsgen.plan({"hw": "a100-80g", "model": "7b", "method": method})

    assert source in schedule(plan.job, plan.chosen.strategy).why


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ({}, "learning rate 2e-05, constant after 40 steps of warm-up: how long training lasts is not known"),
        ({"total_steps": 1000}, "learning rate 2e-05 falls along a cosine over 1,000 steps, after 30 steps of warm-up"),
        ({"total_steps": 20, "scheduler": "WarmupDecayLR"}, "falls linearly over 20 steps, after 1 step of warm-up"),
        ({"scheduler": "WarmupLR"}, "constant after 40 steps of warm-up: as asked"),
        ({"scheduler": "none"}, ""),
        ({"scheduler": "WarmupDecayLR"}, ""),
    ],
)
def test_plan_and_render_say_what_the_learning_rate_does(wishes: dict[str, Any], said: str) -> None:
    plan = planned("a100-40g", "7b", **wishes)
    sentence = schedules.sentence(plan)

    assert (said in sentence) if said else not sentence
    assert sentence in " ".join(plan_text(plan).split())
    assert (data(plan)["schedule"] or {"says": ""})["says"] == sentence
    if wishes != {"scheduler": "WarmupDecayLR"}:  # which the renderer refuses
        assert sentence in " ".join(summary_text(dsgen.render(plan)).split())


def test_what_to_pass_is_said_where_the_length_is_not_known() -> None:
    assert "--total-steps N or --total-tokens N" in schedules.sentence(planned("a100-40g", "7b"))


def test_nothing_is_said_of_a_schedule_that_a_key_names() -> None:
    layers = dsgen.profile("a100-40g") | dsgen.profile("7b")
    own = {"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-6, "cycle_max_lr": 1e-5}}}

    assert schedules.sentence(dsgen.plan(layers | own)) == ""
    assert data(dsgen.plan(layers | own))["schedule"] is None
    assert schedules.sentence(dsgen.plan(layers | {"scheduler": None})) == ""


# A long step.


def test_a_step_over_five_minutes_is_said_with_the_batch_that_is_not() -> None:
    slow = planned("rtx3090-24g", "llama-3.1-8b", "lora", 1, global_batch=256)
    (said,) = [warning for warning in slow.warnings if "a step of" in warning]
    _, _, rest = said.partition("--global-batch ")
    fewer = int(rest.split()[0])

    assert said.startswith("a step of 256 sequences takes about")
    faster = planned("rtx3090-24g", "llama-3.1-8b", "lora", 1, global_batch=fewer)
    assert faster.chosen.cost.seconds <= LONG_STEP_SECONDS * 1.05
    assert not any("a step of" in warning for warning in faster.warnings)
    assert any(said in warning for warning in dsgen.render(slow).warnings)


def test_what_cannot_be_made_shorter_is_said_alone() -> None:
    plan = planned("a100-40g", "7b")
    chosen = plan.chosen.strategy

    assert long_step(plan.job, chosen, LONG_STEP_SECONDS) is None
    assert long_step(plan.job, chosen, 301.0) == (
        "a step of 256 sequences takes about 5.0 minutes; --global-batch 240 would take about 4.7 minutes"
    )
    assert long_step(plan.job, chosen, 1e6) == "a step of 256 sequences takes about 278 hours"
    pinned = planned("a100-40g", "7b", accumulation=8)
    assert "--global-batch" not in (long_step(pinned.job, pinned.chosen.strategy, 600.0) or "")


@pytest.mark.parametrize(
    ("seconds", "words"), [(301, "5.0 minutes"), (1380, "23 minutes"), (11_000, "3.1 hours"), (10**6, "278 hours")]
)
def test_a_long_time_in_words(seconds: float, words: str) -> None:
    assert took(seconds) == words
