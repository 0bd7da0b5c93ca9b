"""What is said of loading, of an evaluation and of an optimizer, by the program that does them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run

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


@pytest.mark.parametrize(
    ("own", "refused"),
    [({}, False), ({"optimizer": {"type": "SGD", "params": {"lr": 1e-3}}}, True)],
)
def test_the_trainer_lets_deepspeed_take_the_optimizer_that_it_makes(
    tmp_path: Path, own: dict[str, object], refused: bool
) -> None:
    """deepspeed_optim_sched of transformers sets zero_allow_untested_optimizer where the config has no optimizer."""
    config = {"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto", **own}
    (tmp_path / "zero2.json").write_text(json.dumps(config), encoding="utf-8")
    run = tmp_path / "run.yaml"
    run.write_text(
        "base_model: mistralai/Mistral-7B-v0.1\nadapter: lora\nlora_r: 8\nsequence_len: 1024\n"
        "micro_batch_size: 1\noptimizer: adamw_bnb_8bit\nlearning_rate: 0.0002\nbf16: true\ndeepspeed: zero2.json\n",
        encoding="utf-8",
    )
    asked = dsgen.memory({"hw": "l40s-48g", "model": "mistral-7b", "gpus": 2}, config=run)

    assert any("deepspeed.initialize stops" in note for note in asked.question.notes) is refused


def test_where_something_would_leave_the_gpu_fewer_sequences_at_once_are_said_too() -> None:
    """They cost less: LLaMA-Factory's usual LoRA of an 8B at stage 3 on four A10G."""
    wishes = {"hw": "a10g-24g", "model": "llama-3.1-8b", "gpus": 4, "method": "lora", "lora_rank": 8, "zero_stage": 3}
    run = {"seq_len": 4096, "micro_batch": 2, "accumulation": 8, "offload": "none", "checkpointing": "full"}
    changes = dsgen.memory({**wishes, **run, "expandable_segments": False}).counterfactuals.changes
    options = [dict(change.options) for change in changes]

    assert "offload" in options[0]
    assert {"micro_batch": 1, "accumulation": 16} in options


def test_of_a_base_in_4_bits_that_just_fails_two_changes_at_once_are_said() -> None:
    """Qwen2.5-32B on one RTX 4090: loading has fp32 embeddings beside it, training all logits."""
    job = {"hw": "rtx4090-24g", "model": "qwen2.5-32b", "gpus": 1, "method": "qlora", "seq_len": 2048, "micro_batch": 1}
    changes = dsgen.memory(job, target="hf-trainer").counterfactuals.changes

    assert [dict(change.options) for change in changes] == [{"chunked_loss": True, "kbit_fp32": "never"}]
    assert dsgen.memory({**job, **changes[0].options}, target="hf-trainer").verdict.value == "fits"


def test_how_a_training_file_s_program_loads_is_no_wish_of_a_person_s_either(tmp_path: Path) -> None:
    file, config = tmp_path / "sft.yaml", tmp_path / "ds.json"
    autos = dict.fromkeys(("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"), "auto")
    config.write_text(json.dumps({**autos, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}))
    file.write_text(
        f"stage: sft\nfinetuning_type: full\nper_device_train_batch_size: 1\nbf16: true\ndeepspeed: {config}\n"
    )
    kept = dsgen.adopt({"hw": "a100-80g", "model": "1b"}, str(file))

    assert kept.question.job.training.loading == "gpu-fp32"
    assert not [note for note in kept.question.notes if "does nothing" in note]
    shown = run("memory", "--args", str(file), "--hw", "a100-80g", "--model", "1b", "--zero-stage", "3")
    assert shown.code == 0, shown.err
    assert "does nothing" not in shown.out
