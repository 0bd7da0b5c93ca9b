"""Lightning with the Trainer that `dsgen render --target lightning` wrote, on two ranks of the CPU."""

import runpy
import sys

import lightning.pytorch as pl
import lightning.pytorch.strategies.deepspeed as strategy
import torch
from tiny import Tokens, folder_of_model, report
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM


class Module(pl.LightningModule):
    """A language model; the config has optimizer and schedule."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(folder)
        self.seen: list[int] = []

    def training_step(self, batch, place):
        """Loss of a batch."""
        self.seen.append(self.trainer.global_step)
        return self.model(**batch).loss

    def configure_optimizers(self):
        """The config's own runs."""
        raise AssertionError("it was asked for an optimizer")


# It asks for GPUs first of all, and that their numbers are the ranks'; what follows runs without.
strategy.CUDAAccelerator = pl.accelerators.CPUAccelerator
strategy._validate_device_index_selection = lambda devices: None
strategy.DeepSpeedStrategy.root_device = torch.device("cpu", 0)
written = runpy.run_path(sys.argv[2])
trainer = written["trainer"](accelerator="cpu", logger=False, enable_progress_bar=False)
module, last = Module(folder_of_model()), written["last"]()
trainer.fit(module, DataLoader(Tokens(), batch_size=1), ckpt_path=last)
report(trainer.strategy.deepspeed_engine, last=last, seen=module.seen)
