"""Logs of real runs that fail, of the installed torch, DeepSpeed and transformers: their messages are as known."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsgen.diagnosing import Diagnosis, diagnose

pytestmark = pytest.mark.proof

START = """
import json, os, sys
import torch, deepspeed
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
model = torch.nn.Sequential(torch.nn.Embedding(8, 4), torch.nn.Linear(4, 8))
def start(**keys):
    optimizer = {"type": "Adam", "params": {"torch_adam": True}}
    config = {"train_micro_batch_size_per_gpu": 1, "optimizer": optimizer, **keys}
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
"""
TRAINER = """
from transformers import TrainingArguments, Trainer, LlamaConfig, LlamaForCausalLM
sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8}
small = LlamaConfig(**sizes, num_hidden_layers=1, num_attention_heads=1)
keys = {"train_micro_batch_size_per_gpu": 3, "zero_optimization": {"stage": 0}}
with open("ds.json", "w") as file: json.dump(keys, file)
arguments = TrainingArguments("out", per_device_train_batch_size=2, deepspeed="ds.json", report_to=[], use_cpu=True)
Trainer(LlamaForCausalLM(small), arguments, train_dataset=[{"input_ids": [1], "labels": [1]}] * 8).train()
"""

FLASH = """
from transformers import AutoModelForCausalLM, LlamaConfig
sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8}
small = LlamaConfig(**sizes, num_hidden_layers=1, num_attention_heads=1)
AutoModelForCausalLM.from_config(small, attn_implementation="flash_attention_2")
"""
RESUME = """
from transformers import TrainingArguments, Trainer
os.makedirs("out")
arguments = TrainingArguments("out", report_to=[], use_cpu=True)
Trainer(model, arguments, train_dataset=[{"x": [1]}] * 8).train(resume_from_checkpoint=True)
"""
ACCELERATE = """
os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
from accelerate import Accelerator, DeepSpeedPlugin
from accelerate.utils import DummyOptim
keys = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 0}}
"""
DUMMY = """
Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=keys)).prepare(model, DummyOptim(model.parameters()))
"""
TWICE = """
keys["optimizer"] = {"type": "Adam", "params": {"torch_adam": True}}
optimizer = torch.optim.AdamW(model.parameters())
Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=keys)).prepare(model, optimizer)
"""


def log_of(folder: Path, program: str, port: int) -> Diagnosis:
    """What is said of the log of a program that fails."""
    words = [sys.executable, "-c", START + program, str(port)]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(words, cwd=folder, env=environment, timeout=300, check=False, **streams)  # type: ignore[call-overload]
    assert done.returncode != 0, done.stdout.decode()
    return diagnose([done.stdout])


@pytest.mark.parametrize(
    ("program", "code", "phase"),
    [
        ("start(train_batch_size=7, train_micro_batch_size_per_gpu=2)", "batch-mismatch", "init"),
        ("start(zero_optimization={'stge': 2})", "config-refused", "init"),
        ("start(train_micro_batch_size_per_gpu='auto')", "auto-not-filled", "init"),
        ("start(fp16={'enabled': True}, bf16={'enabled': True})", "config-refused", "init"),
        ("start()(torch.tensor([9]))", "index-out-of-range", "forward"),
        ("start(bf16={'enabled': True}).module[1](torch.rand(1, 4))", "dtype-mismatch", "forward"),
        ("engine = start(); engine.requires_grad_(False); engine.backward(engine(torch.tensor([1])).sum())",
         "no-gradient", "backward"),
        ("model.load_state_dict({'0.weight': torch.zeros(0), '1.weight': torch.zeros(8, 4), '1.bias': torch.zeros(8)})",
         "checkpoint-empty", "load"),
        ("model.load_state_dict(torch.nn.Linear(3, 3).state_dict())", "checkpoint-shapes", "load"),
        ("import no_such_package", "package-missing", "launch"),
        (TRAINER, "config-mismatch", "init"),
        (FLASH, "flash-attention-missing", "load"),
        (RESUME, "nothing-to-resume", "resume"),
        (ACCELERATE + DUMMY, "dummy-optimizer", "init"),
        (ACCELERATE + TWICE, "dummy-optimizer", "init"),
    ],
    ids=lambda value: value.strip()[:30],
)  # fmt: skip
def test_a_real_failure_is_named(tmp_path: Path, program: str, code: str, phase: str) -> None:
    answer = log_of(tmp_path, program, 29_500 + os.getpid() % 10_000)

    assert answer.root is not None, answer.record
    assert (answer.code, answer.root.phase) == (code, phase)
