"""What the arguments of a program settle in the config that it hands over: no noise of what will not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsgen.linting.asked import lint
from dsgen.linting.files import Linted, lint_files
from dsgen.linting.settings import Settings
from dsgen.linting.told_arguments import arguments_of
from dsgen.shapes.errors import DsgenError

HIGH = "initial-loss-scale-too-high"
UNSCALED = "fp16-without-zero"
NAME = "ds.json"


def config(stage: int) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 32},
        "zero_optimization": {"stage": stage},
    }


def put(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def said(folder: Path, stage: int, *scripts: str) -> set[str]:
    """The rules that speak of the config when these commands lie beside it."""
    put(folder, NAME, json.dumps(config(stage)))
    files = [put(folder, f"run{number}.sh", f"{text}\n") for number, text in enumerate(scripts)]
    linted = [one for one in lint_files(files or [str(folder / NAME)], Settings()) if isinstance(one, Linted)]
    [ours] = [one for one in linted if one.document.name.endswith(NAME)]
    return {finding.rule for finding in ours.findings}


def command(*words: str) -> str:
    return " ".join(("deepspeed train.py --deepspeed ds.json", *words))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_script_that_says_bf16_leaves_no_word_of_fp16(tmp_path: Path) -> None:
    assert HIGH not in said(tmp_path, 2)  # nobody says which dtype runs
    assert HIGH not in said(tmp_path, 2, command("--bf16 True"))
    assert HIGH in said(tmp_path, 2, command("--fp16 True"))


def test_a_script_that_says_fp16_at_stage_0_is_warned_of_the_unscaled_loss(tmp_path: Path) -> None:
    assert UNSCALED not in said(tmp_path, 0)
    assert UNSCALED in said(tmp_path, 0, command("--fp16"))
    assert UNSCALED not in said(tmp_path, 0, command("--bf16"))


def test_trainings_that_say_different_things_settle_nothing(tmp_path: Path) -> None:
    assert HIGH not in said(tmp_path, 2, command("--bf16 True"), command("--fp16 True"))
    assert HIGH not in said(tmp_path, 2, command("--fp16 True"), command("--learning_rate 1e-5"))
    assert HIGH in said(tmp_path, 2, command("--fp16 True"), command("--fp16 True --learning_rate 1e-5"))


def test_a_file_of_arguments_settles_the_same(tmp_path: Path) -> None:
    bf16 = put(tmp_path, "bf16.yaml", "bf16: true\n")
    fp16 = put(tmp_path, "fp16.json", '{"fp16": true}')

    assert {finding.rule for finding in lint(config(2), arguments=bf16).findings} == set()
    assert UNSCALED in {finding.rule for finding in lint(config(0), arguments=fp16).findings}
    assert lint({"fp16": {"enabled": True}}, arguments=bf16).target == "hf-trainer"


ARGUMENTS = {"output_dir": "o", "per_device_train_batch_size": 4}


@pytest.mark.parametrize("name", ["train.json", "train.yaml"])  # JSON is YAML too
@pytest.mark.parametrize(("dtype", "rules"), [("fp16", {UNSCALED}), ("bf16", set()), ("tf32", set())])
def test_the_arguments_beside_an_inline_config_settle_it(
    tmp_path: Path, name: str, dtype: str, rules: set[str]
) -> None:
    file = put(tmp_path, name, json.dumps({**ARGUMENTS, dtype: True, "deepspeed": config(0)}))
    [linted] = [one for one in lint_files([file], Settings()) if isinstance(one, Linted)]

    assert linted.target == "hf-trainer"
    assert {finding.rule for finding in linted.findings} == rules


def test_a_file_of_arguments_is_compared_too(tmp_path: Path) -> None:
    arguments = put(tmp_path, "a.yaml", "learning_rate: 1.0e-5\n")
    fixed = {**config(2), "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}

    [finding] = [one for one in lint(fixed, arguments=arguments).findings if one.rule == "argument-disagrees"]

    assert finding.path == "optimizer.params.lr"


def test_arguments_of_the_trainer_are_no_other_programs(tmp_path: Path) -> None:
    arguments = put(tmp_path, "a.yaml", "bf16: true\n")

    with pytest.raises(DsgenError, match="handed over by deepspeed"):
        lint(config(2), arguments=arguments, target="deepspeed")


def test_a_config_in_accelerate_s_file_is_compared_with_the_trainer_s_arguments(tmp_path: Path) -> None:
    arguments = put(tmp_path, "a.yaml", "per_device_train_batch_size: 2\ngradient_accumulation_steps: 8\n")
    launched = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: {}\n"
    differs, agrees = (put(tmp_path, f"acc{steps}.yaml", launched.format(steps)) for steps in (4, 8))

    [finding] = lint(differs, arguments=arguments).findings
    assert (finding.rule, finding.line) == ("argument-disagrees", 4)
    assert not lint(agrees, arguments=arguments).findings
    with pytest.raises(DsgenError, match="handed over by accelerate"):
        lint(differs, arguments=arguments, target="accelerate")


def test_a_python_program_s_arguments_are_compared_where_they_stand(tmp_path: Path) -> None:
    text = 'größe = "é"; args = TrainingArguments(\n    bf16=True,  # é\n    per_device_train_batch_size=2)\n'
    program = put(tmp_path, "train.py", text)
    file = put(tmp_path, NAME, json.dumps({**config(2), "train_micro_batch_size_per_gpu": 8}))

    (linted,) = lint_files([file], Settings(arguments=program))
    messages = [one.message for one in linted.findings if one.rule == "argument-disagrees"]
    micro = next(one for one in arguments_of(program) if one.key == "train_micro_batch_size_per_gpu")

    assert [f"per_device_train_batch_size is 2 in {program}:3" in message for message in messages] == [True]
    assert text[micro.span.start : micro.span.end] == "2"


def test_a_python_program_is_no_config(tmp_path: Path) -> None:
    program = put(tmp_path, "train.py", "TrainingArguments(bf16=True)\n")

    with pytest.raises(DsgenError, match="it is a Python program") as error:
        lint(program)
    assert f"dsgen lint ds_config.json --args {program}" in str(error.value.todo)


DISAGREEING: dict[str, Any] = {
    **config(2),
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-5, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": "auto"}},
}
LEFT_OUT = {"bf16.enabled", "optimizer.params.lr", "optimizer.params.betas[1]"}


@pytest.mark.parametrize(
    ("call", "differ"),
    [
        ("TrainingArguments(output_dir='out')", LEFT_OUT),
        ("transformers.Seq2SeqTrainingArguments('out', learning_rate=3e-5)", LEFT_OUT - {"optimizer.params.lr"}),
        ("TrainingArguments(bf16=has_bf16(), learning_rate=RATE)", {"optimizer.params.betas[1]"}),
        ("TrainingArguments(max_grad_norm=1.0, **told)", set()),
        ("SFTConfig(max_grad_norm=1.0)", set()),  # which has defaults of its own
        ("OurTrainingArguments(max_grad_norm=1.0)", set()),
    ],
)
def test_what_a_python_program_leaves_out_is_compared_by_its_default(
    tmp_path: Path, call: str, differ: set[str]
) -> None:
    """As transformers compares: HfTrainerDeepSpeedConfig.trainer_config_process refuses what is not as its default."""
    program = put(tmp_path, "train.py", f"args = {call}\n")
    (linted,) = lint_files([put(tmp_path, NAME, json.dumps(DISAGREEING))], Settings(arguments=program))
    found = [one for one in linted.findings if one.rule == "argument-disagrees"]

    assert {one.path for one in found} == differ
    assert all("by default in" in one.message for one in found)


def test_a_program_that_computes_its_arguments_is_told_which(tmp_path: Path) -> None:
    text = "args = DPOConfig(learning_rate=told['lr'], bf16=told.get('bf16', True), output_dir=told['out'])\n"
    with pytest.raises(DsgenError, match="it computes learning_rate and bf16 while it runs, and no program is run"):
        arguments_of(put(tmp_path, "train.py", text))
    with pytest.raises(DsgenError, match="it has no argument that the Trainer fills into a config"):
        arguments_of(put(tmp_path, "other.py", "args = DPOConfig(output_dir=told['out'])\n"))


def test_what_a_program_unpacks_stands_where_it_is_unpacked(tmp_path: Path) -> None:
    text = 'ARGUMENTS = {"learning_rate": 1e-5}\n\nTrainingArguments(\n    bf16=True,\n    **ARGUMENTS,\n)\n'
    program = put(tmp_path, "train.py", text)
    fixed = {**config(2), "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}

    [finding] = [one for one in lint(fixed, arguments=program).findings if one.rule == "argument-disagrees"]

    assert f"learning_rate is 1e-05 in {program}:5" in finding.message
