"""A child process: an engine with its optimizer on a drive trains and saves, or one that is new loads and goes on.

Arguments: "train" or "resume", a folder, and for "resume" how many models the process made before. Prints JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from dsgen.engine.serving import ask_cpu_once

SMALL, LARGE = 200, 1024  # width: a rank's sub-group of 4 * SMALL ** 2 bytes is below DeepSpeed's MIN_AIO_BYTES
STEPS = 4


def build(seed: int) -> Any:
    """Two layers, the first of which is swapped and the second of which is not."""
    import torch

    torch.manual_seed(seed)
    return torch.nn.ModuleDict({"large": torch.nn.Linear(LARGE, LARGE), "small": torch.nn.Linear(SMALL, SMALL)})


def engine_of(seed: int, drive: Path) -> Any:
    """Each layer is a sub-group of its own."""
    import deepspeed

    model = build(seed)
    zero = {"stage": 3, "sub_group_size": LARGE * LARGE + 1, "stage3_param_persistence_threshold": 10,
            "offload_optimizer": {"device": "nvme", "nvme_path": str(drive)}}  # fmt: skip
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}  # fmt: skip
    return deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)[0]


def weights(engine: Any) -> dict[str, Any]:
    """The whole 16-bit weights."""
    import deepspeed

    told = {}
    for name, parameter in engine.module.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter]):
            told[name] = parameter.detach().clone()
    return told


def steps_of(engine: Any) -> list[int]:
    """The steps that the optimizer counts for each sub-group; 0 where it has no state."""
    states = engine.optimizer.optimizer.state
    return [int(states.get(one, {}).get("step", 0)) for one in engine.optimizer.fp32_partitioned_groups_flat]


def train(engine: Any) -> None:
    """Some steps towards zero."""
    import torch

    for _ in range(STEPS):
        outputs = [
            engine.module[name](torch.ones(1, width, dtype=torch.bfloat16)).float()
            for name, width in (("large", LARGE), ("small", SMALL))
        ]
        loss = torch.cat(outputs, dim=1).square().mean()
        engine.backward(loss)
        engine.step()


def main() -> None:
    """One of the two."""
    what, folder = sys.argv[1], Path(sys.argv[2])
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_SIZE="1", MASTER_ADDR="127.0.0.1",
                      MASTER_PORT="1", DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")  # fmt: skip
    out = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed goes to stderr
    import deepspeed
    import torch

    ask_cpu_once()
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo", init_method=f"file://{folder / f'store-{os.getpid()}'}", rank=0, world_size=1)
    if what == "train":
        engine = engine_of(1, folder / "drive")
        train(engine)
        torch.save(weights(engine), folder / "weights.pt")
        told: dict[str, Any] = {"steps": steps_of(engine)}
        engine.save_checkpoint(str(folder / "checkpoint"), tag="last")
    else:
        for number in range(int(sys.argv[3])):
            engine_of(3 + number, folder / f"other-{number}")
        engine = engine_of(2, folder / "new-drive")
        first, saved = weights(engine), torch.load(folder / "weights.pt")
        loaded, _ = engine.load_checkpoint(str(folder / "checkpoint"), tag="last")
        now = weights(engine)
        told = {
            "loaded": loaded is not None,
            "global_steps": int(engine.global_steps),
            "steps": steps_of(engine),
            "as_saved": sorted(name for name in now if now[name].equal(saved[name])),
            "as_made": sorted(name for name in now if now[name].equal(first[name])),
        }
    os.write(out, json.dumps(told).encode())


if __name__ == "__main__":
    main()
