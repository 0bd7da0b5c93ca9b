"""Fine-tune all weights of Qwen 2.5 7B on eight GPUs: `bash train.sh data.jsonl`.

Batch, precision, optimizer and schedule stand in ds_config.json, which dsgen writes from full.scenario.yaml. What is
the program's own part (`dsgen needs full.scenario.yaml --target accelerate`) stands here.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DummyOptim, DummyScheduler
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Qwen2Config

MODEL = "Qwen/Qwen2.5-7B"
SEQ_LEN = 4096  # tokens, as in full.scenario.yaml
SAVE_EVERY = 500  # optimizer steps
# What a machine without a GPU can do in seconds: the test of this repository trains it.
TINY = Qwen2Config(
    vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2,
)  # fmt: skip


class Lines(Dataset):
    """The field "text" of each line of a JSON Lines file, as tokens."""

    def __init__(self, file: str, tokenizer: Any) -> None:
        texts = [json.loads(line)["text"] for line in Path(file).read_text(encoding="utf-8").splitlines() if line]
        self.rows = [tokenizer(text, truncation=True, max_length=SEQ_LEN) for text in texts]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


class Random(Dataset):
    """Sequences of random tokens, for the tiny model."""

    def __init__(self) -> None:
        self.rows = torch.randint(TINY.vocab_size, (64, 16), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def parts(data: str | None) -> tuple[Any, Dataset, Any]:
    """Model, data and how rows become a batch: the real ones, or without data tiny ones."""
    if data is None:
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(TINY), Random(), None
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16, attn_implementation="flash_attention_2")
    return model, Lines(data, tokenizer), DataCollatorForLanguageModeling(tokenizer, mlm=False)


def train(data: str | None, output: str, steps: int | None) -> dict[str, Any]:
    """Train from the last state in the output folder on; what a test wants to know of it."""
    accelerator = Accelerator()
    config = accelerator.state.deepspeed_plugin.deepspeed_config
    steps = steps or config["scheduler"]["params"]["total_num_steps"]
    model, dataset, collate = parts(data)
    if "activation_checkpointing" in config:  # the plan counts on it; no key of DeepSpeed's does it
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()  # from_pretrained leaves it in eval mode, in which transformers checkpoints nothing
    loader = DataLoader(dataset, batch_size=config["train_micro_batch_size_per_gpu"], shuffle=True, collate_fn=collate)
    optimizer = DummyOptim(model.parameters())
    scheduler = DummyScheduler(optimizer)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    state = Path(output) / "state"
    if (state / "pytorch_model").is_dir():
        accelerator.load_state(str(state))
    first, loss = model.global_steps, None
    while model.global_steps < steps:
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if model.global_steps >= steps:
                break
            if model.global_steps % SAVE_EVERY == 0 and accelerator.sync_gradients:
                accelerator.save_state(str(state))
    accelerator.save_state(str(state))
    return {"first": first, "steps": model.global_steps, "loss": loss.item() if loss is not None else None}


def main() -> None:
    """Train, and save the state to the output folder."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", metavar="FILE", help='JSON Lines, each with a field "text"')
    options.add_argument("--output", metavar="FOLDER", default="output", help="where the state goes")
    options.add_argument("--steps", type=int, help="optimizer steps, instead of those of the config")
    options.add_argument("--tiny", action="store_true", help="a tiny random model on the CPU, without data: a test")
    said = options.parse_args()
    if said.tiny == (said.data is not None):
        options.error("say --data FILE, or --tiny")
    if said.tiny:
        import deepspeed

        deepspeed.init_distributed("gloo")
        PartialState(cpu=True)
    told = train(said.data, said.output, said.steps)
    if torch.distributed.get_rank() == 0:
        print(json.dumps(told))
    torch.distributed.destroy_process_group()  # its threads may abort a process that ends while they run


if __name__ == "__main__":
    main()
