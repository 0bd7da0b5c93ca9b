"""Train Llama 3.1 8B further with plain DeepSpeed; `dsgen launch` writes what starts it.

Batch, precision, optimizer and schedule stand in ds_config.json, which dsgen writes from pretrain.scenario.yaml.
What is the program's own part (`dsgen needs pretrain.scenario.yaml`) stands here.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import deepspeed
import numpy
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import AutoModelForCausalLM, LlamaConfig

MODEL = "meta-llama/Llama-3.1-8B"
SEQ_LEN = 8192  # tokens, as in pretrain.scenario.yaml
SAVE_EVERY = 200  # optimizer steps
# What a machine without a GPU can do in seconds: the test of this repository trains it.
TINY = LlamaConfig(
    vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2,
)  # fmt: skip
TINY_LENGTH = 16  # tokens


class Tokens(Dataset):
    """Sequences of one length, cut from a file of token ids, or random ones of the tiny model."""

    def __init__(self, file: str | None) -> None:
        if file is None:
            self.ids = numpy.random.default_rng(0).integers(TINY.vocab_size, size=64 * TINY_LENGTH)
            self.length = TINY_LENGTH
        else:
            self.ids, self.length = numpy.memmap(file, dtype="<i4", mode="r"), SEQ_LEN

    def __len__(self) -> int:
        return len(self.ids) // self.length

    def __getitem__(self, index: int) -> Any:
        row = torch.as_tensor(self.ids[index * self.length : (index + 1) * self.length]).long()
        return {"input_ids": row, "labels": row}


def network(data: str | None) -> Any:
    """The real model, or without data a tiny one."""
    if data is None:
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(TINY)
    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16, attn_implementation="flash_attention_2")


def train(config_file: str, data: str | None, checkpoints: str, steps: int | None) -> dict[str, Any]:
    """Train from the last checkpoint on; what a test wants to know of it."""
    config = json.loads(Path(config_file).read_text(encoding="utf-8"))
    steps = steps or config["scheduler"]["params"]["total_num_steps"]
    model = network(data)
    if "activation_checkpointing" in config:  # the plan counts on it; no key of DeepSpeed's does it
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()  # from_pretrained leaves it in eval mode, in which transformers checkpoints nothing
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    engine.load_checkpoint(checkpoints)  # on every rank; nothing where there is none
    first, loss, epoch = engine.global_steps, None, 0
    dataset = Tokens(data)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=engine.train_micro_batch_size_per_gpu(), sampler=sampler, drop_last=True)
    while engine.global_steps < steps:
        sampler.set_epoch(epoch)
        epoch += 1
        for batch in loader:
            loss = engine(**{name: item.to(engine.device) for name, item in batch.items()}).loss
            engine.backward(loss)
            whole = engine.is_gradient_accumulation_boundary()
            engine.step()
            if engine.global_steps >= steps:
                break
            if whole and engine.global_steps % SAVE_EVERY == 0:
                engine.save_checkpoint(checkpoints)  # on every rank
    engine.save_checkpoint(checkpoints)
    return {"first": first, "steps": engine.global_steps, "loss": loss.item() if loss is not None else None}


def main() -> None:
    """Train, and save checkpoints."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--deepspeed_config", metavar="FILE", required=True, help="given by dsgen launch")
    options.add_argument("--checkpoints", metavar="FOLDER", required=True, help="given by dsgen launch")
    options.add_argument("--data", metavar="FILE", help="token ids, little-endian 32-bit")
    options.add_argument("--steps", type=int, help="optimizer steps, instead of those of the config")
    options.add_argument("--tiny", action="store_true", help="a tiny random model on the CPU, without data: a test")
    said = options.parse_args()
    if said.tiny == (said.data is not None):
        options.error("say --data FILE, or --tiny")
    deepspeed.init_distributed("gloo" if said.tiny else "nccl")
    if not said.tiny:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    told = train(said.deepspeed_config, said.data, said.checkpoints, said.steps)
    if dist.get_rank() == 0:
        print(json.dumps(told))
    dist.destroy_process_group()  # its threads may abort a process that ends while they run


if __name__ == "__main__":
    main()
