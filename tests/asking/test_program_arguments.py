"""What would make a config faster, where the Trainer's arguments say it: what to write, and into which file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import attrs
import pytest
from command_line import run

import dsgen
from dsgen.asking.memory_questions import ask_config
from dsgen.asking.plan_questions.speedups import Speedup, Speedups, speedups
from dsgen.asking.training_arguments import beside
from dsgen.documents.document import unwritten
from dsgen.documents.hjson.reader import read
from dsgen.linting import config_reader
from dsgen.linting.sources import Source
from dsgen.report import speedups as report

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


LAUNCHED = """distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
  offload_optimizer_device: cpu
mixed_precision: bf16
num_processes: 8
"""


def test_what_accelerate_s_file_has_a_word_for_is_said_by_it(tmp_path: Path) -> None:
    file = tmp_path / "acc.yaml"
    file.write_text(LAUNCHED)
    job = dsgen.job({"hw": "a100-80g", "model": "1b", "checkpointing": "full"})
    told = speedups(ask_config(job, config_reader.read(str(file))))

    text = " ".join(report.text(told).split())
    assert f"without deepspeed_config.offload_optimizer_device ({file}:4)" in text
    names = {key: name for one in every(told) for key, name in one.names.items()}
    assert names["zero_optimization.stage"] == "deepspeed_config.zero_stage"
    unsaid = [one for one in every(told) if None in one.names.values()]
    assert unsaid
    (speedup, *_) = unsaid
    (key, *_) = (key for key, name in speedup.names.items() if name is None)
    only = attrs.evolve(told, changes=(speedup,), together=None, tried=())
    shown = " ".join(report.text(only).split())
    assert f"{key}: {json.dumps(speedup.keys[key])} (Accelerate's file has no word for it, a config that its" in shown


def test_a_config_inside_a_training_file_has_its_arguments_and_its_model(tmp_path: Path) -> None:
    file = tmp_path / "axolotl.yaml"
    file.write_text(
        "base_model: Qwen/Qwen3-0.6B\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\nsequence_len: 1024\n"
        "gradient_checkpointing: true\ndeepspeed:\n  train_micro_batch_size_per_gpu: auto\n"
        "  gradient_accumulation_steps: auto\n  bf16: {enabled: true}\n  zero_optimization: {stage: 3}\n"
    )

    done = run("plan", "--config", str(file), "--hw", "a100-40g")

    assert done.code == 0, done.err
    assert " ".join(done.out.split()).startswith(
        "qwen3-0.6b on 8 a100-40g: ZeRO-3, checkpointing, micro-batch 2 x 8 GPUs x accumulation 4 = 64, 1024 tokens"
    )
    assert re.search(
        rf"deepspeed\.zero_optimization\.stage: \d \({re.escape(str(file))}:10\)", " ".join(done.out.split())
    )
