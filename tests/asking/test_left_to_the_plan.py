"""`why` of a wish left to the plan says what the plan takes, and of an argument of the Trainer what it fills."""

from __future__ import annotations

import pytest

import dsgen
from dsgen.asking.questions import ask
from dsgen.report import why

JOB = dsgen.job({"hw": "a100-40g", "model": "7b"})


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ("micro_batch", "takes 2: dsgen why train_micro_batch_size_per_gpu"),
        ("global_batch", "takes 256: dsgen why train_batch_size"),
        ("zero_stage", "takes 2: dsgen why zero_optimization.stage"),
        ("offload", "takes none: dsgen why zero_optimization.offload_optimizer.device"),
        ("precision", "takes bf16: dsgen why bf16.enabled"),
        ("checkpointing", "takes full."),
        ("training.seq_len", "takes 4096."),
    ],
)
def test_what_is_left_to_the_plan_is_what_it_takes(wish: str, told: str) -> None:
    answer = ask(JOB, wish)

    assert answer.planned == f"Left to the plan, which {told}"
    assert told in " ".join(why.text(answer).split())
    assert why.data(answer)["planned"] == answer.planned


def test_what_a_person_says_is_left_to_nobody() -> None:
    said = dsgen.job({"hw": "a100-40g", "model": "7b", "micro_batch": 1})

    assert ask(said, "micro_batch").planned == ""
    assert ask(JOB, "hardware.processors").planned == ""


def test_where_nothing_fits_a_plan_takes_nothing() -> None:
    large = dsgen.job({"hw": "rtx3090-24g", "gpus": 1, "model": "405b"})

    assert ask(large, "micro_batch").planned == ""


@pytest.mark.parametrize(
    ("argument", "key"),
    [
        ("learning_rate", "optimizer.params.lr"),
        ("per_device_train_batch_size", "train_micro_batch_size_per_gpu"),
        ("max_grad_norm", "gradient_clipping"),
    ],
)
def test_an_argument_of_the_trainer_is_the_key_that_it_fills_in(argument: str, key: str) -> None:
    assert ask(JOB, argument).key == key
