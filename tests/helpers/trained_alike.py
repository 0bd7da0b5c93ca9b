"""A child process: the same tiny model trained by DeepSpeed on gloo ranks and by plain PyTorch in one process.

Reads a list of cases (config, ranks) as JSON from stdin and writes as many answers: the mean loss of every step of the
plain run, of the engine's, and of an engine that resumed from a checkpoint of the middle.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

STEPS, SAVED_AFTER = 10, 5
VOCABULARY, LENGTH = 256, 16  # of tiny_llama
SEED, OTHER_SEED = 20, 21  # of the weights; a resumed engine starts from other ones
PRELOAD = ("torch._dynamo", "torch._inductor.compile_fx", "deepspeed.runtime.zero.stage3",
           "deepspeed.runtime.zero.stage_1_and_2", "deepspeed.runtime.superoffload",
           "transformers.models.llama.modeling_llama")  # fmt: skip


def tokens(config: dict[str, Any], micro: int, rank: int) -> Any:
    """The batch of one micro-step of one data-parallel rank, the same in every step, so that the loss falls."""
    import torch

    generator = torch.Generator().manual_seed(100 * micro + rank)
    return torch.randint(0, VOCABULARY, (config["train_micro_batch_size_per_gpu"], LENGTH), generator=generator)


def plain(config: dict[str, Any], data_parallel: int) -> list[float]:
    """The losses of a loop without DeepSpeed: fp32 masters, gradients averaged over all micro-steps of all ranks."""
    import torch

    from dsgen.engine.proof import tiny_llama

    torch.manual_seed(SEED)
    model = tiny_llama.build(1, False)
    if config.get("bf16"):
        model = model.bfloat16()
    masters = [one.detach().float().clone().requires_grad_() for one in model.parameters()]
    said = config["optimizer"]["params"]
    optimizer = torch.optim.AdamW(
        masters, lr=said["lr"], betas=said["betas"], eps=said["eps"], weight_decay=said["weight_decay"]
    )
    if config.get("bf16") and config["zero_optimization"]["stage"] == 0:
        # DeepSpeed 0.19.8 makes Adam's states by a step with zero gradients, and below ZeRO that step counts: the first
        # update is 0.73 of torch's (runtime/fp16/fused_optimizer.py, initialize_optimizer_states).
        for one in masters:
            one.grad = torch.zeros_like(one)
        optimizer.step()
    micros, losses = config["gradient_accumulation_steps"], []
    for _ in range(STEPS):
        for one in masters:
            one.grad = torch.zeros_like(one)
        total = 0.0
        for micro in range(micros):
            for rank in range(data_parallel):
                batch = tokens(config, micro, rank)
                loss = model(input_ids=batch, labels=batch).loss
                loss.backward()
                total += float(loss.detach())
                for one, parameter in zip(masters, model.parameters(), strict=True):
                    one.grad += parameter.grad.float() / (micros * data_parallel)
                    parameter.grad = None
        if config["gradient_clipping"]:
            torch.nn.utils.clip_grad_norm_(masters, config["gradient_clipping"])
        optimizer.step()
        with torch.no_grad():
            for one, parameter in zip(masters, model.parameters(), strict=True):
                parameter.copy_(one)
        losses.append(total / (micros * data_parallel))
    return losses


def engine_of(config: dict[str, Any], seed: int) -> Any:
    """An engine on a model made as a training program would."""
    import deepspeed
    import torch

    from dsgen.engine.proof import tiny_llama

    torch.manual_seed(seed)
    model = tiny_llama.build(1, False)  # without zero.Init, under which transformers draws other weights
    return deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=copy.deepcopy(config))[0]


def train(engine: Any, config: dict[str, Any], steps: range, rank: int) -> list[float]:
    """The mean loss of all ranks in every step."""
    import torch
    import torch.distributed as dist

    losses = []
    for _ in steps:
        total = torch.zeros(1, dtype=torch.float64)
        for micro in range(config["gradient_accumulation_steps"]):
            batch = tokens(config, micro, rank)
            loss = engine(input_ids=batch, labels=batch).loss
            engine.backward(loss)
            engine.step()
            total += float(loss.detach())
        dist.all_reduce(total)
        losses.append(float(total) / (dist.get_world_size() * config["gradient_accumulation_steps"]))
    return losses


def be_rank(case: dict[str, Any], rank: int, folder: str) -> None:
    """Train, save in the middle, and resume in an engine that began with other weights."""
    import deepspeed

    config, ranks = case["config"], case["ranks"]
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_SIZE=str(ranks),
        LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(os.getppid()),
    )  # fmt: skip
    deepspeed.init_distributed("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks, verbose=False)
    engine = engine_of(config, SEED)
    losses = train(engine, config, range(SAVED_AFTER), rank)
    engine.save_checkpoint(f"{folder}/checkpoint", tag="middle")
    losses += train(engine, config, range(SAVED_AFTER, STEPS), rank)
    other = engine
    if "zero_hpz_partition_size" not in config["zero_optimization"]:  # whose groups a process can make once
        engine.destroy()
        other = engine_of(config, OTHER_SEED)
    other.load_checkpoint(f"{folder}/checkpoint", tag="middle")
    resumed = train(other, config, range(SAVED_AFTER, STEPS), rank)
    if rank == 0:
        Path(folder, "losses.json").write_text(json.dumps({"engine": losses, "resumed": resumed}), "utf-8")


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """One case on forked ranks."""
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for rank in range(case["ranks"]):
            pid = os.fork()
            if not pid:
                code = 1
                try:
                    be_rank(case, rank, folder)
                    code = 0
                except BaseException:
                    Path(folder, f"error{rank}").write_text(traceback.format_exc()[-2000:], "utf-8")
                finally:
                    os._exit(code)
            pids.append(pid)
        ended = dict(os.wait() for _ in pids)
        if any(ended.values()):
            errors = [path.read_text("utf-8") for path in sorted(Path(folder).glob("error*"))]
            return {"error": "\n".join(errors) or str(ended)}
        told = json.loads(Path(folder, "losses.json").read_text("utf-8"))
    return {"error": "", "plain": plain(case["config"], case["ranks"]), **told}


def main() -> None:
    """Answer everything on stdin."""
    os.environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    out = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed goes to stderr
    import torch

    torch.set_num_threads(1)
    for name in ("deepspeed", *PRELOAD):
        importlib.import_module(name)
    from dsgen.engine.proof import ops

    for name in ("ShareMemCommBuilder", "FusedAdamBuilder", "CPUAdamBuilder"):
        ops.load(name)  # forked ranks inherit them
    answers = [answer(case) for case in json.load(sys.stdin)]
    with os.fdopen(out, "w", encoding="utf-8") as file:
        json.dump(answers, file)


if __name__ == "__main__":
    main()
