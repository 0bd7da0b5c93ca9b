"""A child process: the same tiny model trained by DeepSpeed on gloo ranks and by plain PyTorch in one process.

Reads a list of cases as JSON from stdin and writes as many answers: the mean loss of every step of the plain run, of
the engine's, and of an engine that resumed from a checkpoint of the middle. A case has a config and ranks, and may have
a model (a config.json; else the tiny Llama) and wide (sizes that DeepSpeed swaps to a drive).
"""

from __future__ import annotations

import copy
import gc
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS, SAVED_AFTER = 10, 5
# What the classes of transformers call dropout, with defaults above zero in some.
DROPOUTS = ("attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout", "hidden_dropout", "activation_dropout",
            "dropout", "classifier_dropout", "layerdrop")  # fmt: skip
VOCABULARY, LENGTH = 256, 16  # of tiny_llama
GRACE_SECONDS = 2  # for other ranks to say why they end
SEED, OTHER_SEED = 20, 21  # of the weights; a resumed engine starts from other ones


def tensor_parallel(config: dict[str, Any]) -> int:
    """Ranks that share a batch."""
    return int(config.get("tensor_parallel", {}).get("autotp_size", 1))


def dtype_of(config: dict[str, Any]) -> Any:
    """Of the parameters."""
    import torch

    return torch.bfloat16 if config.get("bf16") else torch.float16 if config.get("fp16") else torch.float32


def build(case: dict[str, Any], seed: int) -> Any:
    """The model of a case as a training program makes it, without dropout, whose numbers no two runs share."""
    import torch

    from dsgen.engine.proof import siblings, tiny_llama

    torch.manual_seed(seed)
    wide = bool(case.get("wide"))
    if case.get("model") is None:
        return tiny_llama.build(1, wide)
    from transformers import AutoConfig, AutoModelForCausalLM

    said = dict(case["model"])
    if wide:
        said = siblings.sibling(said, 1, wide=True) | {"vocab_size": VOCABULARY}
    dropouts = dict.fromkeys((name for name in said if "drop" in name and isinstance(said[name], (int, float))), 0.0)
    described = AutoConfig.for_model(**{**said, **dropouts, "pad_token_id": None})
    for name in DROPOUTS:
        if getattr(described, name, 0.0):
            setattr(described, name, 0.0)
    described.use_cache = False
    return AutoModelForCausalLM.from_config(described, attn_implementation="eager").train()


def tokens(config: dict[str, Any], number: int) -> Any:
    """The batch of one micro-step of one data-parallel rank, the same in every step, so that the loss falls.

    Numbered through micro-steps, then ranks: half the ranks with twice the micro-steps see the same.
    """
    import torch

    generator = torch.Generator().manual_seed(number)
    return torch.randint(0, VOCABULARY, (config["train_micro_batch_size_per_gpu"], LENGTH), generator=generator)


def rates(config: dict[str, Any]) -> list[float]:
    """The learning rate of each step: WarmupLR's line, whose first two steps are made with the least.

    DeepSpeed's schedule sets it when it is made, and sets the same after the first step (runtime/lr_schedules.py).
    """
    said = config["optimizer"]["params"]
    if "scheduler" not in config:
        return [said["lr"]] * STEPS
    warmup = config["scheduler"]["params"]
    least, most, over = (warmup[f"warmup_{name}"] for name in ("min_lr", "max_lr", "num_steps"))
    return [least + (most - least) * min(1.0, max(0, step - 1) / over) for step in range(STEPS)]


def plain(case: dict[str, Any], kept: dict[str, Any] | None = None) -> list[float]:
    """The losses of a loop without DeepSpeed: fp32 masters, gradients averaged over all micro-steps of all ranks.

    Args:
        case: What is trained.
        kept: Gets the fp32 weights of the middle, by name.
    """
    import torch

    config = case["config"]
    data_parallel = case["ranks"] // tensor_parallel(config)
    model = build(case, SEED).to(dtype_of(config))
    masters = [one.detach().float().clone().requires_grad_() for one in model.parameters()]
    said = config["optimizer"]["params"]
    optimizer = torch.optim.AdamW(
        masters, lr=said["lr"], betas=said["betas"], eps=said["eps"], weight_decay=said["weight_decay"]
    )
    if config.get("bf16") and config.get("zero_optimization", {}).get("stage", 0) == 0:
        # DeepSpeed 0.19.8 makes Adam's states by a step with zero gradients, and below ZeRO that step counts: the first
        # update is 0.73 of torch's (runtime/fp16/fused_optimizer.py, initialize_optimizer_states).
        for one in masters:
            one.grad = torch.zeros_like(one)
        optimizer.step()
    scale = 2.0 ** config["fp16"]["initial_scale_power"] if config.get("fp16") else 1.0
    parts, losses = config["gradient_accumulation_steps"] * data_parallel, []
    for step, rate in enumerate(rates(config)):
        if kept is not None and step == SAVED_AFTER:
            names = (name for name, _ in model.named_parameters())
            kept.update((name, one.detach().clone()) for name, one in zip(names, masters, strict=True))
        for one in masters:
            one.grad = torch.zeros_like(one)
        total = 0.0
        for number in range(parts):
            batch = tokens(config, number)
            loss = model(input_ids=batch, labels=batch).loss
            (loss.float() * scale).backward()
            total += float(loss.detach())
            for one, parameter in zip(masters, model.parameters(), strict=True):
                if parameter.grad is not None:  # an expert that no token took has none
                    one.grad += parameter.grad.float() / (scale * parts)
                parameter.grad = None
        if config["gradient_clipping"]:
            torch.nn.utils.clip_grad_norm_(masters, config["gradient_clipping"])
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        with torch.no_grad():
            for one, parameter in zip(masters, model.parameters(), strict=True):
                parameter.copy_(one)
        losses.append(total / parts)
    return losses


def engine_of(case: dict[str, Any], seed: int) -> Any:
    """An engine on a model made as a training program would; without zero.Init, under which others are drawn."""
    import deepspeed

    from dsgen.engine.proof.cpu_stand_ins import let_ranks_go_first

    model = build(case, seed)
    config = copy.deepcopy(case["config"])
    engine = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)[0]
    let_ranks_go_first()  # of the groups that it made
    return engine


def train(engine: Any, config: dict[str, Any], steps: range, rank: int) -> list[float]:
    """The mean loss of all ranks in every step."""
    import torch
    import torch.distributed as dist

    tp, losses = tensor_parallel(config), []
    for _ in steps:
        total = torch.zeros(1, dtype=torch.float64)
        for micro in range(config["gradient_accumulation_steps"]):
            batch = tokens(config, micro * (dist.get_world_size() // tp) + rank // tp)
            loss = engine(input_ids=batch, labels=batch).loss
            engine.backward(loss)
            engine.step()
            total += float(loss.detach())
        dist.all_reduce(total)
        losses.append(float(total) / (dist.get_world_size() * config["gradient_accumulation_steps"]))
    return losses


def join(config: dict[str, Any], ranks: int, rank: int, folder: str) -> None:
    """Be one of some gloo ranks, which meet in a file."""
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    from dsgen.engine.proof.cpu_stand_ins import let_ranks_go_first

    for name in ("offload_optimizer", "offload_param"):
        if (section := config.get("zero_optimization", {}).get(name, {})).get("device") == "nvme":
            section["nvme_path"] = folder
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_SIZE=str(ranks),
        LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(os.getppid()),
    )  # fmt: skip
    swapped = config.get("zero_optimization", {}).get("offload_param", {}).get("device") == "nvme"
    # DeepSpeed refuses fp16 on a CPU that it thinks too weak, and there swaps fp32 parameters in bf16, as on no GPU
    # (runtime/zero/partition_parameters.py, _set_dtype: "dtype or float16 if is_fp16_supported() else bfloat16").
    if config.get("fp16") or swapped:
        type(get_accelerator()).is_fp16_supported = lambda self: True
    deepspeed.init_distributed("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks, verbose=False)
    let_ranks_go_first()


def be_rank(case: dict[str, Any], rank: int, folder: str) -> None:
    """Train, save in the middle, and resume in an engine that began with other weights."""
    config = case["config"]
    join(config, case["ranks"], rank, folder)
    engine = engine_of(case, SEED)
    losses = train(engine, config, range(SAVED_AFTER), rank)
    engine.save_checkpoint(f"{folder}/checkpoint", tag="middle")
    losses += train(engine, config, range(SAVED_AFTER, STEPS), rank)
    other = engine
    if "zero_hpz_partition_size" not in config.get("zero_optimization", {}):  # whose groups a process can make once
        engine.destroy()
        other = engine_of(case, OTHER_SEED)
    other.load_checkpoint(f"{folder}/checkpoint", tag="middle")
    resumed = train(other, config, range(SAVED_AFTER, STEPS), rank)
    if rank == 0:
        Path(folder, "losses.json").write_text(json.dumps({"engine": losses, "resumed": resumed}), "utf-8")


def forked(ranks: int, work: Callable[[int], None], folder: str) -> str:
    """Work on forked ranks; what went wrong."""
    pids = []
    for rank in range(ranks):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                work(rank)
                code = 0
            except BaseException:
                Path(folder, f"error{rank}").write_text(traceback.format_exc()[-2000:], "utf-8")
            finally:
                os._exit(code)
        pids.append(pid)
    ended = dict([os.wait()])
    while len(ended) < len(pids):
        if any(ended.values()):  # the others may wait for it for half an hour
            time.sleep(GRACE_SECONDS)
            for pid in set(pids) - set(ended):
                os.kill(pid, signal.SIGKILL)
        ended.update([os.wait()])
    if not any(ended.values()):
        return ""
    return "\n".join(path.read_text("utf-8") for path in sorted(Path(folder).glob("error*"))) or str(ended)


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """One case on forked ranks."""
    with tempfile.TemporaryDirectory() as folder:
        if error := forked(case["ranks"], lambda rank: be_rank(case, rank, folder), folder):
            return {"error": error}
        told = json.loads(Path(folder, "losses.json").read_text("utf-8"))
    return {"error": "", "plain": plain(case), **told}


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer every case on stdin, and say on stderr how long each took."""
    os.environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    out = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed goes to stderr
    import torch

    torch.set_num_threads(1)
    import deepspeed  # noqa: F401

    from dsgen.engine.proof import cpu_stand_ins, ops
    from dsgen.engine.proof.server import PRELOAD
    from dsgen.engine.serving import ask_cpu_once, preload

    preload(PRELOAD)
    ask_cpu_once()
    cases, answers = json.load(sys.stdin), []
    operators = ["ShareMemCommBuilder", "FusedAdamBuilder", "CPUAdamBuilder"]
    for name in [*operators, *(["AsyncIOBuilder"] if any(case.get("wide") for case in cases) else [])]:
        ops.load(name)  # forked ranks inherit them
    gc.freeze()  # DeepSpeed collects garbage often; a rank would look through all that was imported
    for number, case in enumerate(cases):
        began = time.monotonic()
        cpu_stand_ins.share_memory(tensor_parallel(case["config"]) > 1)
        answers.append(answer(case))
        print(f"{number + 1} of {len(cases)}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    with os.fdopen(out, "w", encoding="utf-8") as file:
        json.dump(answers, file)


if __name__ == "__main__":
    serve(answer)
