"""The training profile of a method: the same numbers however the method is asked for, and a person's own on top."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from profile_files import write

import dsgen
from dsgen.jobs.methods import BY_METHOD
from dsgen.shapes.profiles import Training

BASE = dsgen.profile("a100-40g") | dsgen.profile("7b")
BY_THE_METHOD = ("lr", "weight_decay", "beta2", "gradient_clipping", "tokens_per_step", "tokens_per_gpu", "save_16bit")
FULL = (2e-5, 0.1, 0.95, 1.0, 1_048_576, None, True)
ADAPTERS = (2e-4, 0.0, 0.999, 0.3, 262_144, 65_536, False)


def numbers(layers: Any) -> tuple[Any, ...]:
    wishes = dsgen.job(layers).training
    return tuple(getattr(wishes, name) for name in BY_THE_METHOD)


@pytest.mark.parametrize("method", ["lora", "qlora"])
@pytest.mark.parametrize("how", ["option", "profile", "both", "site", "beside another profile"])
def test_adapters_have_their_numbers_however_they_are_asked_for(method: str, how: str) -> None:
    wish = {"training": {"method": method}}
    layers = {
        "option": BASE | wish,
        "profile": BASE | dsgen.profile(method),
        "both": BASE | dsgen.profile(method) | wish,
        "site": BASE | dsgen.site(wish),
        "beside another profile": BASE | dsgen.profile("high-performance") | wish,
    }[how]

    assert numbers(layers) == ADAPTERS
    assert dsgen.job(layers).training.method == method


def test_asking_for_adapters_warns_of_nothing() -> None:
    job = dsgen.job(BASE | {"training": {"method": "lora"}})

    assert not job.warnings
    assert [item.value for item in job.provenance.history("training.method")] == ["full", "lora"]
    assert "changes nothing" in dsgen.job(BASE | dsgen.profile("lora") | {"training": {"method": "lora"}}).warnings[0]


@pytest.mark.parametrize("name", ["", "standard", "high-performance", "lora", "qlora"])
def test_full_fine_tuning_has_its_numbers_whatever_profile_is_named(name: str) -> None:
    layers = BASE | dsgen.profile(name) if name else BASE

    assert numbers(layers | {"training": {"method": "full"}}) == FULL


def test_a_profile_without_a_method_keeps_full_fine_tuning() -> None:
    assert numbers(BASE) == FULL
    assert numbers(BASE | dsgen.profile("memory-saver")) == FULL


def test_what_a_named_profile_says_itself_stays() -> None:
    wishes = dsgen.job(BASE | dsgen.profile("pretraining") | {"training": {"method": "lora"}}).training

    assert (wishes.lr, wishes.tokens_per_step, wishes.warmup_steps) == (3e-4, 4_194_304, 2000)
    assert (wishes.weight_decay, wishes.beta2) == (0.0, 0.999)  # of these it says nothing


@pytest.mark.parametrize("extends", ["", "extends: standard\n", "extends: lora\n"])
def test_an_own_profile_wins_over_the_method_s(tmp_path: Path, extends: str) -> None:
    text = f"kind: training\n{extends}training:\n  method: lora\n  lr: 2e-5  # as measured\n"
    own = write(tmp_path / "mine.yaml", text)
    job = dsgen.job(BASE | dsgen.profile(str(own)))

    assert (job.training.lr, job.training.weight_decay) == (2e-5, 0.0)
    assert job.provenance.history("training.lr")[-1].reason == "as measured"


def test_a_person_wins_over_the_method_s_profile() -> None:
    wishes = {"method": "lora", "lr": 1e-3, "weight_decay": 0.05}
    training = dsgen.job(BASE | {"training": wishes}).training

    assert (training.lr, training.weight_decay, training.beta2) == (1e-3, 0.05, 0.999)
    assert dsgen.job(BASE | {"training": {"method": "lora"}} | {"optimizer.params.lr": 5e-5}).training.lr == 5e-5


def test_why_shows_the_method_s_profile_and_its_reason() -> None:
    answer = dsgen.why(BASE | {"training": {"method": "lora"}}, "training.lr")

    assert [item.origin.source for item in answer.overrides] == [
        "profiles/training/standard.yaml",
        "profiles/training/lora.yaml",
    ]
    assert "QLoRA" in (answer.overrides[-1].reason or "")
    config = dsgen.why(BASE | {"training": {"method": "lora"}}, "optimizer.params.lr")
    assert config.overrides[-1].origin.source == "profiles/training/lora.yaml"


def test_what_two_profiles_inherit_is_written_once() -> None:
    history = dsgen.job(BASE | dsgen.profile("lora") | dsgen.profile("high-performance")).provenance.history
    assert len(history("training.beta1")) == 1
    assert [item.value for item in history("training.lr")] == [2e-5, 2e-4]


def test_an_unknown_method_is_refused_where_it_stands() -> None:
    with pytest.raises(dsgen.DsgenError, match=r"training\.method is dora; it must be one of full, lora, qlora"):
        dsgen.job(BASE | {"training": {"method": "dora"}})
    with pytest.raises(dsgen.DsgenError, match=r"training\.method is \[lora\]"):
        dsgen.job(BASE | {"training": {"method": ["lora"]}})


def test_the_shape_s_defaults_are_those_of_full_fine_tuning() -> None:
    """A profile that extends none gets them."""
    assert tuple(getattr(Training(), name) for name in BY_THE_METHOD) == FULL
    assert set(BY_METHOD) == {"full", "lora", "qlora"}


def test_more_tokens_than_any_run_has_are_refused() -> None:
    assert dsgen.job(BASE | {"training": {"total_tokens": 9.9e15}}).training.total_tokens == 9.9e15
    with pytest.raises(dsgen.DsgenError, match=r"total_tokens is 1e\+40; it must be below 1e\+16"):
        dsgen.job(BASE | {"training": {"total_tokens": 1e40}})


# Of two wishes that say one thing in two ways, the one said above the other.


def test_the_length_of_training_is_said_once() -> None:
    with pytest.raises(dsgen.DsgenError, match="both say how long training lasts"):
        dsgen.job(BASE | {"training": {"total_steps": 10, "total_tokens": 1e6}})
    with pytest.raises(dsgen.DsgenError, match="both say how long training lasts"):
        dsgen.job(BASE | {"training": {"total_tokens": 1e6}} | {"scheduler.params.total_num_steps": 10})


@pytest.mark.parametrize(("below", "above"), [("total_steps", "total_tokens"), ("total_tokens", "total_steps")])
def test_the_length_said_above_the_other_counts(below: str, above: str) -> None:
    wishes = dsgen.job(BASE | dsgen.site({"training": {below: 7}}) | {"training": {above: 9}}).training

    assert (getattr(wishes, below), getattr(wishes, above)) == (None, 9)


def test_tokens_of_a_step_that_a_person_says_are_not_bounded_by_the_profile() -> None:
    one = BASE | {"training": {"method": "lora"}, "cluster": {"gpus": 1}}
    few = dsgen.job(one | {"training": {"tokens_per_step": 2**20}}).training
    many = dsgen.job(one | {"training": {"tokens_per_gpu": 2**20}}).training

    assert (few.tokens_per_step, few.tokens_per_gpu) == (2**20, None)
    assert (many.tokens_per_step, many.tokens_per_gpu) == (None, 2**20)
    assert dsgen.plan(one | {"training": {"tokens_per_step": 2**20}}).chosen.strategy.global_batch == 256
