"""`zero3_init_flag` of Accelerate: who says it, which releases obey it, and what wins over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.asking.memory_questions import Question, ask_config
from dsgen.cli.simulated_config import _of_zero_init
from dsgen.linting import config_reader

FILE = """distributed_type: DEEPSPEED
mixed_precision: bf16
num_processes: 2
deepspeed_config:
  zero_stage: {stage}
  zero3_init_flag: {flag}
"""
NAMES = """distributed_type: DEEPSPEED
num_processes: 2
deepspeed_config:
  deepspeed_config_file: ds.json
  zero3_init_flag: false
"""
OLD = {"transformers": "4.45"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def asked(path: str = "acc.yaml", **training: Any) -> Question:
    wanted = dsgen.profile("rtx4090-24g") | dsgen.profile("7b") | {"cluster": {"gpus": 2}, "training": training}
    return ask_config(dsgen.job(wanted), config_reader.read(path))


def write(flag: str, stage: int = 3) -> None:
    Path("acc.yaml").write_text(FILE.format(stage=stage, flag=flag))


def of_the_flag(question: Question) -> list[str]:
    return [note for note in question.notes if "zero3_init_flag" in note]


@pytest.mark.parametrize("flag", ["false", "'False'", "0"])
def test_an_accelerate_before_1_makes_no_model_under_zero_init_where_it_is_false(flag: str) -> None:
    write(flag)
    question = asked(**OLD)

    assert question.job.training.zero_init is False
    assert question.said["zero init"].by == "acc.yaml:6"
    assert len(of_the_flag(question)) == 1


@pytest.mark.parametrize("release", [None, "4.46", "5"])
def test_an_accelerate_from_1_on_does_not_obey_it_which_a_note_says(release: str | None) -> None:
    write("false")
    question = asked(**({"transformers": release} if release else {}))

    assert question.job.training.zero_init is True
    assert "zero init" not in question.said
    assert ["--no-zero-init" in note for note in of_the_flag(question)] == [True]


@pytest.mark.parametrize(("flag", "stage"), [("true", 3), ("false", 2), ("null", 3), ("perhaps", 3)])
def test_nothing_is_said_where_it_changes_nothing(flag: str, stage: int) -> None:
    write(flag, stage)
    question = asked(**OLD)

    assert question.job.training.zero_init is True
    assert of_the_flag(question) == []


@pytest.mark.parametrize("said", [True, False])
def test_a_person_wins_over_the_file(said: bool) -> None:
    write("false")
    question = asked(**OLD, zero_init=said)

    assert question.job.training.zero_init is said
    assert of_the_flag(question) == []


@pytest.mark.parametrize("path", ["names.yaml", "ds.json", "run.sh"])
def test_it_holds_for_the_config_that_the_file_names(path: str) -> None:
    Path("ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}')
    Path("names.yaml").write_text(NAMES)
    Path("run.sh").write_text("accelerate launch --config_file names.yaml train.py\n")

    assert asked(path, **OLD).job.training.zero_init is (path == "ds.json")  # which says nothing of who names it


def test_the_launchers_option_wins_over_its_file() -> None:
    Path("ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}')
    Path("names.yaml").write_text(NAMES)
    Path("run.sh").write_text("accelerate launch --config_file names.yaml --zero3_init_flag true train.py\n")

    assert asked("run.sh", **OLD).job.training.zero_init is True


@pytest.mark.parametrize(("flags", "made"), [(["false", "false"], False), (["false", "true"], True)])
def test_trainings_that_differ_say_nothing_of_their_config(flags: list[str], made: bool) -> None:
    Path("ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}')
    words = "accelerate launch --use_deepspeed --deepspeed_config_file ds.json --zero3_init_flag"
    Path("run.sh").write_text("".join(f"{words} {flag} train.py\n" for flag in flags))

    assert asked("run.sh", **OLD).job.training.zero_init is made


@pytest.mark.parametrize(("flag", "stage", "warned"), [("false", 3, True), ("true", 3, False), ("false", 2, False)])
def test_a_simulation_runs_the_newest_and_says_that_it_is_not_obeyed(flag: str, stage: int, warned: bool) -> None:
    write(flag, stage)
    told = _of_zero_init(config_reader.read("acc.yaml"))

    assert (told is not None and "--no-zero-init" in told) is warned
