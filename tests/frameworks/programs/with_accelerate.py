"""Accelerate with the files that `dsgen render --target accelerate` wrote, started by `accelerate launch`."""

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
optimizer = DummyOptim(model.parameters())
scheduler = DummyScheduler(optimizer)
loader = DataLoader(Tokens(), batch_size=settings["train_micro_batch_size_per_gpu"])
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
report(model, loss=losses[-1], lr=scheduler.scheduler.get_last_lr())
