"""A program made of the code that `dsgen needs --target deepspeed --format json` shows, need after need.

Arguments: the model's folder, the file of needs, and a need whose code is left out ("" for none).
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tiny import Tokens, folder_of_model, report
from torch.utils.data import DataLoader, DistributedSampler

MODEL = folder_of_model()
MICRO_BATCH = 1
dataset = Tokens()
loader = DataLoader(dataset, batch_size=MICRO_BATCH, sampler=DistributedSampler(dataset))


class Tokenizer:
    """Of it a need sets the length."""

    model_max_length = 10**9


space = {"MODEL": MODEL, "MICRO_BATCH": MICRO_BATCH, "dataset": dataset, "loader": loader, "tokenizer": Tokenizer()}
LOADS = ("zero-init", "four-bits", "attention", "adapters")
BEFORE = (*LOADS, "checkpointing", "leaf-modules", "same-data", "length", "start")
told = {item["code"]: item["snippet"] for item in json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))["needs"]}
for code in (code for code in BEFORE if code in told and code != sys.argv[3]):
    exec(told[code], space)  # the code under test
    if code == "attention":
        whole = sum(item.numel() for item in space["model"].parameters())
engine = space["engine"]
kinds: set[bool] = set()


def heard(function: Any) -> Any:
    """torch's checkpointing of a block, which tells its kind when it is called."""

    def checkpoint(*arguments: Any, **named: Any) -> Any:
        kinds.add(function.keywords["use_reentrant"])
        return function(*arguments, **named)

    return checkpoint


for module in engine.module.modules():
    if hasattr(module, "_gradient_checkpointing_func"):
        module._gradient_checkpointing_func = heard(module._gradient_checkpointing_func)
losses = []
for place, batch in enumerate(space["loader"]):
    if place == 2 * engine.gradient_accumulation_steps():
        break
    loss = engine(**batch).loss
    engine.backward(loss)
    engine.step()
    losses.append(loss.item())
exec(told["save"], space)
before = [item.detach().clone() for item in engine.module.parameters() if item.requires_grad]
for item in engine.module.parameters():
    item.data.zero_()
exec(told["resume"], space)
after = [item for item in engine.module.parameters() if item.requires_grad]
dist.barrier()
report(
    engine,
    loss=losses[-1],
    whole=whole,
    trained=sum(getattr(item, "ds_numel", item.numel()) for item in after),
    resumed=all(torch.equal(one, other) for one, other in zip(before, after, strict=True)),
    reentrant=sorted(kinds),
    checkpointing=bool(getattr(engine.module, "is_gradient_checkpointing", False)),
    length=space["tokenizer"].model_max_length,
)
