"""Child process: real steps of the real engine on a real GPU, cut into phases where the simulation is cut.

stdin: `{"request": as in dsgen.engine.simulate}`, with `"limit_bytes"` if torch shall take no more; or
`{"check": [requests]}`, which makes the first CUDA call and, if that fails, builds every model without memory. stdout:
one JSON object. What the libraries print goes to stderr.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import resource
import socket
import sys
import tempfile
import time
import traceback
from importlib import metadata
from typing import Any

__all__ = ["check", "main", "measure"]

PACKAGES = ("deepspeed", "torch", "transformers", "peft", "flash_attn")
KIB = 1024  # bytes in a unit of ru_maxrss
WEIGHT = 0.01  # of every random model: sizes do not depend on values, and drawing billions takes minutes
# transformers' name of an attention; "flash" needs a package of its own.
ATTENTION = {"flash": "flash_attention_2", "sdpa": "sdpa", "math": "sdpa", "eager": "eager"}


def main() -> None:
    """Answer the question on stdin."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    asked = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if "check" in asked:
        os.environ["DS_ACCELERATOR"] = "cpu"
        answer = check(asked["check"])
    else:
        answer = answered(asked["request"], asked.get("limit_bytes"))
    json.dump(answer, answers)
    answers.flush()
    os._exit(0)  # tearing NCCL down can hang, and nothing is left to save


def answered(request: dict[str, Any], limit_bytes: int | None = None) -> dict[str, Any]:
    """A measurement; an error is one too. With a limit torch's allocator takes no more than that."""
    progress = {"phase": "import"}
    try:
        if request["alloc_conf"]:
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = request["alloc_conf"]  # before torch is imported
        if request["attention"] == "flash" and importlib.util.find_spec("flash_attn") is None:
            return {"versions": versions(), "not_run": "flash_attn is not installed"}
        from gpu_memory_card import Card

        return measure(request, Card(limit_bytes), progress)
    except BaseException as error:  # whatever ends the run is told, SystemExit of a library included
        return {"versions": versions(), "error": {**told(error), "phase": progress["phase"]}}


def measure(request: dict[str, Any], card: Any, progress: dict[str, str]) -> dict[str, Any]:
    """Load, initialize, and train the request's steps.

    Args:
        request: As in `dsgen.engine.simulate`; world_size is 1.
        card: A `gpu_memory_card.Card`, or what stands in for one.
        progress: Gets the phase that is running.

    Returns:
        `versions`, `card`, `phases` (phase, step, micro_batch, readings), `peak` (the largest readings), `after`,
        `engine` (classes), `seconds`, `rss_bytes`.

    Raises:
        Exception: What DeepSpeed, torch or transformers raise.
    """
    import torch

    began = time.monotonic()
    join_world(card.backend)
    progress["phase"] = "open"
    facts = card.open()
    import deepspeed

    deepspeed.init_distributed(dist_backend=card.backend, verbose=False)
    phases: list[dict[str, Any]] = []

    def cut(phase: str, step: int = 0, micro_batch: int = 0) -> None:
        """End a phase, as `dsgen.engine.simulate.runs._end` does, and begin the next."""
        phases.append({"phase": phase, "step": step, "micro_batch": micro_batch, **card.end()})
        card.begin()

    card.begin()
    engine = start(request, cut, progress)
    for step in range(1, request["steps"] + 1):
        for micro_batch in range(1, engine.gradient_accumulation_steps() + 1):
            progress["phase"] = "forward"
            tokens = batch(request, card.device, engine.train_micro_batch_size_per_gpu())
            out = engine(input_ids=tokens, labels=tokens)
            loss = out.loss
            del out
            cut("forward", step, micro_batch)
            progress["phase"] = "backward"
            engine.backward(loss)
            cut("backward", step, micro_batch)
            del loss, tokens
            progress["phase"] = "step"
            engine.step()
        cut("step", step)
        if request["evaluation"] is not None:
            progress["phase"] = "evaluate"
            evaluate(request, engine, card.device)
            cut("evaluate", step)
    classes = type(engine.optimizer).__name__, type(engine.basic_optimizer).__name__
    if request["checkpoint"]:
        with tempfile.TemporaryDirectory() as folder:
            progress["phase"] = "save"
            save(request, engine, folder)
            cut("save", request["steps"])
            end(engine)
            del engine
            gc.collect()
            card.begin()
            again = start(request, cut, progress)
            progress["phase"] = "resume"
            again.load_checkpoint(folder, load_module_strict=False)
            cut("resume")
    return {
        "versions": versions(),
        "card": facts,
        "phases": phases,
        "peak": {
            "allocated_bytes": max(phase["peak_allocated_bytes"] for phase in phases),
            "reserved_bytes": max(phase["peak_reserved_bytes"] for phase in phases),
        },
        "after": card.close(),
        "engine": {
            "wrapper": classes[0],
            "optimizer": classes[1],
            "threads": torch.get_num_threads(),
        },
        "seconds": round(time.monotonic() - began, 1),
        "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB,
    }


def evaluate(request: dict[str, Any], engine: Any, device: str) -> None:
    """Batches as the Trainer evaluates them, and as `dsgen.engine.simulate.runs._evaluate` does."""
    import torch

    from dsgen.engine.simulate.runs import BATCHES

    engine.eval()
    for _ in range(BATCHES):
        tokens = batch(request, device, request["evaluation"])
        with torch.no_grad():
            out = engine(input_ids=tokens, labels=tokens)
        loss = out.loss.detach().mean()
        del out, tokens
    del loss
    engine.train()


def save(request: dict[str, Any], engine: Any, folder: str) -> None:
    """The weights beside a checkpoint, and the checkpoint, as the Trainer saves them."""
    import torch

    from dsgen.engine.simulate.checkpoint_files import weights

    saved = weights(engine, request["method"] != "full")
    if saved is not None:
        torch.save(saved, f"{folder}/model.bin")
    del saved
    engine.save_checkpoint(folder, exclude_frozen_parameters=True)


def end(engine: Any) -> None:
    """Let go of what an engine holds on the card, as the end of its process does."""
    engine.destroy()
    for optimizer in (engine.basic_optimizer, engine.optimizer):
        vars(optimizer).clear()
    for tensor in (*engine.module.parameters(), *engine.module.buffers()):
        tensor.data = tensor.data.new_empty(0)
        for name in [*vars(tensor)]:
            delattr(tensor, name)


def start(request: dict[str, Any], cut: Any, progress: dict[str, str]) -> Any:
    """An engine with its model, cut into load and init."""
    import deepspeed

    progress["phase"] = "load"
    model = build(request)
    cut("load")
    progress["phase"] = "init"
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    engine, *_ = deepspeed.initialize(model=model, model_parameters=trained, config=request["config"])
    del trained, model
    cut("init")
    return engine


def build(request: dict[str, Any]) -> Any:
    """The model as a training program has it before `deepspeed.initialize`; at stage 3 made under zero.Init."""
    import contextlib

    import deepspeed
    import torch
    from transformers import AutoModelForCausalLM

    with contextlib.ExitStack() as stack:
        hf_config = known(request["model"])
        if stage(request) == 3:
            stack.enter_context(deepspeed.zero.Init(config_dict_or_path=request["config"]))
        stack.enter_context(unfilled())
        dtype = getattr(torch, request["dtype"])
        implementation = ATTENTION[request["attention"]]
        model = AutoModelForCausalLM.from_config(hf_config, attn_implementation=implementation, dtype=dtype)
        model.tie_weights()  # without initial weights transformers leaves that out too
    gc.collect()  # what tying has replaced refers to itself under zero.Init
    with torch.no_grad():
        for parameter in model.parameters():
            getattr(parameter, "ds_tensor", parameter).fill_(WEIGHT)
    return finished(model, request)


def finished(model: Any, request: dict[str, Any]) -> Any:
    """Checkpointing and adapters on a model that is built."""
    if request["checkpointing"]:
        enable = getattr(model, "activation_checkpointing_enable", None)  # its name since transformers 5
        (enable or model.gradient_checkpointing_enable)()
    if request.get("method", "full") == "lora":
        import peft

        targets = request["lora_targets"]
        settings = peft.LoraConfig(
            r=request["lora_rank"],
            target_modules="all-linear" if "all-linear" in targets else targets,
            lora_dropout=0.0,
            task_type="CAUSAL_LM",
        )
        model = peft.get_peft_model(model, settings)
    return model.train()


def known(described: dict[str, Any]) -> Any:
    """The config object of a config.json; its class's module is loaded before zero.Init changes torch's factories."""
    from transformers import AutoConfig, AutoModelForCausalLM

    ids = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    facts = {key: value for key, value in described.items() if key != "model_type"}
    hf_config = AutoConfig.for_model(described["model_type"], **{**ids, **facts})
    hf_config.use_cache = False
    AutoModelForCausalLM._model_mapping[type(hf_config)]
    return hf_config


def unfilled() -> Any:
    """transformers' switch that leaves weights as they are made; it has moved between releases."""
    try:
        from transformers.initialization import no_init_weights
    except ImportError:
        from transformers.modeling_utils import no_init_weights
    return no_init_weights()


def batch(request: dict[str, Any], device: str, samples: int) -> Any:
    """Token ids, shape (samples, tokens)."""
    import torch

    return torch.zeros(samples, request["seq_len"], dtype=torch.long, device=device)


def stage(request: dict[str, Any]) -> int:
    """ZeRO stage of a request."""
    return int(request["config"].get("zero_optimization", {}).get("stage", 0))


def join_world(backend: str) -> None:
    """The environment of a world of one rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    if backend == "gloo":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"


def check(requests: list[dict[str, Any]]) -> dict[str, Any]:
    """Whether the first CUDA call succeeds; where it does not, everything before it, for every request.

    Returns:
        `versions`; `first_call`: what that call says, None where it succeeds; `built`: sizes of each model and batch,
        or an error, in the order of the requests, and nothing where the cases can be run instead.
    """
    from gpu_memory_card import Card

    try:
        Card().open()
        return {"versions": versions(), "first_call": None, "built": []}
    except Exception as error:
        first_call = told(error)
    join_world("gloo")
    import deepspeed

    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    return {"versions": versions(), "first_call": first_call, "built": [_buildable(request) for request in requests]}


def _buildable(request: dict[str, Any]) -> dict[str, Any]:
    """Sizes of a request's model and batch, with no memory behind them; a request that cannot be built says why."""
    import torch
    from deepspeed.runtime.config import DeepSpeedConfig
    from transformers import AutoModelForCausalLM

    try:
        DeepSpeedConfig(request["config"])
        hf_config = known(request["model"])
        implementation = ATTENTION[request["attention"]]
        usable = "sdpa" if implementation.startswith("flash") else implementation  # the package may be missing
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(hf_config, attn_implementation=usable)
            model = finished(model, request)
        sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
        return {
            "parameters": sum(size for size, _ in sizes),
            "trained": sum(size for size, wanted in sizes if wanted),
            "batch": list(batch(request, "meta", request["config"]["train_micro_batch_size_per_gpu"]).shape),
        }
    except Exception as error:  # a case that cannot be built is a row
        return {"error": told(error)}


def versions() -> dict[str, str | None]:
    """Of the packages that matter; None for one that is not installed."""
    return {name: _version(name) for name in PACKAGES}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def told(error: BaseException) -> dict[str, str]:
    """An error in its own words, and the line of the traceback that matters."""
    traceback.print_exception(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    site = f"{last.filename.rpartition('site-packages/')[2].rpartition('benchmarks/')[2]}:{last.lineno}"
    return {"type": type(error).__name__, "message": str(error).strip() or "(no message)", "site": site}


if __name__ == "__main__":
    main()
