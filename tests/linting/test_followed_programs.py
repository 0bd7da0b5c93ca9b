"""A Python program that a script starts: its own arguments of the Trainer's, and the config that it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import run

from dsgen.linting.files import Linted, lint_files
from dsgen.linting.settings import Settings

DISAGREES = "argument-disagrees"
PROGRAM = """from transformers import Trainer, TrainingArguments

args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=2,
    gradient_accumulation_steps=8,
    bf16=True,{}
)
"""
ACCELERATE = """distributed_type: DEEPSPEED
mixed_precision: bf16
num_processes: 2
deepspeed_config:
  zero_stage: 2
  gradient_accumulation_steps: {}
"""
CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": "auto",
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2},
}


@pytest.fixture(autouse=True)
def _here(elsewhere: None) -> None:
    Path("train.py").write_text(PROGRAM.format(""))
    Path("ds.json").write_text(json.dumps(CONFIG))


def said(command: str, *names: str) -> list[tuple[str, str, str]]:
    """File, path and message of all that disagrees."""
    Path("run.sh").write_text(f"{command}\n")
    linted = [one for one in lint_files(names or ("run.sh",), Settings()) if isinstance(one, Linted)]
    found = [(file.document.name, one) for file in linted for one in file.findings if one.rule == DISAGREES]
    return [(name, one.path, one.message) for name, one in found]


@pytest.mark.parametrize(
    "launcher", ["torchrun --nproc_per_node 2", "deepspeed --num_gpus 2", "accelerate launch", "python"]
)
def test_the_config_that_a_program_names_is_linted_and_compared(launcher: str) -> None:
    Path("train.py").write_text(PROGRAM.format('\n    deepspeed="ds.json",'))

    ((name, path, message),) = said(f"{launcher} train.py")

    assert (name, path) == ("ds.json", "train_micro_batch_size_per_gpu")
    assert message.startswith(
        "train_micro_batch_size_per_gpu is 4, and per_device_train_batch_size is 2 in train.py:5;"
    )


def test_what_accelerate_makes_of_its_file_is_compared_with_the_program() -> None:
    Path("acc.yaml").write_text(ACCELERATE.format(4))
    command = "accelerate launch --config_file acc.yaml train.py"

    ((name, path, message),) = said(command)
    assert (name, path) == ("acc.yaml", "gradient_accumulation_steps")
    assert "gradient_accumulation_steps is 8 in train.py:6; the Trainer compares them" in message
    assert said(command, "acc.yaml", "run.sh") == said(command, ".") == said(command)

    Path("acc.yaml").write_text(ACCELERATE.format(8))
    assert said(command) == []
    Path("acc.yaml").write_text(ACCELERATE.format(4))
    Path("train.py").write_text("from accelerate import Accelerator\naccelerator = Accelerator()\n")
    assert said(command) == []


@pytest.mark.parametrize("brought", ['"ds.json"', '{"zero_optimization": {"stage": 2}}', "made()"])
def test_accelerate_s_file_is_not_compared_with_a_program_that_brings_its_config(brought: str) -> None:
    Path("acc.yaml").write_text(ACCELERATE.format(4))
    Path("ds.json").write_text(json.dumps({**CONFIG, "train_micro_batch_size_per_gpu": "auto"}))
    Path("train.py").write_text(PROGRAM.format(f"\n    deepspeed={brought},"))

    assert said("accelerate launch --config_file acc.yaml train.py") == []
    if brought == '"ds.json"':  # of the file only the number of GPUs counts
        told = run("memory", "--config", "run.sh", "--hw", "4090", "--model", "qwen3-0.6b").out
        assert "micro-batch 2 x 2 GPUs x accumulation 8 = 32" in " ".join(told.split())


def test_a_config_that_accelerate_s_file_names_is_compared_with_the_program() -> None:
    Path("acc.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )

    ((name, path, message),) = said("accelerate launch --config_file acc.yaml train.py")

    assert (name, path) == ("ds.json", "train_micro_batch_size_per_gpu")
    assert "in train.py:5; the Trainer compares them" in message


@pytest.mark.parametrize(
    "words",
    ["train.py --per_device_train_batch_size 4", "train.py --deepspeed ds.json", "train.py args.yaml", "other.py"],
)
def test_a_program_that_is_given_arguments_or_is_not_there_is_not_read(words: str) -> None:
    Path("train.py").write_text(PROGRAM.format('\n    deepspeed="ds.json",'))
    Path("args.yaml").write_text("learning_rate: 1.0e-5\n")

    assert said(f"torchrun --nproc_per_node 2 {words}") == []


@pytest.mark.parametrize("text", ["TrainingArguments(", PROGRAM.format('\n    deepspeed="gone.json",'), ""])
def test_a_program_that_is_broken_or_names_what_is_gone_says_nothing(text: str) -> None:
    Path("train.py").write_text(text)

    assert said("torchrun --nproc_per_node 2 train.py") == []


def test_memory_says_of_such_a_script_that_it_does_not_start() -> None:
    Path("train.py").write_text(PROGRAM.format('\n    deepspeed="ds.json",'))
    Path("run.sh").write_text("torchrun --nproc_per_node 2 train.py\n")

    told = " ".join(run("memory", "--config", "run.sh", "--hw", "4090", "--model", "qwen3-0.6b").out.split())

    assert "it does not start: train_micro_batch_size_per_gpu is 4" in told


def test_a_training_file_that_a_script_gives_its_program_is_linted_where_its_config_is_not_there() -> None:
    Path("sft.yaml").write_text("stage: sft\nmodel_name_or_path: org/name\ndeepspeed: gone.json\n")
    Path("run.sh").write_text("FORCE_TORCHRUN=1 llamafactory-cli train sft.yaml\n")

    linted = [one for one in lint_files(["run.sh"], Settings()) if isinstance(one, Linted)]

    told = [(file.document.name, finding.rule) for file in linted for finding in file.findings]
    assert told == [("sft.yaml", "named-config-missing")]
    Path("run.sh").write_text("FORCE_TORCHRUN=1 llamafactory-cli train sft.yaml --deepspeed ds.json\n")
    linted = [one for one in lint_files(["run.sh"], Settings()) if isinstance(one, Linted)]
    assert not any(file.document.name == "sft.yaml" for file in linted)
