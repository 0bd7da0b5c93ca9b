"""A training program as a launch starts it: a real DeepSpeed engine on the CPU that saves, resumes and may be ended.

It is a person's program: it knows nothing of dsgen. Every step of rank 0 adds a line to the log: step, loss, and the
ranks with their hosts.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import time
from pathlib import Path

import deepspeed
import torch

WIDTH = 16


def arguments() -> argparse.Namespace:
    """What it is given."""
    parser = argparse.ArgumentParser()
    deepspeed.add_config_arguments(parser)
    parser.add_argument("--checkpoints", required=True)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--log", required=True)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between steps")
    parser.add_argument("--die-at", type=int, default=-1, help="step before which the last rank ends itself, once")
    parser.add_argument("--stop-after", type=int, default=-1, help="step behind which it ends")
    parser.add_argument("--note", default="")
    return parser.parse_args()


def batch(step: int, rank: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The data of a rank at a step: the same in every start."""
    random = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(size, WIDTH, generator=random)
    return inputs, inputs.sum(dim=1, keepdim=True)


def main() -> None:
    """Train to the last step, from the newest checkpoint on."""
    given = arguments()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1))
    engine, *_ = deepspeed.initialize(args=given, model=model, model_parameters=list(model.parameters()))
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    path, state = (
        engine.load_checkpoint(given.checkpoints) if Path(given.checkpoints, "latest").exists() else (None, {})
    )
    first = state["step"] + 1 if path else 0
    where = [""] * world
    torch.distributed.all_gather_object(where, f"{socket.gethostname()}:{os.environ['LOCAL_RANK']}")
    names = ("OMP_NUM_THREADS", "DEEPSPEED_TIMEOUT")
    read = {name: os.environ.get(name) for name in names}
    for step in range(first, given.steps):
        marker = Path(f"{given.log}.died")
        if step == given.die_at and rank == world - 1 and not marker.exists():
            marker.write_text("once")
            os.kill(os.getpid(), signal.SIGKILL)
        inputs, targets = batch(step, rank, engine.train_micro_batch_size_per_gpu())
        loss = torch.nn.functional.mse_loss(engine(inputs), targets)
        engine.backward(loss)
        engine.step()
        torch.distributed.all_reduce(loss)
        engine.save_checkpoint(given.checkpoints, client_state={"step": step})
        if rank == 0:
            line = {
                "step": step,
                "loss": loss.item() / world,
                "from": first,
                "where": where,
                "note": given.note,
                **read,
            }
            with Path(given.log).open("a", encoding="utf-8") as log:
                log.write(json.dumps({**line, **read}) + "\n")
        time.sleep(given.pause)
        if step == given.stop_after:
            break
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
