"""What ZeRO-3's hooks cost the host for one module in one pass, measured on one rank without a GPU.

    python benchmarks/zero3_hooks.py

A chain of small linear layers, forward and backward, with the real DeepSpeed and without it; the difference by layer is
Python of the hooks, and one gathering of 8 KiB over gloo. The best of a dozen passes counts. Needs `dsgen[proof]`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

WIDTH, LAYERS, PASSES = 64, 112, 12
ENVIRONMENT = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29777",
               "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}  # fmt: skip
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1000,  # so that no step ends within the measurement
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"torch_adam": True}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}


def best(forward: Callable[[], Any], backward: Callable[[Any], Any]) -> tuple[float, float]:
    """Seconds of the fastest forward, and of the fastest backward."""
    times = []
    for _ in range(PASSES):
        start = time.perf_counter()
        loss = forward()
        middle = time.perf_counter()
        backward(loss)
        times.append((middle - start, time.perf_counter() - middle))
    return min(one for one, _ in times), min(one for _, one in times)


def main() -> None:
    """Print microseconds for a layer, forward and backward."""
    os.environ.update(ENVIRONMENT)
    import deepspeed
    import torch
    from torch import nn

    torch.set_num_threads(1)
    batch = torch.randn(4, WIDTH, dtype=torch.bfloat16)

    def chain() -> nn.Module:
        return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))

    plain = chain().bfloat16()
    alone = best(lambda: plain(batch).sum(), lambda loss: loss.backward())
    engine, *_ = deepspeed.initialize(model=chain(), config=CONFIG)
    hooked = best(lambda: engine(batch).sum(), lambda loss: (engine.backward(loss), engine.step()))
    for name, without, with_hooks in zip(("forward", "backward"), alone, hooked, strict=True):
        print(f"{name}: {(with_hooks - without) / LAYERS * 1e6:.0f} us a layer")


if __name__ == "__main__":
    main()
