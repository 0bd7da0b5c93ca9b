"""What the real engine does with a part of an offloaded optimizer that it keeps: rates, steps and saved states.

The accelerator is the CPU under another name, since DeepSpeed asks by name what is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from typing import Any

LR, STEPS, WARMUP = 0.01, 3, 100
WIDTH, LAYERS = 8, 4  # a group of a layer's elements each: with half of them kept, two stay and two are offloaded


def main() -> None:
    """Train, save and resume with every group offloaded, and with half of them."""
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        import deepspeed
        import torch
        from deepspeed.accelerator import get_accelerator

        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        deepspeed.init_distributed("gloo")
        get_accelerator()._name = "cpu:0"
        told = {str(ratio): _trained(ratio, f"{folder}/{ratio}") for ratio in (1.0, 0.5)}
        torch.distributed.destroy_process_group()
    print(json.dumps(told))


def _trained(ratio: float, folder: str) -> dict[str, Any]:
    """Each group's rates and largest movement of each step, and which groups' states were saved and loaded."""
    engine = _engine(ratio)
    zero = engine.optimizer
    rates, moved = [], []
    for _ in range(STEPS):
        before = [group.detach().clone() for group in zero.fp32_partitioned_groups_flat]
        rates.append([_stepper(zero, number).param_groups[0]["lr"] for number in range(LAYERS)])
        _step(engine)
        now = zero.fp32_partitioned_groups_flat
        moved.append([float((a.detach() - b).abs().max()) for a, b in zip(now, before, strict=True)])
    engine.save_checkpoint(folder)
    saved = sorted(zero.state_dict()["optimizer_state_dict"]["state"])
    again = _engine(ratio)
    again.load_checkpoint(folder)
    groups = enumerate(again.optimizer.fp32_partitioned_groups_flat)
    loaded = [number for number, group in groups if group in _stepper(again.optimizer, number).state]
    return {"rates": rates, "moved": moved, "saved": saved, "loaded": loaded}


def _engine(ratio: float) -> Any:
    import deepspeed
    import torch

    torch.manual_seed(0)
    layers = (torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))
    offload = {"device": "cpu", "pin_memory": False, "ratio": ratio}
    warmup = {"warmup_min_lr": 0.0, "warmup_max_lr": LR, "warmup_num_steps": WARMUP, "warmup_type": "linear"}
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3, "sub_group_size": WIDTH**2, "offload_optimizer": offload},
        "optimizer": {"type": "AdamW", "params": {"lr": LR, "weight_decay": 0.0}},
        "scheduler": {"type": "WarmupLR", "params": warmup},
    }
    engine, *_ = deepspeed.initialize(model=torch.nn.Sequential(*layers), config=config)
    return engine


def _stepper(zero: Any, group: int) -> Any:
    """The optimizer that steps a group."""
    kept = zero.subgroup_to_device[group] != "cpu"
    return zero.backup_optimizer if kept else zero.optimizer


def _step(engine: Any) -> None:
    import torch

    loss = (engine(torch.ones(1, WIDTH, dtype=torch.bfloat16)).float() - 1).pow(2).sum()
    engine.backward(loss)
    engine.step()


if __name__ == "__main__":
    main()
