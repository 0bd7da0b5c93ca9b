"""A program that loads its model before it makes its arguments: at stage 3 no zero.Init makes the model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dsgen
from dsgen.asking.memory_questions import Question, answer, ask_config
from dsgen.asking.plan_questions.speedups import speedups
from dsgen.asking.told_values import said_of_device_map
from dsgen.asking.training_arguments import beside, read_arguments
from dsgen.linting import config_reader
from dsgen.linting.loading_order import loads

LOADS = 'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")\n'
MAKES = "args = TrainingArguments(per_device_train_batch_size=1, gradient_checkpointing=True, bf16=True)\n"
FIRST = LOADS + MAKES


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (FIRST, (1, 2)),
        ("def main():\n" + indented(FIRST), (2, 3)),
        ('if __name__ == "__main__":\n' + indented(FIRST), (2, 3)),
        (LOADS + "args = SFTConfig(bf16=True)\n", (1, 2)),
        (MAKES + LOADS, None),
        ('tokenizer = AutoTokenizer.from_pretrained("x")\n' + MAKES + LOADS, None),
        ("def load():\n" + indented(LOADS + "return model") + MAKES + "model = load()\n", None),
        ('kept = HfDeepSpeedConfig("ds.json")\n' + FIRST, None),
        ("with deepspeed.zero.Init():\n" + indented(LOADS) + MAKES, None),
        ("accelerator = Accelerator()\n" + FIRST, None),
        (LOADS, None),
    ],
)
def test_what_comes_first_is_read_from_one_function(text: str, lines: tuple[int, int] | None) -> None:
    late = [(one.line, one.after) for one in loads(text, "train.py") if one.after is not None]

    assert late == ([lines] if lines is not None else [])


def asked(folder: Path, text: str, stage: int = 3) -> Question:
    config, program = folder / "ds.json", folder / "train.py"
    config.write_text(
        json.dumps({"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": stage}, "bf16": "auto"})
    )
    program.write_text(text)
    source, _ = beside(config_reader.read(str(config)), str(program))
    return ask_config(dsgen.job({"hw": "a100-80g", "model": "qwen3-8b", "gpus": 4}), source)


def of_the_order(question: Question) -> list[str]:
    return [note for note in question.notes if "loads its model" in note]


def test_at_stage_3_each_rank_loads_it_whole_and_a_note_says_why(tmp_path: Path) -> None:
    late, early = (asked(tmp_path, text) for text in (FIRST, MAKES + LOADS))

    assert (late.job.training.zero_init, early.job.training.zero_init) == (False, True)
    assert late.said["zero init"].by == str(tmp_path / "train.py")
    (note,) = of_the_order(late)
    assert note.endswith(
        "train.py loads its model (line 1) before it makes its arguments (line 2): at stage 3 no zero.Init makes it "
        "then, and each rank loads it whole; make the arguments first"
    )
    assert not of_the_order(early)


def test_below_stage_3_there_is_nothing_to_say(tmp_path: Path) -> None:
    question = asked(tmp_path, FIRST, stage=2)

    assert question.job.training.zero_init
    assert not of_the_order(question)


def test_a_base_in_4_bits_is_made_under_no_zero_init_whatever_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "kept = BitsAndBytesConfig(load_in_4bit=True)\nadapters = LoraConfig(r=8)\n" + FIRST, encoding="utf-8"
    )

    assert read_arguments(str(file)).fields["method"] == "qlora"
    assert read_arguments(str(file)).loads_first is None


def answered(question: Question) -> tuple[str, ...]:
    return answer(question).question.notes


def test_memory_says_that_a_device_map_stops_stage_3(tmp_path: Path) -> None:
    spread = LOADS.replace(")", ', device_map="auto")')
    stopped, below = (answered(asked(tmp_path, MAKES + spread, stage)) for stage in (3, 2))
    rank = answered(asked(tmp_path, MAKES + spread.replace('"auto"', '{"": 0}'), stage=2))

    [note] = [one for one in stopped if "device_map" in one]
    assert "ds.json:1: it does not start: zero_optimization.stage is 3" in note
    assert 'from_pretrained gets device_map="auto"' in note
    assert "dsgen rule DSG927 explains" in note
    assert not [one for one in (*below, *rank) if "device_map" in one]


def test_a_plan_of_a_config_says_so_too(tmp_path: Path) -> None:
    spread = LOADS.replace(")", ', device_map="auto")')
    stopped, below = (
        [one.code for one in speedups(asked(tmp_path, MAKES + spread, stage)).findings] for stage in (3, 2)
    )

    assert "DSG927" in stopped
    assert "DSG927" not in below


def test_without_a_config_what_stage_3_would_do_is_said(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(MAKES + LOADS.replace(")", ', device_map="auto")'))

    assert said_of_device_map(read_arguments(str(file)).loads) == (
        f'{file}:2 tells from_pretrained device_map="auto": at stage 3 it stops there (ValueError); leave it away, or '
        "stay below stage 3"
    )
    file.write_text(MAKES + LOADS)
    assert said_of_device_map(read_arguments(str(file)).loads) is None


SHOWS = """
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments

sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=128)).save_pretrained("tiny")
for when in ("first", "then"):
    model = LlamaForCausalLM.from_pretrained("tiny")
    print(when, any(hasattr(item, "ds_id") for item in model.parameters()))
    args = TrainingArguments(output_dir="out", deepspeed="ds.json", use_cpu=True)
"""


def alone(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program that runs as the only rank of a launch."""
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    return subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        cwd=folder,
        env={**os.environ, **ranks},
        capture_output=True,
        text=True,
    )


@pytest.mark.proof
def test_the_real_from_pretrained_asks_whether_arguments_were_made(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        json.dumps({"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}})
    )
    ran = alone(SHOWS, tmp_path)

    assert ran.returncode == 0, ran.stderr
    assert [line for line in ran.stdout.splitlines() if line.startswith(("first", "then"))] == [
        "first False",
        "then True",
    ]


REFUSES = """
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments
from transformers.integrations import HfDeepSpeedConfig

sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=128)).save_pretrained("tiny")


def load(who, **told):
    try:
        model = LlamaForCausalLM.from_pretrained("tiny", **told)
        print("says", who, *told, "in parts" if any(hasattr(item, "ds_id") for item in model.parameters()) else "whole")
    except ValueError as error:
        print("says", who, *told, error)


def config(stage):
    return {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage}}


HfDeepSpeedConfig(config(3))
load("dropped", device_map="cpu")
for stage in (2, 3):
    kept = HfDeepSpeedConfig(config(stage))
    for told in ({"device_map": "auto"}, {"device_map": {"": "cpu"}}, {"low_cpu_mem_usage": True}):
        load(stage, **told)
del kept
args = TrainingArguments(output_dir="out", deepspeed=config(3), per_device_train_batch_size=1, use_cpu=True)
load("arguments", device_map="auto")
load("arguments", device_map=None)
"""


@pytest.mark.proof
def test_the_real_from_pretrained_refuses_a_device_map_at_stage_3(tmp_path: Path) -> None:
    ran = alone(REFUSES, tmp_path)

    refuses = "DeepSpeed Zero-3 is not compatible with passing a `device_map`."
    assert ran.returncode == 0, ran.stderr
    assert [line for line in ran.stdout.splitlines() if line.startswith("says")] == [
        "says dropped device_map whole",
        *(f"says 2 {told} whole" for told in ("device_map", "device_map", "low_cpu_mem_usage")),
        f"says 3 device_map {refuses}",
        f"says 3 device_map {refuses}",
        "says 3 low_cpu_mem_usage in parts",
        f"says arguments device_map {refuses}",
        "says arguments device_map in parts",
    ]
