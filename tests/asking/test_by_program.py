"""What is said of loading and of an evaluation, by the program that does them."""

from __future__ import annotations

import pytest

import dsgen
from dsgen.report import memory as report

JOB = {"hw": "a10g-24g", "model": "qwen2.5-7b", "gpus": 8, "seq_len": 8192, "method": "lora", "zero_stage": 2}
NOTHING = "training.loading {way} (python) does nothing: under zero.Init stage 3 makes each module in bf16"


def told(target: str | None = None, **wishes: object) -> str:
    return " ".join(report.text(dsgen.memory({**JOB, **wishes}, target=target)).split())


@pytest.mark.parametrize("target", [None, "hf-trainer", "llama-factory"])
def test_the_trainer_s_evaluation_is_the_trainer_s(target: str | None) -> None:
    """What `render --target` writes is no default any more."""
    text = told(target)

    assert "a number that your program decides" not in text
    assert ("which is the Trainer's default" in text) is (target is None)


@pytest.mark.parametrize("target", ["accelerate", "deepspeed", "lightning"])
@pytest.mark.parametrize("vocabulary", ["qwen2.5-7b", "opt-1.3b"])
def test_a_program_of_its_own_has_no_default_of_the_trainer_s(target: str, vocabulary: str) -> None:
    text = told(target, model=vocabulary, seq_len=2048 if "opt" in vocabulary else 8192)

    assert "Trainer's default" not in text
    assert "per_device_eval_batch_size" not in text
    if vocabulary == "qwen2.5-7b":
        assert "an evaluation of 8 sequences, a number that your program decides, takes up to" in text


def test_fewer_sequences_are_said_as_the_program_takes_them() -> None:
    small = {"model": "llama-3.2-1b", "seq_len": 4096}

    assert "GiB: evaluate at most " in told("accelerate", **small)
    assert "GiB: say per_device_eval_batch_size=" in told(**small)


@pytest.mark.parametrize("way", ["fp32", "gpu", "gpu-fp32", "copied"])
def test_a_way_of_loading_that_zero_init_replaces_is_said(way: str) -> None:
    asked = dsgen.memory({**JOB, "zero_stage": 3, "loading": way})

    assert any(note.startswith(NOTHING.format(way=way)) for note in asked.question.notes)


@pytest.mark.parametrize(
    "more",
    [
        {"zero_stage": 2, "loading": "fp32"},
        {"zero_stage": 3, "loading": "fp32", "zero_init": False},
        {"zero_stage": 3, "loading": "fp32", "method": "qlora"},
        {"zero_stage": 3, "loading": "mapped"},
        {"zero_stage": 3},
    ],
)
def test_where_it_counts_or_nothing_is_asked_nothing_is_said(more: dict[str, object]) -> None:
    assert not [note for note in dsgen.memory({**JOB, **more}).question.notes if "loading" in note]


def test_what_the_program_decides_is_no_wish_of_a_person_s() -> None:
    asked = dsgen.memory({**JOB, "zero_stage": 3}, target="llama-factory")

    assert not [note for note in asked.question.notes if "loading" in note]
