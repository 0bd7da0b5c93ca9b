"""A program of the Hugging Face Trainer as a launch starts it: a tiny Llama on the CPU; it knows nothing of dsgen."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

TOKENS, WORDS = 16, 64


class Texts(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Made-up texts, the same in every start."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(WORDS, (TOKENS,), generator=torch.Generator().manual_seed(place))
        return {"input_ids": ids, "labels": ids}


class Log(transformers.TrainerCallback):
    """A line for every step that rank 0 logs."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        if state.is_world_process_zero and "loss" in logs:
            with self.path.open("a", encoding="utf-8") as log:
                log.write(
                    json.dumps({"step": state.global_step, "loss": logs["loss"], "where": args.world_size}) + "\n"
                )


def main() -> None:
    """Train, from the checkpoint that is named on."""
    place = sys.argv.index("--log")
    log = sys.argv[place + 1]
    (arguments,) = transformers.HfArgumentParser(transformers.TrainingArguments).parse_args_into_dataclasses(
        [*sys.argv[1:place], *sys.argv[place + 2 :]]
    )
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=TOKENS,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=transformers.LlamaForCausalLM(config), args=arguments, train_dataset=Texts(), callbacks=[Log(log)]
    )
    trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)


if __name__ == "__main__":
    main()
