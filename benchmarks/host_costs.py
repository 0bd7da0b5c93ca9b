"""What Python of DeepSpeed's hooks and of bitsandbytes costs the host, measured on one rank without a GPU.

    python benchmarks/host_costs.py

Small linear layers, forward and backward, with the real ZeRO-3 and with the real 4-bit layers, each less the same
without; the difference by layer is Python, one gathering of 8 KiB over gloo, and kernels of a few KiB. Seconds of this
thread alone, the best of many passes: other processes disturb them little. Needs `dsgen[simulate]` and bitsandbytes.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from typing import Any

WIDTH, ROWS, LAYERS, PASSES, CHAIN = 64, 4, 16, 400, 20
ENVIRONMENT = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29777",
               "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}  # fmt: skip
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 100_000,  # so that no step ends within the measurement
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"torch_adam": True}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}


def best(forward: Callable[[], Any], backward: Callable[[Any], Any]) -> tuple[float, float]:
    """Seconds of the fastest forward, and of the fastest backward, of this thread."""
    times = []
    gc.disable()
    for _ in range(PASSES):
        start = time.thread_time()
        loss = forward()
        middle = time.thread_time()
        backward(loss)
        times.append((middle - start, time.thread_time() - middle))
    gc.enable()
    return min(one for one, _ in times), min(one for _, one in times)


def said(name: str, plain: tuple[float, float], other: tuple[float, float]) -> str:
    """A line: microseconds for a layer that one chain takes more than another, forward and backward."""
    ahead, back = ((more - less) / LAYERS * 1e6 for less, more in zip(plain, other, strict=True))
    return f"{name}: {ahead:.0f} us a layer forward, {back:.0f} backward"


def main() -> None:
    """Print what one operator takes on this machine, then what each sort of layer takes beside a plain one."""
    os.environ.update(ENVIRONMENT)
    import bitsandbytes
    import deepspeed
    import torch
    from torch import nn

    torch.set_num_threads(1)
    number, batch = torch.randn(WIDTH, requires_grad=True), torch.randn(ROWS, WIDTH, dtype=torch.bfloat16)
    batch.requires_grad_(True)

    def operators() -> Any:
        last = number
        for _ in range(CHAIN):
            last = last * 1.0001
        return last.sum()

    def plain_layers() -> nn.Sequential:
        return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))

    def packed_layer() -> nn.Module:
        kinds = {"compute_dtype": torch.bfloat16, "quant_type": "nf4", "compress_statistics": True}
        return bitsandbytes.nn.Linear4bit(WIDTH, WIDTH, bias=False, **kinds).bfloat16().to("cpu")

    def times(chain: nn.Module) -> tuple[float, float]:
        return best(lambda: chain(batch).sum(), lambda loss: loss.backward())

    ahead, back = best(operators, lambda loss: loss.backward())
    print(f"an operator: {ahead / CHAIN * 1e6:.1f} us forward, {back / CHAIN * 1e6:.1f} backward, without a launch")
    trained = plain_layers().bfloat16()
    frozen = plain_layers().bfloat16().requires_grad_(False)
    print(said("4 bits of bitsandbytes", times(frozen), times(nn.Sequential(*(packed_layer() for _ in range(LAYERS))))))
    engine, *_ = deepspeed.initialize(model=plain_layers(), config=CONFIG)
    hooked = best(lambda: engine(batch).sum(), lambda loss: (engine.backward(loss), engine.step()))
    print(said("hooks of ZeRO-3", times(trained), hooked))


if __name__ == "__main__":
    main()
