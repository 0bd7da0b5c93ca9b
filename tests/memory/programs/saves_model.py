"""A checkpoint of some ranks of the model of a config.json: `saves_model.py CONFIG FOLDER STAGE`."""

import os
import sys
from pathlib import Path

import deepspeed
import torch
import transformers

config, folder, stage = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.manual_seed(0)
model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(config))
engine = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    config={
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"torch_adam": True, "lr": 0.001}},
    },
)[0]
for _ in range(2):
    tokens = torch.randint(model.config.vocab_size, (1, 8))
    engine.backward(engine(input_ids=tokens, labels=tokens).loss)
    engine.step()
engine.save_checkpoint(folder)
assert Path(folder, "latest").is_file()
torch.distributed.barrier()
sys.stdout.flush()
os._exit(0)  # gloo's threads may abort the interpreter while it ends
