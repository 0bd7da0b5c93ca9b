"""What would make a config faster, where the Trainer's arguments say it: what to write, and into which file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dsgen
from dsgen.asking.memory_questions import ask_config
from dsgen.asking.plan_questions.speedups import Speedup, Speedups, speedups
from dsgen.asking.training_arguments import beside
from dsgen.documents.document import unwritten
from dsgen.documents.hjson.reader import read
from dsgen.linting.sources import Source

AUTO = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "train_batch_size": "auto",
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3},
}
PROGRAMS = {
    "train.py": (
        "from transformers import TrainingArguments\n"
        "args = TrainingArguments(\n    per_device_train_batch_size=1,\n    gradient_accumulation_steps=8,\n"
        '    gradient_checkpointing=True,\n    deepspeed="ds.json",\n)\n',
        ("per_device_train_batch_size={} ({}:3)", "gradient_accumulation_steps={} ({}:4)"),
        "gradient_checkpointing=False ({}:5)",
    ),
    "axolotl.yaml": (
        "base_model: org/name\nmicro_batch_size: 1\ngradient_accumulation_steps: 8\ngradient_checkpointing: true\n"
        "sequence_len: 4096\ndeepspeed: ds.json\n",
        ("micro_batch_size: {} ({}:2)", "gradient_accumulation_steps: {} ({}:3)"),
        "gradient_checkpointing: false ({}:4)",
    ),
    "factory.yaml": (
        "stage: sft\nfinetuning_type: full\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\n"
        "cutoff_len: 4096\ndeepspeed: ds.json\n",
        ("per_device_train_batch_size: {} ({}:3)", "gradient_accumulation_steps: {} ({}:4)"),
        "disable_gradient_checkpointing: true ({})",
    ),
}


def every(told: Speedups) -> tuple[Speedup, ...]:
    """All changes: alone, together, and those that were tried."""
    return (*told.changes, *told.tried, *([told.together] if told.together is not None else []))


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_config_leaves_to_the_trainer_is_changed_in_its_arguments(tmp_path: Path, name: str) -> None:
    text, batch, recomputing = PROGRAMS[name]
    config, file = tmp_path / "ds.json", tmp_path / name
    config.write_text(json.dumps(AUTO))
    file.write_text(text)
    job = dsgen.job({"hw": "a100-80g", "model": "1b", "gpus": 2})
    source, _ = beside(Source(document=read(config.read_text(), str(config)), target="hf-trainer"), str(file))
    told = speedups(ask_config(job, source))

    sizes = [one for one in every(told) if one.after.strategy.micro_batch > 1]
    assert sizes
    for one in sizes:
        assert not {key for key in one.keys if "batch" in key or "accumulation" in key}
        after = one.after.strategy
        said = ", ".join(one.programs)
        assert batch[0].format(after.micro_batch, file) in said
        assert batch[1].format(after.accumulation, file) in said
    assert any(recomputing.format(file) in one.programs for one in every(told))


def test_what_a_config_fixes_is_changed_at_both_places_for_the_trainer_compares_them() -> None:
    fixed = {**AUTO, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 16, "train_batch_size": 32}
    job = dsgen.job({"hw": "a100-80g", "model": "1b", "gpus": 2, "checkpointing": "full"})
    source = Source(document=unwritten(fixed), target="hf-trainer")
    sizes = [one for one in every(speedups(ask_config(job, source))) if one.after.strategy.micro_batch > 1]

    assert sizes
    for one in sizes:
        micro = one.after.strategy.micro_batch
        assert one.keys["train_micro_batch_size_per_gpu"] == micro
        assert any(f"per_device_train_batch_size={micro} (TrainingArguments)" in said for said in one.programs)
