"""Scenarios that save behind the last step, as the Trainer does, and go on from it: one of every model."""

from __future__ import annotations

import random
from collections.abc import Iterator

import attrs
from memory_cases import Case, drawn, models  # benchmarks/memory_cases.py, beside this script

__all__ = ["CHECKPOINTS_DEPTH", "with_checkpoint"]

SEED, CHECKPOINTS_DEPTH = 1717, 3  # blocks
SEQ_LEN = 512  # a save does not hang on it
BUFFER_ELEMENTS = 1_000_000_000  # more than any embedding has
GATHERS = "stage3_gather_16bit_weights_on_model_save"


# Model, GPUs, method and where parameters wait, at stage 3: one rank alone gathers nothing, what waits elsewhere comes
# back as a share first, and adapters of experts are modules of their own.
STAGE_3 = (
    ("llama-3.1-8b", 1, "full", "none"),
    ("llama-3-8b", 1, "lora", "cpu"),
    ("qwen2.5-7b", 1, "qlora", "none"),
    ("qwen3-8b", 1, "lora", "none"),
    ("mistral-7b", 1, "full", "nvme"),
    ("gemma-3-12b", 16, "full", "cpu"),
    ("qwen2.5-14b", 8, "lora", "cpu"),
    ("gemma-2-9b", 8, "full", "nvme"),
    ("mixtral-8x7b", 8, "lora", "none"),
    ("gpt-oss-120b", 8, "lora", "cpu"),
)


def with_checkpoint() -> Iterator[Case]:
    """Whole models and adapters at every stage; of AutoTP's ranks the simulation has no files but its own."""
    for name, model in models():
        draw = random.Random(f"{SEED} {name}")
        methods = ("full",) * 2 + ("lora", "qlora")
        case = drawn(f"{name} c1", name, min(model.layers, CHECKPOINTS_DEPTH), draw, model, methods)
        config = {key: value for key, value in case.config.items() if key != "tensor_parallel"}
        zero = {**config["zero_optimization"]}
        if zero["stage"] == 3:
            zero[GATHERS] = True
        options = {**case.options, "seq_len": min(SEQ_LEN, model.max_positions), "checkpoint": True}
        yield attrs.evolve(case, config={**config, "zero_optimization": zero}, options=options)
    known = dict(models())
    for name, gpus, method, place in STAGE_3:
        draw = random.Random(f"{SEED} {name} {method} {place}")
        case = drawn(f"{name} c3", name, CHECKPOINTS_DEPTH, draw, known[name], (method,))
        keys = {"stage": 3, GATHERS: True}
        if place != "none":
            there = {"device": place, **({"nvme_path": "/nvme"} if place == "nvme" else {})}
            keys |= {"offload_param": there, "offload_optimizer": there}
        if place == "nvme":  # a buffer holds the largest tensor, and is given back when it was read
            keys |= {"offload_param": {**there, "buffer_size": BUFFER_ELEMENTS}, "stage3_max_reuse_distance": 0}
        config = {key: value for key, value in case.config.items() if key not in ("tensor_parallel", "fp16", "bf16")}
        config |= {"bf16": {"enabled": True}, "zero_optimization": keys}
        options = {**case.options, "seq_len": SEQ_LEN, "checkpoint": True}
        yield attrs.evolve(case, gpus=gpus, config=config, options=options)
