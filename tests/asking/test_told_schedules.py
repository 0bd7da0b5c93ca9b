"""The learning-rate schedule of a training file is the config's where its end is said in steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import run

from dsgen.asking.told_schedules import defaults, schedule
from dsgen.asking.training_arguments import read_arguments

CARD = ("--hw", "a100-80g", "--gpus", "8", "--model", "1b")


TRAINER = {"per_device_train_batch_size": 1}
TO_NOTHING = {"warmup_steps": 1, "scheduler.params.cos_min_ratio": 0.0}


@pytest.mark.parametrize(
    ("values", "ended", "wishes"),
    [
        ({"lr_scheduler_type": "linear", "max_steps": 500}, False, {"scheduler": "WarmupDecayLR", "warmup_steps": 1}),
        ({"lr_scheduler": "cosine", "max_steps": 500}, False, {"scheduler": "WarmupCosineLR", **TO_NOTHING}),
        ({"lr_scheduler_type": "linear"}, True, {"scheduler": "WarmupDecayLR", "warmup_steps": 1}),
        ({"lr_scheduler_type": "linear"}, False, {"scheduler": "program"}),
        ({"lr_scheduler_type": "constant_with_warmup"}, False, {"scheduler": "WarmupLR", "warmup_steps": 1}),
        ({"lr_scheduler_type": "polynomial", "max_steps": 500}, False, {"scheduler": "program"}),
        ({**TRAINER, "max_steps": 500}, False, {"scheduler": "WarmupDecayLR", "warmup_steps": 1}),
        (TRAINER, False, {"scheduler": "program"}),
        ({"tuner_type": "lora", "max_steps": 500}, False, {"scheduler": "WarmupCosineLR", **TO_NOTHING}),
        ({"warmup_steps": 20}, False, {"warmup_steps": 20}),
        ({"warmup_ratio": 0.03, "max_steps": 501}, False, {"warmup_steps": 16}),
        ({"warmup_steps": 0.1, "max_steps": 500}, False, {"warmup_steps": 50}),
        ({"warmup_ratio": 0.03}, True, {}),
    ],
)
def test_a_schedule_is_the_one_of_deepspeed_that_falls_alike(
    values: dict[str, Any], ended: bool, wishes: dict[str, Any]
) -> None:
    assert {path.removeprefix("training."): value for path, value in schedule(values, ended)} == wishes


def test_a_schedule_that_is_computed_or_a_script_s_own_is_not_guessed() -> None:
    assert not [*schedule(TRAINER, True, computed=("lr_scheduler_type",))]
    assert not [*schedule(TRAINER, True, known=False)]
    assert [*schedule(TRAINER | {"lr_scheduler_type": "linear"}, True, known=False)] == [
        ("training.scheduler", "WarmupDecayLR")
    ]


def test_a_schedule_without_an_end_is_left_to_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sft.yaml").write_text("per_device_train_batch_size: 1\nbf16: true\nlr_scheduler_type: cosine\n")

    open_ended = run("render", "--args", "sft.yaml", *CARD)
    assert "scheduler" not in json.loads(open_ended.out)
    assert "learning rate 5e-05; its schedule is left to the program" in open_ended.err
    ended = run("render", "--args", "sft.yaml", *CARD, "--total-steps", "1000")
    assert json.loads(ended.out)["scheduler"]["params"]["cos_min_ratio"] == 0.0
    run("render", "--args", "sft.yaml", *CARD, "--target", "hf-trainer", "-o", "ds_config.json")
    written = Path("training_args.yaml").read_text()
    assert "lr_scheduler_type, warmup_steps and num_train_epochs are left to your own arguments" in written
    assert "lr_scheduler_type:" not in written


def test_what_a_file_leaves_out_has_its_program_s_default_so_that_the_config_agrees() -> None:
    trainer = {"lr": 5e-5, "weight_decay": 0.0, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "gradient_clipping": 1.0}
    trl = {"use_peft": True}

    assert of(TRAINER) == trainer
    assert of(TRAINER | {"learning_rate": 1e-5}) == {name: value for name, value in trainer.items() if name != "lr"}
    assert "lr" not in dict(defaults(TRAINER, computed=("learning_rate",)))
    assert of({"bf16": True}) == {}
    assert [of(trl | more)["lr"] for more in ({}, {"beta": 0.1}, {"trl_config": "Reward"})] == [2e-5, 1e-6, 1e-4]
    swift = [of({"tuner_type": kind}) for kind in ("full", "lora")]
    assert [(one["lr"], one["beta2"], one["weight_decay"]) for one in swift] == [(1e-5, 0.95, 0.1), (1e-4, 0.95, 0.1)]
    assert "lr" not in of({"sequence_len": 2048})


def of(values: dict[str, Any]) -> dict[str, float]:
    return {path.removeprefix("training."): value for path, value in defaults(values)}


def test_a_python_program_s_trainer_says_whose_default_it_is(tmp_path: Path) -> None:
    program = tmp_path / "dpo.py"
    program.write_text("DPOTrainer(model='Qwen/Qwen2.5-7B', args=DPOConfig(bf16=True))\n")

    assert dict(defaults(read_arguments(str(program)).values))["training.lr"] == 1e-6


def test_how_long_it_lasts_and_its_schedule_go_into_the_file_of_the_same_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = "per_device_train_batch_size: 1\nnum_train_epochs: 2.0\nlr_scheduler_type: cosine\nwarmup_ratio: 0.1\n"
    Path("sft.yaml").write_text(f"{said}finetuning_type: lora\n")

    run("render", "--args", "sft.yaml", *CARD, "--target", "llama-factory", "-o", "ds_config.json")

    written = Path("llama_factory.yaml").read_text().splitlines()
    assert {"num_train_epochs: 2.0", "lr_scheduler_type: cosine", "warmup_ratio: 0.1"} <= {*written}
