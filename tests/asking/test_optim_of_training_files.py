"""The optimizer that a training file says its program makes, where the config has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.asking.memory_questions import Question, ask_config
from dsgen.linting import config_reader

CONFIG = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
OWN = CONFIG[:-1] + ', "optimizer": {"type": "Adam", "params": {}}}'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ds.json").write_text(CONFIG)


def asked(name: str, text: str, **training: Any) -> Question:
    Path(name).write_text(text)
    wanted = dsgen.profile("a100-40g") | dsgen.profile("1b") | {"cluster": {"gpus": 8}, "training": training}
    return ask_config(dsgen.job(wanted), config_reader.read(name))


def told(question: Question) -> list[str]:
    return [note for note in question.notes if "is counted as" in note]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.yaml", "deepspeed: ds.json\noptim: paged_adamw_8bit\n"),
        ("axolotl.yaml", "base_model: x\noptimizer: paged_adamw_8bit\ndeepspeed: ds.json\n"),
        ("train.sh", "deepspeed train.py --deepspeed ds.json --optim paged_adamw_8bit\n"),
    ],
)
def test_it_is_what_the_program_makes(name: str, text: str) -> None:
    question = asked(name, text)

    assert question.job.training.optimizer == "AdamW8bit"
    assert question.said["optimizer"].by.startswith(name)
    assert [note.partition(" (")[0] for note in told(question)] == ["paged_adamw_8bit"]


def test_the_config_and_a_person_win_over_it() -> None:
    text = "deepspeed: ds.json\noptim: adamw_bnb_8bit\n"

    assert asked("train.yaml", text, optimizer="Lion").job.training.optimizer == "Lion"
    assert asked("train.yaml", text).job.training.optimizer == "AdamW8bit"
    assert told(asked("train.yaml", text)) == []
    Path("ds.json").write_text(OWN)
    assert asked("train.yaml", text).job.training.optimizer == "Adam"


def test_one_that_is_not_known_is_counted_as_the_default_and_named() -> None:
    question = asked("train.yaml", "deepspeed: ds.json\noptim: adafactor\n")

    assert question.job.training.optimizer == "AdamW"
    assert told(question) == ["adafactor (train.yaml:2) is counted as AdamW"]
