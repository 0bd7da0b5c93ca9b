"""What a Python program computes is left to dsgen, and no default of its program takes its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dsgen
from dsgen.asking.memory_questions import Question, ask_config
from dsgen.asking.training_arguments import TrainingArguments, beside, read_arguments
from dsgen.linting import config_reader

MODEL = 'AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")\n'
CONFIG = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ds.json").write_text(json.dumps(CONFIG))


def told(text: str) -> TrainingArguments:
    Path("train.py").write_text(text)
    return read_arguments("train.py")


def asked(text: str, model: str = "qwen3-8b") -> Question:
    Path("train.py").write_text(text)
    source, _ = beside(config_reader.read("ds.json"), "train.py")
    return ask_config(dsgen.job({"hw": "a100-80g", "model": model, "gpus": 4}), source)


@pytest.mark.parametrize("arguments", ["TrainingArguments", "SFTConfig"])
def test_adapters_of_a_rank_that_is_computed_are_adapters(arguments: str) -> None:
    text = f"{arguments}(per_device_train_batch_size=1)\nLoraConfig(r=a.rank, target_modules=a.names)\n{MODEL}"

    assert told(text).fields["method"] == "lora"
    assert not {"lora_rank", "lora_targets"} & {*told(text).fields}
    assert told(text).uncounted == (
        "train.py computes lora_r, lora_target_modules, which only running it would tell: left to dsgen",
    )


@pytest.mark.parametrize(
    ("argument", "field", "default"),
    [
        ("max_length", "seq_len", 1024),
        ("gradient_checkpointing", "checkpointing", "full"),
        ("per_device_train_batch_size", "micro_batch", 8),
        ("gradient_accumulation_steps", "accumulation", 1),
    ],
)
def test_no_default_of_trl_takes_the_place_of_what_is_computed(argument: str, field: str, default: object) -> None:
    assert told("SFTConfig(bf16=True)\n").runs[field] == default

    computing = told(f"SFTConfig(bf16=True, {argument}=cfg.value)\n")
    assert field not in computing.runs
    assert f"computes {argument}, which" in computing.uncounted[0]


def test_a_base_in_bits_that_are_computed_is_named() -> None:
    text = f"TrainingArguments(bf16=True)\nBitsAndBytesConfig(load_in_4bit=a.quantize)\nLoraConfig(r=8)\n{MODEL}"

    assert "computes load_in_4bit, which" in told(text).uncounted[0]


@pytest.mark.parametrize(
    ("names", "targets"),
    [("", ("q_proj", "v_proj")), (", target_modules=names", ("all-linear",))],
)
def test_of_a_model_that_is_named_beside_it_peft_s_own_matrices_are_counted(names: str, targets: tuple[str]) -> None:
    """The program computes which model it loads, and --model says it."""
    text = f"TrainingArguments(bf16=True)\nAutoModelForCausalLM.from_pretrained(name)\nLoraConfig(r=8{names})\n"

    assert tuple(asked(text).job.training.lora_targets) == targets
    kept = dsgen.adopt({"hw": "a100-80g", "model": "qwen3-8b", "gpus": 4}, "ds.json", arguments="train.py")
    assert tuple(kept.question.job.training.lora_targets) == targets


def test_what_is_unpacked_into_a_call_is_computed_unless_it_stands_there() -> None:
    text = 'LORA = {"r": 32}\nSFTConfig(bf16=True, **cfg["training"])\nLoraConfig(**LORA)\n'
    known, unknown = told(text), told(text.replace("**LORA", "**cfg"))

    assert known.fields["lora_rank"] == 32
    assert unknown.fields["method"] == "lora"
    assert "lora_rank" not in unknown.fields
    assert not {"micro_batch", "accumulation", "checkpointing", "seq_len"} & {*unknown.runs}
    assert "computes per_device_train_batch_size, " in unknown.uncounted[0]
    assert "lora_r, lora_target_modules, lora_dropout" in unknown.uncounted[0]
