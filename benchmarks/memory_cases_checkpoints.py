"""Scenarios that save behind the last step, as the Trainer does, and go on from it: one of every model."""

from __future__ import annotations

import random
from collections.abc import Iterator

import attrs
from memory_cases import Case, drawn, models  # benchmarks/memory_cases.py, beside this script

__all__ = ["CHECKPOINTS_DEPTH", "with_checkpoint"]

SEED, CHECKPOINTS_DEPTH = 1717, 3  # blocks
SEQ_LEN = 512  # a save does not hang on it
GATHERS = "stage3_gather_16bit_weights_on_model_save"


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
