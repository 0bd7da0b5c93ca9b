"""`dsgen effective` and `dsgen lint` say the same of a config: who loads it, whether it runs, and as what."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from effective_checks import contradictions

from dsgen.asking import handovers
from dsgen.documents.hjson import reader
from dsgen.effective import load_many
from dsgen.linting import rules
from dsgen.linting.taken import Handover, taken
from dsgen.linting.told_arguments import arguments_of
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.findings import Severity

TRAINER: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}},
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}},
}
ARGUMENTS = """per_device_train_batch_size: 4
gradient_accumulation_steps: 2
learning_rate: 2e-5
bf16: true
adam_beta1: 0.9
adam_beta2: 0.95
"""


def put(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_the_program_is_the_one_that_lint_takes(tmp_path: Path) -> None:
    trainer = taken(put(tmp_path, "auto.json", json.dumps(TRAINER)))
    plain = taken(put(tmp_path, "plain.json", '{"train_batch_size": 8}'))

    assert trainer is not None and trainer.source.target == "hf-trainer"
    assert plain is not None and plain.source.target == "deepspeed"
    put(tmp_path, "pyproject.toml", '[tool.dsgen.lint]\ntarget = "accelerate"\n')
    settled = taken(str(tmp_path / "plain.json"))
    assert settled is not None and settled.source.target == "accelerate"


def test_arguments_fill_in_every_auto_that_they_say(tmp_path: Path) -> None:
    told = taken(TRAINER, arguments=put(tmp_path, "args.yaml", ARGUMENTS))

    assert told is not None
    assert told.source.target == "hf-trainer"
    assert {key: told.told[key] for key in ("bf16.enabled", "fp16.enabled", "optimizer.params.betas")} == {
        "bf16.enabled": True, "fp16.enabled": False, "optimizer.params.betas": [0.9, 0.95]
    }  # fmt: skip
    assert told.told["train_micro_batch_size_per_gpu"] == 4


def test_a_training_file_fills_in_the_config_that_it_names(tmp_path: Path) -> None:
    put(tmp_path, "ds.json", json.dumps(TRAINER))
    told = taken(put(tmp_path, "train.yaml", "deepspeed: ds.json\nper_device_train_batch_size: 4\n"))

    assert told is not None and dict(told.told) == {"train_micro_batch_size_per_gpu": 4}


def test_arguments_that_differ_are_an_error(tmp_path: Path) -> None:
    told = taken({**TRAINER, "train_micro_batch_size_per_gpu": 2}, arguments=put(tmp_path, "args.yaml", ARGUMENTS))

    assert told is not None
    assert [item.rule for item in told.judged("0.19").findings if item.severity is Severity.ERROR] == [
        "argument-disagrees"
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [("output_dir: out\n", "no argument that the Trainer"), ("- 1\n", "map of arguments"), ("a: [\n", "args.yaml:")],
)
def test_arguments_that_are_none(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(DsgenError, match=says):
        arguments_of(put(tmp_path, "args.yaml", text))


def test_arguments_are_the_trainers(tmp_path: Path) -> None:
    with pytest.raises(DsgenError, match="handed over by deepspeed"):
        taken(TRAINER, target="deepspeed", arguments=put(tmp_path, "args.yaml", ARGUMENTS))


def examples() -> list[Handover]:
    """The rules' own examples that are configs, each for its program."""
    texts = [(rule.example, rule.given.get("target")) for rule in rules.RULES if rule.reads == "config"]
    configs = [(reader.read(text, "example").config, target) for text, target in texts]
    every = [taken(config, target=target) for config, target in configs if isinstance(config, dict)]
    return [one for one in every if one is not None]


@pytest.mark.proof
@pytest.mark.usefixtures("warm")
def test_no_example_of_a_rule_is_told_otherwise() -> None:
    every = examples()
    wrong = []
    for target in {one.source.target for one in every}:
        chosen = [one for one in every if one.source.target == target]
        loaded = load_many([one.source.document.config for one in chosen], target=target, world_size=None)
        wrong += [fault for one, effect in zip(chosen, loaded, strict=True) for fault in contradictions(one, effect)]

    assert len(every) > 100
    assert wrong == []


@pytest.mark.proof
@pytest.mark.usefixtures("warm")
def test_with_arguments_the_run_is_told_in_numbers(tmp_path: Path) -> None:
    effect = handovers.effective(TRAINER, arguments=put(tmp_path, "args.yaml", ARGUMENTS), world_size=8)

    assert effect.refused is None and effect.answers is not None
    said = effect.answers
    assert (said.train_batch_size, said.micro_batch, said.accumulation) == (64, 4, 2)
    assert (said.dtype, said.lr, said.stage, said.offload_parameters) == ("bf16", 2e-5, 2, "none")


@pytest.mark.proof
@pytest.mark.usefixtures("warm")
def test_what_stops_the_program_is_refused(tmp_path: Path) -> None:
    effect = handovers.effective(
        {**TRAINER, "train_micro_batch_size_per_gpu": 2}, arguments=put(tmp_path, "args.yaml", ARGUMENTS)
    )

    assert effect.refused is not None
    assert (effect.refused.phase, effect.refused.kind) == ("run", "argument-disagrees (DSG926)")


# A config with one fault, its program -> the key that is to blame.
BLAMED = [
    ({**TRAINER, "wall_clock_breakdown": None}, "hf-trainer", "wall_clock_breakdown"),
    ({**TRAINER, "bf16": "auto"}, "hf-trainer", "bf16"),
    ({**TRAINER, "optimizer": {"type": "AdamW", "params": {"lr": "auto", "bteas": 1}}}, "hf-trainer", "bteas"),
    ({**TRAINER, "flops_profiler": {"enabled": "8"}}, "hf-trainer", "flops_profiler.enabled"),
    ({**TRAINER, "train_micro_batch_size_per_gpu": "8"}, "hf-trainer", "train_micro_batch_size_per_gpu"),
    ({"train_batch_size": "8", "wall_clock_breakdown": "auto"}, "deepspeed", "wall_clock_breakdown"),
    ({"train_batch_size": [8]}, "deepspeed", "train_batch_size"),
    ({"train_batch_size": 8, "optimizer": {"type": []}}, "deepspeed", "optimizer.type"),
    ({"train_batch_size": 8, "gradient_accumulation_steps": 3}, "accelerate", "zero_optimization"),
    ({**TRAINER, "monitor_config": "auto"}, "hf-trainer", "monitor_config"),
    ({"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1, "a": {"b": "auto"}}, "accelerate", "a.b"),
    ({"gradient_accumulation_steps": 2, "fp16": True}, "lightning", "gradient_accumulation_steps"),
]


@pytest.mark.proof
@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(("config", "target", "key"), BLAMED)
def test_the_key_that_stops_the_program_is_blamed(config: dict[str, Any], target: str, key: str) -> None:
    effect = handovers.effective(config, target=target)

    assert effect.refused is not None
    assert key in effect.refused.sentence.partition(" ")[0] or f"argument {key}" in effect.refused.sentence


@pytest.mark.proof
@pytest.mark.usefixtures("warm")
def test_a_schedule_below_zero_is_loaded() -> None:
    """DeepSpeed takes negative rates, so they are shown and not refused."""
    params = {"cycle_min_lr": -3, "cycle_max_lr": -1}
    config = {"train_batch_size": 8, "optimizer": {"type": "Adam"}, "scheduler": {"type": "OneCycle", "params": params}}
    effect = handovers.effective(config, target="deepspeed")

    assert effect.refused is None and effect.answers is not None
    assert effect.answers.highest_lr == -1


@pytest.mark.proof
@pytest.mark.usefixtures("warm")
def test_a_name_with_dots_is_no_key() -> None:
    config = {**TRAINER, "zero_optimization.reduce_bucket_size": "auto", "zero_optimization.stage": 3}
    effect = handovers.effective(config, target="hf-trainer")

    assert effect.refused is None and effect.answers is not None
    assert {row.path: row.happened for row in effect.rows if "dots" in (row.note or "")} == {
        "zero_optimization.reduce_bucket_size": "not read", "zero_optimization.stage": "not read"
    }  # fmt: skip
    assert effect.answers.stage == 2


@pytest.mark.proof
@pytest.mark.usefixtures("warm")
def test_what_the_program_overwrites_and_works_out_is_told(tmp_path: Path) -> None:
    """Accelerate's infinity for steps_per_print, the Trainer's 0 for warmup_min_lr, and the product of the batch."""
    names = ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps")
    schedule = {"type": "WarmupLR", "params": dict.fromkeys(names, "auto")}
    config = {**TRAINER, "steps_per_print": 10, "train_batch_size": "auto", "scheduler": schedule}
    arguments = put(tmp_path, "args.yaml", f"{ARGUMENTS}warmup_steps: 10\n")
    effect = handovers.effective(config, arguments=arguments, world_size=8)

    rows = {row.path: (row.in_force, row.happened) for row in effect.rows}
    assert rows["steps_per_print"] == (math.inf, "changed")
    assert rows["train_batch_size"] == (64, "filled in")
    assert rows["scheduler.params.warmup_min_lr"] == (0, "filled in")
    assert effect.answers is not None
    assert (effect.answers.first_lr, effect.answers.highest_lr) == (0.0, pytest.approx(2e-5))
