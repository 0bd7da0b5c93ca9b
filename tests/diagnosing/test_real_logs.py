"""Logs of real runs that fail, of the installed torch, DeepSpeed and transformers: their messages are as known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from chosen import chosen

from dsgen.diagnosing import diagnose

pytestmark = pytest.mark.proof

SERVER = Path(__file__).resolve().parents[1] / "helpers" / "failing_programs.py"
START = """
import json, os, sys
import torch, deepspeed
from dsgen.engine.proof.cpu_stand_ins import allow_fp16
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
NOT_JSON = """
with open("ds.json", "w") as file: file.write('{"zero_optimization": {"stage": 2},}')
from transformers import TrainingArguments
TrainingArguments("out", deepspeed="ds.json", report_to=[], use_cpu=True)
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
# DeepSpeed refuses fp16 on a CPU without instructions for it.
FP16 = """
allow_fp16(deepspeed.accelerator.get_accelerator())
start(fp16={"enabled": True}, zero_optimization={"stage": 2})(torch.tensor([1])).sum().backward()
"""


FAILURES: dict[str, tuple[str, str | None]] = {
    "start(train_batch_size=7, train_micro_batch_size_per_gpu=2)": ("batch-mismatch", "init"),
    "start(zero_optimization={'stge': 2})": ("config-refused", "init"),
    "start(train_micro_batch_size_per_gpu='auto')": ("auto-not-filled", "init"),
    "start(fp16={'enabled': True}, bf16={'enabled': True})": ("config-refused", "init"),
    "start()(torch.tensor([9]))": ("index-out-of-range", "forward"),
    "start(bf16={'enabled': True}).module[1](torch.rand(1, 4))": ("dtype-mismatch", "forward"),
    "engine = start(); engine.requires_grad_(False); engine.backward(engine(torch.tensor([1])).sum())":
        ("no-gradient", "backward"),
    "model.load_state_dict({'0.weight': torch.zeros(0), '1.weight': torch.zeros(8, 4), '1.bias': torch.zeros(8)})":
        ("checkpoint-empty", "load"),
    "model.load_state_dict(torch.nn.Linear(3, 3).state_dict())": ("checkpoint-shapes", "load"),
    "import io; file = io.BytesIO(); torch.save({}, file); torch.load(io.BytesIO(file.getvalue()[:300]))":
        ("checkpoint-cut-off", "resume"),
    "import no_such_package": ("package-missing", "launch"),
    "start()(torch.tensor([1])).sum().backward()": ("backward-elsewhere", "backward"),
    FP16: ("backward-elsewhere", "backward"),
    "engine = start(bf16={'enabled': True}, zero_optimization={'stage': 1}); model(torch.tensor([1])); engine.step()":
        ("backward-elsewhere", "step"),
    "engine = start(zero_optimization={'stage': 2}); model(torch.tensor([1])).sum().backward(); engine.step()":
        ("backward-elsewhere", "step"),
    "engine = start(zero_optimization={'stage': 3}); model(torch.tensor([1])).sum().backward(); engine.step()":
        ("backward-elsewhere", "step"),
    "torch.distributed.get_rank(torch.distributed.group.WORLD); torch.distributed.barrier()":
        ("process-group-missing", None),
    "deepspeed.comm.barrier()": ("process-group-missing", None),
    "start(zero_optimization={'stage': 3}); torch.nn.functional.layer_norm(torch.rand(1, 8), [8], model[1].bias)":
        ("parameter-not-gathered", None),
    "import deepspeed.ops.transformer.inference.triton_ops": ("triton-broken", "launch"),
    NOT_JSON: ("config-unreadable", "init"),
    TRAINER: ("config-mismatch", "init"),
    FLASH: ("flash-attention-missing", "load"),
    RESUME: ("nothing-to-resume", "resume"),
    ACCELERATE + DUMMY: ("dummy-optimizer", "init"),
    ACCELERATE + TWICE: ("dummy-optimizer", "init"),
}  # fmt: skip


def started(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A Python that has no GPU; what it says on both streams is its stdout."""
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *words],
        input=stdin,
        env=environment,
        timeout=300,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def whole(program: str) -> str:
    """With what all of them begin with, and a port of this process."""
    return (START + program).replace("sys.argv[1]", repr(str(29_500 + os.getpid() % 10_000)))


@pytest.fixture(scope="module")
def logs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What each program printed: one process imports torch and DeepSpeed, and is each of them in a fork."""
    folders = {program: tmp_path_factory.mktemp("program") for program in chosen(request, "program")}
    asked = [{"program": whole(program), "folder": str(folder)} for program, folder in folders.items()]
    done = started(str(SERVER), stdin=json.dumps(asked).encode())
    assert done.returncode == 0, done.stdout.decode()
    logs = {program: (folder / "log").read_bytes() for program, folder in folders.items()}
    assert json.loads(done.stdout) == [1] * len(asked), logs
    return logs


def named(log: bytes) -> tuple[str, str | None]:
    """The code and the phase of what is said of a log."""
    answer = diagnose([log])
    assert answer.root is not None, log.decode()
    return answer.root.code, answer.root.phase


@pytest.mark.parametrize("program", FAILURES, ids=lambda program: program.strip()[:30])
def test_a_real_failure_is_named(program: str, logs: dict[str, bytes]) -> None:
    assert named(logs[program]) == FAILURES[program]


def test_a_process_of_its_own_prints_no_other_failure() -> None:
    """The others are forks, which have imported what a program imports."""
    program = next(iter(FAILURES))
    done = started("-c", whole(program))

    assert done.returncode == 1
    assert named(done.stdout) == FAILURES[program]
