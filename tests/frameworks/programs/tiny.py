"""A tiny random Llama and its data, and what an engine made of a config: shared by the programs of this folder."""

import json
import sys
from typing import Any

import deepspeed
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from dsgen.engine.serving import ask_cpu_once

SIZES = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def folder_of_model() -> str:
    """The folder of the saved model: the first argument names it. DeepSpeed joins the ranks, as it does on GPUs."""
    ask_cpu_once()
    deepspeed.init_distributed("gloo")
    return sys.argv[1]


def save(folder: str) -> None:
    """Save a model with random weights, and a tokenizer of its vocabulary."""
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(folder)
    words = {f"w{number}": number for number in range(SIZES["vocab_size"])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="w1", pad_token="w2").save_pretrained(folder)


class Tokens(Dataset):
    """Random sequences, the same in each run."""

    def __init__(self, count: int = 64, length: int = 16) -> None:
        self.rows = torch.randint(0, SIZES["vocab_size"], (count, length), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[place], "labels": self.rows[place]}


def report(engine: Any, **others: Any) -> None:
    """Print on rank 0 what the engine took, as the last line."""
    if torch.distributed.get_rank():
        return
    config = engine.config if isinstance(engine.config, dict) else engine._config._param_dict
    heard = {
        "config": config,
        "batch": [
            engine.train_batch_size(),
            engine.train_micro_batch_size_per_gpu(),
            engine.gradient_accumulation_steps(),
        ],
        "stage": engine.zero_optimization_stage(),
        "clipping": engine.gradient_clipping(),
        "dtype": str(engine.get_data_types()[0]),
        "steps": engine.global_steps,
        "optimizer": type(engine.optimizer).__name__,
        **others,
    }
    print("HEARD " + json.dumps(heard, default=repr), flush=True)


if __name__ == "__main__":
    save(sys.argv[1])
