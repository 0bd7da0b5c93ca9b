"""How many sequences an evaluation takes at a time: an option, a training file, or the Trainer's default."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import run

import dsgen
from dsgen.asking.memory_questions import EVALUATED, Question, answer, ask, ask_config
from dsgen.asking.training_arguments import beside
from dsgen.cli import main
from dsgen.linting import config_reader

CONFIG = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
WANTED = {"hw": "a100-40g", "model": "1b", "gpus": 8, "seq_len": 2048}
# A job that trains, and whose evaluation of 8 sequences is too much.
TIGHT = ("--hw", "a100-40g", "--model", "7b", "--gpus", "8", "--zero-stage", "3", "--offload", "none",
         "--micro-batch", "1", "--seq-len", "16384", "--checkpointing", "full")  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ds.json").write_text(CONFIG)


def of(path: str) -> Question:
    return ask_config(dsgen.job(WANTED), config_reader.read(path))


def evaluated(question: Question) -> list[str]:
    return [one.phase.phase for one in answer(question).later if one.noun == "evaluation"]


def test_without_a_word_it_is_the_trainers_default() -> None:
    question = of("ds.json")

    assert (question.evaluated, EVALUATED in question.said) == (8, False)
    assert evaluated(question) == ["evaluate 8 sequences"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.yaml", "deepspeed: ds.json\nper_device_eval_batch_size: 2\n"),
        ("axolotl.yaml", "base_model: x\neval_batch_size: 2\ndeepspeed: ds.json\n"),
        ("train.sh", "deepspeed train.py --deepspeed ds.json --per_device_eval_batch_size 2\n"),
    ],
)
def test_a_training_file_says_it(name: str, text: str) -> None:
    Path(name).write_text(text)
    question = of(name)

    assert question.evaluated == 2
    assert question.said[EVALUATED].by.startswith(name)
    assert evaluated(question) == ["evaluate 2 sequences"]


@pytest.mark.parametrize(
    ("text", "sequences"),
    [
        ("base_model: x\nsequence_len: 2048\nmicro_batch_size: 3\n", 0),
        ("base_model: x\nsequence_len: 2048\nmicro_batch_size: 3\nval_set_size: 0.0\n", 0),
        ("base_model: x\nsequence_len: 2048\nmicro_batch_size: 3\nval_set_size: 0.05\n", 3),
        ("finetuning_type: full\nbf16: true\n", 0),
        ("finetuning_type: full\nbf16: true\nval_size: 0.1\neval_strategy: steps\n", 8),
        ("finetuning_type: full\nbf16: true\neval_strategy: 'no'\n", 0),
        ("tuner_type: full\nbf16: true\n", 0),
        ("tuner_type: full\nbf16: true\nsplit_dataset_ratio: 0.01\n", 1),
        ("use_peft: false\nbf16: true\n", 0),
        ("use_peft: false\nbf16: true\neval_strategy: epoch\n", 8),
        ("use_peft: false\nbf16: true\nevaluation_strategy: steps\n", 8),  # as it was called before
        ("bf16: true\n", 8),  # a program of one's own may evaluate by itself
    ],
)
def test_a_program_evaluates_what_its_file_gives_it(text: str, sequences: int) -> None:
    """Axolotl its micro-batch, LLaMA-Factory the Trainer's default, and neither without something to evaluate."""
    Path("train.yaml").write_text(f"deepspeed: ds.json\n{text}")
    question = of("train.yaml")

    assert question.evaluated == sequences
    words = f"evaluate {sequences} sequence{'s' if sequences > 1 else ''}"
    assert evaluated(question) == ([words] if sequences else [])
    shown = run("memory", "--hw", "a100-40g", "--model", "1b", "--args", "train.yaml").out  # the job, and no config
    assert (words in shown) is bool(sequences)
    assert ("evaluate" in shown) is bool(sequences)


def test_a_person_wins_over_the_file_and_0_is_no_evaluation() -> None:
    Path("train.yaml").write_text("deepspeed: ds.json\nper_device_eval_batch_size: 2\n")
    question = of("train.yaml")

    assert evaluated(question.evaluating(3, "--eval-batch")) == ["evaluate 3 sequences"]
    assert evaluated(question.evaluating(0, "--eval-batch")) == []


def test_what_else_is_told_is_of_that_batch_too() -> None:
    question = ask(dsgen.job({**WANTED, "zero_stage": 3}))
    few, many = (answer(question.evaluating(size, "--eval-batch")) for size in (1, 64))

    assert few.evaluation is not None and many.evaluation is not None
    assert few.evaluation.peak_bytes < many.evaluation.peak_bytes
    assert few.most_evaluated == many.most_evaluated


@pytest.mark.parametrize(("size", "warned"), [(None, True), ("16", True), ("1", False), ("0", False)])
def test_the_option_is_heard(size: str | None, warned: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["memory", *TIGHT, *(("--eval-batch", size) if size else ())])
    out, err = capsys.readouterr()

    assert ("evaluation of" in err) is warned
    assert ("the Trainer's default" in out) is (size is None)
    assert ("evaluate" in out) is (size != "0")


ARGUMENTS = "args = TrainingArguments(per_device_train_batch_size=1{})\n"


@pytest.mark.parametrize(
    ("text", "sequences"),
    [
        (ARGUMENTS.format(""), 0),
        (ARGUMENTS.format(', eval_strategy="no"'), 0),
        (ARGUMENTS.format(', eval_strategy="steps"'), 8),
        (ARGUMENTS.format(", eval_strategy=when"), 8),
        (ARGUMENTS.format(", do_eval=True"), 8),
        (ARGUMENTS.format(", **others"), 8),
        (ARGUMENTS.format("") + "trainer.evaluate()\n", 8),
        (ARGUMENTS.format(", per_device_eval_batch_size=4"), 4),
    ],
)
def test_a_program_of_the_trainers_evaluates_where_its_arguments_or_itself_say_so(text: str, sequences: int) -> None:
    Path("train.py").write_text(text)
    source, _ = beside(config_reader.read("ds.json"), "train.py")
    question = ask_config(dsgen.job(WANTED), source)

    assert question.evaluated == sequences
    assert evaluated(question) == ([f"evaluate {sequences} sequences"] if sequences else [])
