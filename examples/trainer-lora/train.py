"""Fine-tune Llama 3.1 8B with LoRA adapters on one card: `bash train.sh data.jsonl`.

How it trains stands in training_args.yaml and ds_config.json, which dsgen writes from lora.scenario.yaml; what is the
program's own part (`dsgen needs lora.scenario.yaml --target hf-trainer`) stands here.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import yaml
from peft import LoraConfig, get_peft_model
from torch.utils.data import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    HfArgumentParser,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

MODEL = "meta-llama/Llama-3.1-8B"
RANK = 16  # of the adapters, as in lora.scenario.yaml
SEQ_LEN = 2048  # tokens, as in lora.scenario.yaml
LORA = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="CAUSAL_LM")
# What a machine without a GPU can do in seconds: the test of this repository trains it.
TINY = LlamaConfig(
    vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2,
)  # fmt: skip
TINY_ARGUMENTS = {"use_cpu": True, "use_liger_kernel": False, "max_steps": 3, "warmup_steps": 1, "logging_steps": 1}


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
        generator = torch.Generator().manual_seed(0)
        self.rows = torch.randint(TINY.vocab_size, (64, 16), generator=generator)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def arguments(file: str, **others: Any) -> TrainingArguments:
    """The TrainingArguments of a file, with others in their place."""
    told = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    (made,) = HfArgumentParser(TrainingArguments).parse_dict({**told, "report_to": "none", **others})
    return made


def trainer(args: TrainingArguments, data: str | None) -> Trainer:
    """The Trainer of the real model, or without data that of the tiny one."""
    if data is None:
        torch.manual_seed(0)
        model, dataset, collate = LlamaForCausalLM(TINY).to(torch.bfloat16), Random(), None
    else:
        tokenizer = AutoTokenizer.from_pretrained(MODEL)
        tokenizer.pad_token = tokenizer.eos_token
        model = AutoModelForCausalLM.from_pretrained(
            MODEL, dtype=torch.bfloat16, attn_implementation="flash_attention_2"
        )
        dataset, collate = Lines(data, tokenizer), DataCollatorForLanguageModeling(tokenizer, mlm=False)
    model.enable_input_require_grads()
    return Trainer(model=get_peft_model(model, LORA), args=args, train_dataset=dataset, data_collator=collate)


def main() -> None:
    """Train, and save the adapters to the output folder."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("arguments", help="training_args.yaml")
    options.add_argument("--data", metavar="FILE", help='JSON Lines, each with a field "text"')
    options.add_argument("--output", metavar="FOLDER", help="where the adapters go, instead of output_dir")
    options.add_argument("--tiny", action="store_true", help="a tiny random model on the CPU, without data: a test")
    options.add_argument("--local_rank", help="given by the deepspeed launcher")
    said = options.parse_args()
    if said.tiny == (said.data is not None):
        options.error("say --data FILE, or --tiny")
    others: dict[str, Any] = {"output_dir": said.output} if said.output else {}
    if said.tiny:
        import deepspeed

        deepspeed.init_distributed("gloo")
        others.update(TINY_ARGUMENTS)
    made = trainer(arguments(said.arguments, **others), said.data)
    result = made.train()
    made.save_model()
    print(json.dumps({"loss": result.training_loss, "steps": result.global_step}))
    torch.distributed.destroy_process_group()  # its threads may abort a process that ends while they run


if __name__ == "__main__":
    main()
