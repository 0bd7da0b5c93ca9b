"""At how many tokens a program of the Trainer cuts its samples where it tokenizes them: that is their length."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsgen.asking.training_arguments import read_arguments
from dsgen.linting.python_programs import told_by

CUT = 'tokenizer(x["text"], truncation=True, max_length=2048)'
ARGUMENTS = "args = TrainingArguments(per_device_train_batch_size=2, bf16=True)"


def length(*lines: str, arguments: str = ARGUMENTS) -> object:
    return told_by("\n".join([*lines, arguments]), "train.py").get("max_length")


@pytest.mark.parametrize(
    "lines",
    [
        (f"data = data.map(lambda x: {CUT})",),
        ("LONGEST = 2048", CUT.replace("2048", "LONGEST")),
        (CUT.replace("True", '"longest_first"'),),
        (CUT, CUT, "tokenizer(prompt, max_length=7)"),
        ("def tokenize(x):", f"    return {CUT}"),
    ],
)
def test_what_every_call_with_truncation_says_is_the_length(lines: tuple[str, ...]) -> None:
    assert length(*lines) == 2048


@pytest.mark.parametrize(
    "lines",
    [
        ("tokenizer(text)",),
        (CUT.replace("True", "False"),),
        (CUT.replace("2048", "None"),),
        (CUT, CUT.replace("2048", "512")),
        (CUT, CUT.replace("2048", "longest")),
    ],
)
def test_where_one_says_another_or_hides_it_nobody_knows(lines: tuple[str, ...]) -> None:
    assert length(*lines) is None


def test_a_length_of_the_arguments_counts_more_and_of_trl_alone() -> None:
    assert length(CUT, arguments="args = SFTConfig(max_length=4096)") == 4096
    assert length(CUT, arguments="args = SFTConfig(bf16=True)") is None
    assert length(CUT, arguments="args = Seq2SeqTrainingArguments(bf16=True)") is None


def test_it_is_the_length_that_is_planned(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"{CUT}\n{ARGUMENTS}\n", encoding="utf-8")

    assert read_arguments(str(path)).fields["seq_len"] == 2048
