"""A launch script whose Python program makes its arguments itself: they are read where they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import run

from dsgen.asking.training_arguments import of_naming_file, read_arguments

PROGRAM = """from trl import SFTConfig, SFTTrainer

args = SFTConfig(max_length=2048, per_device_train_batch_size=2, gradient_accumulation_steps=4, bf16=True)
trainer = SFTTrainer(model="Qwen/Qwen3-0.6B", args=args)
"""
LAUNCHED = """distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 2
mixed_precision: bf16
num_processes: 4
"""
TWICE = "TrainingArguments(per_device_train_batch_size=1)\nTrainingArguments(per_device_train_batch_size=2)\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sft.py").write_text(PROGRAM)
    Path("acc.yaml").write_text(LAUNCHED)


def script(command: str) -> str:
    Path("run.sh").write_text(f"#!/bin/bash\n{command}\n")
    return "run.sh"


@pytest.mark.parametrize("start", ["accelerate launch --config_file acc.yaml", "torchrun --nproc_per_node 4", "python"])
def test_its_program_says_what_the_script_does_not(start: str) -> None:
    told = read_arguments(script(f"{start} sft.py"))

    assert (told.file, told.model) == ("sft.py", "Qwen/Qwen3-0.6B")
    assert (told.fields["micro_batch"], told.fields["seq_len"]) == (2, 2048)


def test_the_words_behind_the_program_come_first() -> None:
    assert read_arguments(script("python sft.py --max_length 512")).fields["seq_len"] == 512


@pytest.mark.parametrize("command", ["python gone.py", "python twice.py", "python -m sft"])
def test_a_program_that_tells_nothing_is_none(command: str) -> None:
    Path("twice.py").write_text(TWICE)

    assert of_naming_file(script(command)) is None


def test_the_script_alone_is_all_that_memory_needs() -> None:
    done = run("memory", "--config", script("accelerate launch --config_file acc.yaml sft.py"), "--hw", "a100-40g")

    assert done.code == 0, done.err
    assert " ".join(done.out.split()).startswith(
        "qwen3-0.6b on 4 a100-40g: ZeRO-2, checkpointing, micro-batch 2 x 4 GPUs x accumulation 4 = 32, 2048 tokens"
    )


ASKED = "python train.py --per_device_train_batch_size 1 --bf16 true --use_peft true"
HANDED_ON = "model = AutoModelForCausalLM.from_pretrained(told.model, attn_implementation=told.attn_implementation)\n"


@pytest.mark.parametrize(
    ("program", "more", "attention"),
    [
        ("model = AutoModelForCausalLM.from_pretrained(told.model)\n", "", "sdpa"),
        ('model = AutoModelForCausalLM.from_pretrained(told.model, attn_implementation="eager")\n', "", "eager"),
        (HANDED_ON, "", "sdpa"),  # None, which is TRL's default
        (HANDED_ON, " --attn_implementation flash_attention_2", "flash"),
        (f"told.attn_implementation = told.attn_implementation or 'flash_attention_2'\n{HANDED_ON}", "", None),
        ("import (\n", "", "sdpa"),
    ],
)
def test_a_started_program_says_its_attention(program: str, more: str, attention: str | None) -> None:
    Path("train.py").write_text(program)

    assert read_arguments(script(f"{ASKED}{more}")).fields.get("attention") == attention


def test_the_attention_of_a_program_of_one_s_own_is_known_from_its_text_alone() -> None:
    asked = ASKED.replace(" --use_peft true", "")
    Path("train.py").write_text("model = AutoModelForCausalLM.from_pretrained(told.model)\n")
    assert read_arguments(script(asked)).fields["attention"] == "sdpa"
    Path("train.py").write_text(HANDED_ON)
    assert "attention" not in read_arguments(script(asked)).fields
