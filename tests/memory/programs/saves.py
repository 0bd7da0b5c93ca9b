"""A checkpoint of some ranks, or a universal one that is loaded: `saves.py FOLDER STAGE WIDTH [LOADED]`."""

import os
import sys
from pathlib import Path

import deepspeed
import torch

folder, stage, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(20)))
config = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": stage},
    "optimizer": {"type": "AdamW", "params": {"torch_adam": True, "lr": 0.001}},
    "checkpoint": {"load_universal": len(sys.argv) > 4},
}
engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
if len(sys.argv) > 4:
    engine.load_checkpoint(folder)
    with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
        torch.save({name: item.float().clone() for name, item in engine.module.named_parameters()}, sys.argv[4])
else:
    for _ in range(2):
        loss = engine(torch.randn(1, width, dtype=torch.bfloat16)).float().pow(2).mean()
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint(folder)
    assert Path(folder, "latest").is_file()
torch.distributed.barrier()
sys.stdout.flush()
os._exit(0)  # gloo's threads may abort the interpreter while it ends
