"""A program of Lightning as a launch starts it, on the CPU, with the trainer.py that dsgen writes beside it.

Lightning asks for CUDA before anything else; here that question is taken away, as in tests/frameworks/programs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import lightning.pytorch.strategies.deepspeed as strategy
import torch
from launched_program import WIDTH, batch

SIZE = 4  # sequences of a micro-batch


class Places(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """So many items; what a step trains on is made from its number."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, place: int) -> int:
        return place


class Module(pl.LightningModule):
    """A small model; the config has its optimizer."""

    def __init__(self, log: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1))
        self.file = Path(log)

    def configure_optimizers(self) -> None:
        """Lightning wants it to be there, and does not ask it."""

    def training_step(self, _: Any, __: int) -> torch.Tensor:
        """Loss of a step's batch, noted by rank 0; the loader's own begins anew where Lightning resumes in an epoch."""
        inputs, targets = batch(self.global_step, self.global_rank, SIZE)
        loss = torch.nn.functional.mse_loss(self.layers(inputs), targets)
        if self.global_rank == 0:
            with self.file.open("a", encoding="utf-8") as log:
                line = {"step": self.global_step, "loss": loss.item(), "world": self.trainer.world_size}
                log.write(json.dumps(line) + "\n")
        return loss


def main() -> None:
    """Train with the Trainer that was written."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trainer", required=True, help="the folder of trainer.py")
    parser.add_argument("--log", required=True)
    given = parser.parse_args()
    sys.path.insert(0, given.trainer)
    from trainer import last, trainer

    strategy.CUDAAccelerator = pl.accelerators.CPUAccelerator  # type: ignore[misc, assignment]
    strategy._validate_device_index_selection = lambda devices: None
    strategy.DeepSpeedStrategy.root_device = torch.device("cpu", 0)  # type: ignore[assignment]
    strategy.DeepSpeedStrategy._process_group_backend = "gloo"
    made = trainer(accelerator="cpu", logger=False, enable_progress_bar=False)
    loader = torch.utils.data.DataLoader(Places(), batch_size=SIZE)
    made.fit(Module(given.log), loader, ckpt_path=last())


if __name__ == "__main__":
    main()
