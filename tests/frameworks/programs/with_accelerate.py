"""Accelerate with the files that `dsgen render --target accelerate` wrote, started by `accelerate launch`."""

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DummyOptim, DummyScheduler
from tiny import Tokens, folder_of_model, report
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

folder = folder_of_model()
PartialState(cpu=True)  # without a GPU Accelerate knows of no other ranks unless it is told, as the Trainer does
accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained(folder)
settings = accelerator.state.deepspeed_plugin.deepspeed_config
loader = DataLoader(Tokens(), batch_size=settings["train_micro_batch_size_per_gpu"])
before = [item.detach().clone() for item in model.parameters()]
if len(sys.argv) > 2:  # the code that `dsgen needs` shows for the config
    told = {item["code"]: item["snippet"] for item in json.loads(Path(sys.argv[2]).read_text())["needs"]}
    exec(told["start"].replace("accelerator = Accelerator()", ""))
else:
    optimizer = DummyOptim(model.parameters())
    scheduler = DummyScheduler(optimizer)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
losses = []
for place, batch in enumerate(loader):
    if place == 2 * settings["gradient_accumulation_steps"]:
        break
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    losses.append(loss.item())
changed = [not torch.equal(old, new.detach().to(old)) for old, new in zip(before, model.parameters(), strict=True)]
report(model, loss=losses[-1], lr=scheduler.scheduler.get_last_lr(), trained=sum(changed))
