"""A child process: the same tiny model trained by DeepSpeed on gloo ranks and by plain PyTorch in one process.

Reads a list of cases as JSON from stdin and writes as many answers: the mean loss of every step of the plain run, of
the engine's, and of an engine that resumed from a checkpoint of the middle. A case has a config and ranks, and may have
a model (a config.json; else the tiny Llama), wide (sizes that DeepSpeed swaps to a drive), adapters (as
`dsgen.proving.proven_models.Lora` gives them; same_base: on weights that are not drawn anew), checkpointing, an
optimizer that the program makes, and saved: false, which leaves out the checkpoint.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import math
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import plain_optimizers

STEPS, SAVED_AFTER = 10, 5
# What the classes of transformers call dropout, with defaults above zero in some.
DROPOUTS = ("attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout", "hidden_dropout", "activation_dropout",
            "dropout", "classifier_dropout", "layerdrop")  # fmt: skip
VOCABULARY, LENGTH = 256, 16  # of tiny_llama
PAIR = 2  # ranks, for which siblings.py makes what is swapped
# Widths of siblings.py: each of four ranks would hold 64 elements of a bias or a norm, and the gradients behind them in
# a sub-group would begin at 256 bytes. Where a drive wants multiples of 512 (its queue/dma_alignment, and any drive
# before Linux 6.0), DeepSpeed 0.19.8 reads nothing there and does not say so (its libaio looks at no event's result):
# the optimizer then steps with what lay in the buffer.
NARROW, ALIGNED = 256, 512
GRACE_SECONDS = 2  # for other ranks to say why they end
SEED, OTHER_SEED = 20, 21  # of the weights; a resumed engine starts from other ones
RATE = 1e-3  # of an optimizer that the program makes, without a schedule
# What of a config the plain loop reads, beside how many samples a step has.
READ = ("optimizer", "scheduler", "gradient_clipping", "bf16", "fp16", "torch_autocast",
        "train_micro_batch_size_per_gpu")  # fmt: skip


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

    adapters = case.get("adapters")
    # A program reads the 4-bit weights of a base whenever it starts, for no checkpoint has all that belongs to them.
    torch.manual_seed(SEED if adapters and (adapters["method"] == "qlora" or "same_base" in case) else seed)
    model = _base(case)
    if not adapters:
        return model
    torch.manual_seed(seed)
    from dsgen.engine.proof import tiny_models

    asked = {"kind": "tiny", "adapters": adapters, "checkpointing": case.get("checkpointing", "")}
    job = {"model": asked, "ranks": case["ranks"], "tp": 1, "wide": False, "read": case["config"]}
    return tiny_models.load(job).finish(model)


def _base(case: dict[str, Any]) -> Any:
    """The model without adapters."""
    from dsgen.engine.proof import siblings, tiny_llama

    wide = bool(case.get("wide"))
    if case.get("model") is None:
        return tiny_llama.build(1, wide)
    from transformers import AutoConfig, AutoModelForCausalLM

    said = dict(case["model"])
    if wide:
        said = siblings.sibling(said, 1, wide=True, sharing=case["ranks"])
        if case["ranks"] == PAIR:  # attention is wide enough by itself
            said["vocab_size"] = VOCABULARY
        elif said["model_type"] != "llama":  # which has neither biases nor norms as narrow
            said = {key: ALIGNED if value == NARROW else value for key, value in said.items()}
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
    """The learning rate of each step: the first two steps of a warm-up are made with the least.

    DeepSpeed's schedule sets it when it is made, and sets the same after the first step (runtime/lr_schedules.py).
    """
    if "scheduler" not in config:
        return [config["optimizer"]["params"]["lr"] if "optimizer" in config else RATE] * STEPS
    kind, said = config["scheduler"]["type"], config["scheduler"]["params"]
    peak = said["warmup_max_lr"] if "warmup_max_lr" in said else config["optimizer"]["params"]["lr"]
    least = said["warmup_min_ratio"] * peak if "warmup_min_ratio" in said else said["warmup_min_lr"]
    over, total = said["warmup_num_steps"], said.get("total_num_steps", 0)

    def rate(step: int) -> float:
        if step < over:
            return float(least + (peak - least) * step / over)
        if kind == "WarmupDecayLR":
            return float(peak * max(0.0, (total - step) / (total - over)))
        if kind == "WarmupCosineLR":  # it is a step ahead of its warm-up
            fallen = (1 + math.cos(math.pi * min(1.0, (step - over + 1) / (total - over)))) / 2
            return float(peak * (said["cos_min_ratio"] + (1 - said["cos_min_ratio"]) * fallen))
        return float(peak)

    return [rate(max(0, step - 1)) for step in range(STEPS)]


def plain_optimizer(case: dict[str, Any], named: dict[str, Any]) -> Any:
    """The optimizer of the plain loop on its fp32 masters."""
    import torch

    config = case["config"]
    if case.get("optimizer"):
        optimizer = plain_optimizers.brought(case["optimizer"], RATE)(list(named.values()))
    else:
        optimizer = plain_optimizers.make(config, named)
    if config.get("bf16") and config.get("zero_optimization", {}).get("stage", 0) == 0:
        # DeepSpeed 0.19.8 makes Adam's states by a step with zero gradients, and below ZeRO that step counts: the first
        # update is 0.73 of torch's (runtime/fp16/fused_optimizer.py, initialize_optimizer_states).
        for one in named.values():
            one.grad = torch.zeros_like(one)
        optimizer.step()
    return optimizer


def scale_of(config: dict[str, Any]) -> float:
    """What fp16's loss is multiplied by; 1 without fp16."""
    said = config.get("fp16")
    return float(said.get("loss_scale") or 2.0 ** said["initial_scale_power"]) if said else 1.0


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
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    named = {name: one.detach().float().clone().requires_grad_() for name, one in trained.items()}
    masters = list(named.values())
    optimizer = plain_optimizer(case, named)
    casts = torch.autocast("cpu", torch.bfloat16, enabled="torch_autocast" in config)
    scale = scale_of(config)
    parts, losses = config["gradient_accumulation_steps"] * data_parallel, []
    for step, rate in enumerate(rates(config)):
        if kept is not None and step == SAVED_AFTER:
            kept.update((name, one.detach().clone()) for name, one in named.items())
        for one in masters:
            one.grad = torch.zeros_like(one)
        total = 0.0
        for number in range(parts):
            batch = tokens(config, number)
            with casts:
                loss = model(input_ids=batch, labels=batch).loss
            (loss.float() * scale).backward()
            total += float(loss.detach())
            for one, parameter in zip(masters, trained.values(), strict=True):
                if parameter.grad is not None:  # an expert that no token took has none
                    one.grad += parameter.grad.float() / (scale * parts)
                parameter.grad = None
        if hasattr(optimizer, "before_clipping"):
            optimizer.before_clipping()
        if config["gradient_clipping"]:
            torch.nn.utils.clip_grad_norm_(masters, config["gradient_clipping"])
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        with torch.no_grad():
            for one, parameter in zip(masters, trained.values(), strict=True):
                parameter.copy_(one)
        losses.append(total / parts)
    return losses


_plain: dict[str, list[float]] = {}


def plain_of(case: dict[str, Any]) -> list[float]:
    """The losses of the plain loop, which is run once for all cases that it cannot tell apart."""
    config = case["config"]
    samples = config["gradient_accumulation_steps"] * case["ranks"] // tensor_parallel(config)
    told = [case.get("model"), case.get("adapters"), case.get("optimizer"), samples,
            case["ranks"] if case.get("wide") else 0, config.get("zero_optimization", {}).get("stage", 0) == 0,
            [config.get(name) for name in READ]]  # fmt: skip
    key = json.dumps(told, sort_keys=True)
    if key not in _plain:
        _plain[key] = plain_in_a_fork(case)
    return _plain[key]


def plain_in_a_fork(case: dict[str, Any]) -> list[float]:
    """The plain loop in a child of its own: QLoRA's puts a stand-in of bitsandbytes where others need the real one."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "losses.json")

        def work(_: int) -> None:
            with sums_in_fp32(case):
                told.write_text(json.dumps(plain(case)), "utf-8")

        if error := forked(1, work, folder):
            raise RuntimeError(error)
        losses: list[float] = json.loads(told.read_text("utf-8"))
    return losses


@contextlib.contextmanager
def sums_in_fp32(case: dict[str, Any]) -> Iterator[None]:
    """Let a CPU multiply fp16 matrices as a GPU does: sums in fp32, rounded once.

    A CPU without AVX512-FP16 (children.py makes one of each) takes 94 ms for a product (32 x 1024 by 1024 x 1024) that
    takes this 1 ms, and as much more for small ones: four cases in fp16 took half of all the time of eleven.
    """
    import torch

    if not case["config"].get("fp16"):
        yield
        return
    library = torch.library.Library("aten", "IMPL")

    def mm(one: Any, other: Any) -> Any:
        exact = torch.empty(one.shape[0], other.shape[1])
        torch.mm(one.float(), other.float(), out=exact)
        return exact.to(one.dtype)

    def addmm(bias: Any, one: Any, other: Any, *, beta: float = 1, alpha: float = 1) -> Any:
        exact = torch.empty(one.shape[0], other.shape[1])
        torch.addmm(bias.float(), one.float(), other.float(), beta=beta, alpha=alpha, out=exact)
        return exact.to(one.dtype)

    library.impl("mm", mm, "CPU")
    library.impl("addmm", addmm, "CPU")
    try:
        yield
    finally:
        library._destroy()


def engine_of(case: dict[str, Any], seed: int) -> Any:
    """An engine on a model made as a training program would; without zero.Init, under which others are drawn."""
    import deepspeed

    from dsgen.engine.proof.cpu_stand_ins import let_ranks_go_first

    model = build(case, seed)
    config = copy.deepcopy(case["config"])
    trained = [one for one in model.parameters() if one.requires_grad]
    given = {}
    if case.get("optimizer"):
        given["optimizer"] = plain_optimizers.brought(case["optimizer"], RATE)(trained)
    engine = deepspeed.initialize(model=model, model_parameters=trained, config=config, **given)[0]
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

    from dsgen.engine.proof.cpu_stand_ins import leave_uncompiled, let_ranks_go_first

    leave_uncompiled(config)
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
    with sums_in_fp32(case):
        be_rank_of(case, rank, folder)


def be_rank_of(case: dict[str, Any], rank: int, folder: str) -> None:
    """The same, however a CPU multiplies."""
    config = case["config"]
    join(config, case["ranks"], rank, folder)
    engine = engine_of(case, SEED)
    losses = train(engine, config, range(SAVED_AFTER), rank)
    if not case.get("saved", True):
        losses += train(engine, config, range(SAVED_AFTER, STEPS), rank)
        if rank == 0:
            Path(folder, "losses.json").write_text(json.dumps({"engine": losses, "resumed": []}), "utf-8")
        return
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
    return {"error": "", "plain": plain_of(case), **told}


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
    kinds = {case["config"].get("optimizer", {}).get("type") for case in cases}
    operators += [f"CPU{kind}Builder" for kind in ("Adagrad", "Lion") if kind in kinds]
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
