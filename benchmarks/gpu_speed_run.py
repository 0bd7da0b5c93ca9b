"""Child process: times real steps of the real engine, or single kernels, on a GPU; or on a CPU, to try the harness.

stdin: `{"device": "cuda" or "cpu"}`, which asks for facts of the card, with `"request"` (as in dsgen.engine.simulate),
`"warmup"` and `"steps"`, or with `"kernels"` (as in gpu_speed_kernels) and `"seconds"`. stdout: one JSON object. What
the libraries print goes to stderr. An error is an answer too: out of memory says how far it came.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_memory_run import build, join_world, known, told, unfilled, versions  # benchmarks/, beside this script

__all__ = ["CpuCard", "main", "timed_kernel", "timed_steps"]

FOLDER = Path(__file__).resolve().parent
DEVIATION = 0.02  # of random weights, as transformers draws them
DRAWN = 2**20  # random numbers that are repeated to fill a weight: drawing billions takes minutes, and zeros run cooler
ROUNDS = 5  # of one kernel; the median counts
WARMUPS = 3  # calls of a kernel before the first round
MOST_CALLS = 10_000  # of a kernel in a round
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


class CpuCard:
    """What stands in for a card where there is none: it has no memory of its own to read."""

    device, backend = "cpu", "gloo"

    def open(self) -> dict[str, Any]:
        """Facts of the machine."""
        return {"name": "cpu", "driver": None, "cuda": None}

    def wait(self) -> None:
        """Nothing is launched ahead."""

    def begin(self) -> None:
        """No peak is kept."""

    def end(self) -> dict[str, Any]:
        """No peak is known."""
        return {}


def main() -> None:
    """Answer the question on stdin."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    asked = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if asked["device"] == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    json.dump(_answered(asked), answers)
    answers.flush()
    os._exit(0)  # tearing NCCL down can hang, and nothing is left to save


def _answered(asked: dict[str, Any]) -> dict[str, Any]:
    progress = {"phase": "the first CUDA call"}
    try:
        card = _card(asked["device"])
        # Nothing of this folder is imported any more, and a package of its kernels.py's name is another one.
        sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != FOLDER]
        facts = card.open()
        if "request" in asked:
            return {"card": facts, **timed_steps(asked["request"], card, asked["warmup"], asked["steps"], progress)}
        if "kernels" in asked:
            return {"card": facts, "kernels": [_tried(one, card, asked["seconds"]) for one in asked["kernels"]]}
        return {"card": {**facts, "cores": _cores(), "host": platform.processor() or platform.machine()},
                "versions": versions()}  # fmt: skip
    except BaseException as error:  # whatever ends the run is told, SystemExit of a library included
        return {"versions": versions(), "error": {**told(error), "phase": progress["phase"],
                                                  "out_of_memory": _is_out_of_memory(error)}}  # fmt: skip


def _card(device: str) -> Any:
    if device == "cpu":
        return CpuCard()
    from gpu_memory_card import Card

    return Card()


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_out_of_memory(error: BaseException) -> bool:
    return type(error).__name__ == "OutOfMemoryError" or "out of memory" in str(error).lower()


def timed_steps(
    request: dict[str, Any], card: Any, warmup: int, steps: int, progress: dict[str, str]
) -> dict[str, Any]:
    """Load, initialize, and train: the seconds of every optimizer step, all of its micro-batches, after the first few.

    Args:
        request: As in `dsgen.engine.simulate`; world_size is 1.
        card: A `gpu_memory_card.Card`, or what stands in for one.
        warmup: Steps that are not told: kernels are chosen, buffers made, and the first makes the optimizer's states.
        steps: Steps that are told.
        progress: Gets the phase that is running.

    Returns:
        `step_seconds` of each, `median_seconds`, `peak` (bytes allocated and reserved; empty on a CPU), `engine`
        (classes, threads), `loss` after the last step, and
        `skipped_steps`, which fp16 may have.

    Raises:
        Exception: What DeepSpeed, torch or transformers raise.
    """
    progress["phase"] = "import"
    import deepspeed
    import torch

    join_world(card.backend)
    deepspeed.init_distributed(dist_backend=card.backend, verbose=False)
    card.begin()
    progress["phase"] = "load"
    model = _model(request, card.device)
    progress["phase"] = "init"
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    engine, *_ = deepspeed.initialize(model=model, model_parameters=trained, config=request["config"])
    del trained
    batches = [_batch(request, card.device) for _ in range(engine.gradient_accumulation_steps())]
    spent = []
    for step in range(warmup + steps):
        card.wait()
        began = time.perf_counter()
        for tokens in batches:
            progress["phase"] = f"forward of step {step + 1}"
            loss = engine(input_ids=tokens, labels=tokens).loss
            progress["phase"] = f"backward of step {step + 1}"
            engine.backward(loss)
            progress["phase"] = f"step {step + 1}"
            engine.step()
        card.wait()
        spent.append(time.perf_counter() - began)
    peaks = card.end()
    told_peaks = {f"{kind}_bytes": peaks[f"peak_{kind}_bytes"] for kind in ("allocated", "reserved")} if peaks else {}
    return {
        "versions": versions(),
        "step_seconds": spent[warmup:],
        "median_seconds": statistics.median(spent[warmup:]),
        "peak": told_peaks,
        "engine": {
            "wrapper": type(engine.optimizer).__name__,
            "optimizer": type(engine.basic_optimizer).__name__,
            "threads": torch.get_num_threads(),
        },
        "loss": float(loss.detach()),
        "skipped_steps": int(getattr(engine, "skipped_steps", 0)),
    }


def _model(request: dict[str, Any], device: str) -> Any:
    """The model with random weights: values matter, because a GPU is faster on constant ones."""
    import torch

    if request.get("method") == "qlora":
        return _in_4_bits(request, device)
    model = build(request)
    with torch.no_grad():
        for parameter in model.parameters():
            _randomize(getattr(parameter, "ds_tensor", parameter))
    return model


def _in_4_bits(request: dict[str, Any], device: str) -> Any:
    """As `from_pretrained` with `load_in_4bit` and peft's guide make it: linear layers but the head in 4 bits.

    The rest of the model is on the host until it is whole, and one weight at a time goes to the GPU in 16 bits.
    """
    import bitsandbytes
    import peft
    import torch
    from transformers import AutoModelForCausalLM

    dtype = getattr(torch, request["dtype"])
    hf_config = known(request["model"])
    with unfilled():
        model = AutoModelForCausalLM.from_config(hf_config, attn_implementation=request["attention"], dtype=dtype)
        model.tie_weights()
    with torch.no_grad():
        for parameter in model.parameters():
            _randomize(parameter)
    head = model.get_output_embeddings()
    for name, module in list(model.named_modules()):
        if type(module) is not torch.nn.Linear or module is head:
            continue
        inputs, outputs = module.in_features, module.out_features
        layer = bitsandbytes.nn.Linear4bit(
            inputs, outputs, bias=module.bias is not None, compute_dtype=dtype, quant_type="nf4"
        )
        layer.weight = bitsandbytes.nn.Params4bit(module.weight.data, requires_grad=False, quant_type="nf4")
        if module.bias is not None:
            layer.bias = module.bias
        model.set_submodule(name, layer.to(device))  # it is quantized on its way
    model.to(device)
    model.is_loaded_in_4bit = True
    model = peft.prepare_model_for_kbit_training(
        model,
        use_gradient_checkpointing=bool(request["checkpointing"]),
        gradient_checkpointing_kwargs={"use_reentrant": False},
    )
    settings = peft.LoraConfig(r=request["lora_rank"], target_modules="all-linear", task_type="CAUSAL_LM")
    return peft.get_peft_model(model, settings).train()


def _randomize(tensor: Any) -> None:
    """Fill a weight with random numbers, a block of them repeated."""
    import torch

    flat = tensor.detach().reshape(-1) if tensor.is_contiguous() else None
    if flat is None or not tensor.is_floating_point():
        return
    drawn = torch.randn(min(DRAWN, flat.numel()), device=tensor.device).mul_(DEVIATION).to(tensor.dtype)
    for start in range(0, flat.numel(), max(1, drawn.numel())):
        flat[start : start + drawn.numel()] = drawn[: flat.numel() - start]


def _batch(request: dict[str, Any], device: str) -> Any:
    """Random token ids, shape (micro-batch, tokens)."""
    import torch

    samples = request["config"]["train_micro_batch_size_per_gpu"]
    return torch.randint(0, request["model"]["vocab_size"], (samples, request["seq_len"]), device=device)


def _tried(kernel: dict[str, Any], card: Any, seconds: float) -> dict[str, Any]:
    """The time of a kernel; one that fails says why."""
    try:
        return {"seconds": timed_kernel(kernel, card, seconds)}
    except Exception as error:  # a kernel that a card or a release has not is a row
        return {"error": {**told(error), "out_of_memory": _is_out_of_memory(error)}}


def timed_kernel(kernel: dict[str, Any], card: Any, seconds: float) -> float:
    """Seconds of one call: the median of some rounds of many calls, launched one behind the other.

    Args:
        kernel: As in `gpu_speed_kernels`.
        card: Whose device it runs on.
        seconds: What a round takes at least.
    """
    call = _call(kernel, card.device)
    for _ in range(WARMUPS):
        call()
    card.wait()
    began = time.perf_counter()
    call()
    card.wait()
    once = max(time.perf_counter() - began, 1e-7)
    calls = max(1, min(MOST_CALLS, int(seconds / once)))
    rounds = []
    for _ in range(ROUNDS):
        if kernel["kind"] != "host":
            rounds.append(_run(call, calls, card))
        else:  # what the host takes to launch, and not what it launches
            spent = 0.0
            for _ in range(calls):
                card.wait()
                began = time.perf_counter()
                call()
                spent += time.perf_counter() - began
            rounds.append(spent / calls)
    return statistics.median(rounds)


def _run(call: Callable[[], Any], calls: int, card: Any) -> float:
    card.wait()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    card.wait()
    return (time.perf_counter() - began) / calls


def _call(kernel: dict[str, Any], device: str) -> Callable[[], Any]:
    """What to call for one kernel."""
    made = {"product": _product, "attention": _attention, "memory": _memory, "host": _launches, "copy": _copy}
    return made[kernel["kind"]](kernel, device)


def _product(kernel: dict[str, Any], device: str) -> Callable[[], Any]:
    import torch

    dtype = getattr(torch, DTYPES[kernel["dtype"]])
    torch.backends.cuda.matmul.allow_tf32 = False
    left = torch.randn(kernel["m"], kernel["k"], device=device).to(dtype)
    weight = torch.randn(kernel["n"], kernel["k"], device=device).to(dtype)  # as a linear layer has it
    return lambda: torch.nn.functional.linear(left, weight)


def _attention(kernel: dict[str, Any], device: str) -> Callable[[], Any]:
    import torch

    dtype = torch.bfloat16
    batch, length, width = kernel["batch"], kernel["length"], kernel["head_size"]
    grouped = kernel["heads"] != kernel["kv_heads"]
    sides = (kernel["heads"], kernel["kv_heads"], kernel["kv_heads"])
    asks = kernel["phase"] == "backward"
    query, key, value = (
        torch.randn(batch, heads, length, width, device=device).to(dtype).requires_grad_(asks) for heads in sides
    )

    def forward() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=kernel["causal"], enable_gqa=grouped
        )

    if not asks:
        return forward
    out = forward()
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (query, key, value), gradient, retain_graph=True)


def _memory(kernel: dict[str, Any], device: str) -> Callable[[], Any]:
    import torch

    elements, sort = kernel["elements"], kernel["sort"]
    width = 4096
    if sort == "adam":
        weight = torch.randn(elements, device=device, requires_grad=True)
        weight.grad = torch.randn_like(weight)
        optimizer = torch.optim.AdamW([weight], lr=1e-5, fused=True)
        return optimizer.step
    data = torch.randn(elements // width, width, device=device).to(torch.bfloat16)
    if sort == "reduction":
        scale, shift = (torch.randn(width, device=device).to(torch.bfloat16) for _ in range(2))
        return lambda: torch.nn.functional.layer_norm(data, (width,), scale, shift)
    if sort == "gather":
        rows = torch.randint(0, elements // width, (elements // width,), device=device)
        return lambda: torch.nn.functional.embedding(rows, data)
    return lambda: data * 2


def _launches(kernel: dict[str, Any], device: str) -> Callable[[], Any]:
    import torch

    small = torch.randn(1, 8, device=device)

    def operators() -> None:
        for _ in range(kernel["operators"]):
            small.add_(1.0)

    def views() -> None:
        for _ in range(kernel["operators"]):
            small.view(8, 1)

    return views if kernel["phase"] == "views" else operators


def _copy(kernel: dict[str, Any], device: str) -> Callable[[], Any]:
    import torch

    host = torch.empty(kernel["bytes"], dtype=torch.uint8, pin_memory=device != "cpu")
    there = torch.empty(kernel["bytes"], dtype=torch.uint8, device=device)
    if kernel["direction"] == "to_host":
        return lambda: host.copy_(there, non_blocking=True)
    return lambda: there.copy_(host, non_blocking=True)


if __name__ == "__main__":
    main()
