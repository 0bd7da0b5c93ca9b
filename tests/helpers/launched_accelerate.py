"""A program of Accelerate as a launch starts it, on the CPU: it saves, resumes, and logs every step of rank 0.

It is a person's program: it knows nothing of dsgen.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import accelerate
import torch
from accelerate.utils import DummyOptim, DummyScheduler
from launched_program import WIDTH, batch


def main() -> None:
    """Train to the last step, from the newest state on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--stop-after", type=int, default=-1)
    given = parser.parse_args()
    accelerate.PartialState(cpu=True)  # without a GPU Accelerate knows of no other ranks unless it is told
    accelerator = accelerate.Accelerator()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1))
    optimizer = DummyOptim(model.parameters())
    engine, _, _ = accelerator.prepare(model, optimizer, DummyScheduler(optimizer))
    rank, world = accelerator.process_index, accelerator.num_processes
    noted = Path(given.output_dir, "step.json")
    first = json.loads(noted.read_text())["step"] + 1 if noted.exists() else 0
    if first:
        accelerator.load_state(given.output_dir)
    for step in range(first, given.steps):
        inputs, targets = batch(step, rank, engine.train_micro_batch_size_per_gpu())
        loss = torch.nn.functional.mse_loss(engine(inputs), targets)
        accelerator.backward(loss)
        torch.distributed.all_reduce(loss)
        accelerator.save_state(given.output_dir)
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            noted.write_text(json.dumps({"step": step}))
            with Path(given.log).open("a", encoding="utf-8") as log:
                log.write(json.dumps({"step": step, "loss": loss.item() / world, "from": first, "world": world}) + "\n")
        accelerator.wait_for_everyone()
        if step == given.stop_after:
            break


if __name__ == "__main__":
    main()
