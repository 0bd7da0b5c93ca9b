"""Scenarios of AutoTP beside stage 3, which cuts among the replicas what AutoTP has split, and the rest among all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import attrs
from memory_cases import Case, cases, drawn, models, of_type  # benchmarks/memory_cases.py, beside this script
from memory_types import TYPES

from dsgen.families import family_of

__all__ = ["SPLIT_DEPTH", "SPLIT_ROUNDS", "split"]

SEED = 4711
SPLIT_DEPTH, SPLIT_ROUNDS = 4, 4
_DEGREES = (2, 4, 8)
_SMALL = 50_000_000  # elements of a sub-group: a step goes group by group
OTHERS = "llama-3-8b"
# Optimizer and keys of zero_optimization that the draw has not.
_ROWS: tuple[tuple[str, int, str, dict[str, Any]], ...] = (
    ("bf16", 2, "Adagrad", {}),
    ("fp32", 4, "Adagrad", {}),
    ("bf16", 2, "Muon", {"reduce_scatter": False}),
    ("bf16", 8, "Muon", {"reduce_scatter": False}),
    ("bf16", 2, "AdamW", {"contiguous_gradients": False}),
    ("fp16", 4, "AdamW", {"contiguous_gradients": False}),
)


def split() -> Iterator[Case]:
    """Of every architecture that AutoTP trains, with one replica of it and with several; and the rows above."""
    for name, model in _of_each_kind():
        for number in range(SPLIT_ROUNDS):
            draw = random.Random(f"{SEED} {name} {number}")
            tp = draw.choice([tp for tp in _DEGREES if not (model.attention_heads % tp or model.kv_heads % tp)])
            gpus = tp * draw.choice((1, 2, 4, 32))
            depth = min(model.layers, SPLIT_DEPTH)
            case = drawn(f"{name} s{number + 1}", name, depth, draw, model, ("full",))
            while case.config["zero_optimization"]["stage"] != 3 or case.options["chunked_loss"]:
                case = drawn(case.name, name, depth, draw, model, ("full",))
            zero: dict[str, Any] = {**case.config["zero_optimization"]}
            if draw.random() < 0.3:
                zero["sub_group_size"] = _SMALL
            config = {**case.config, "zero_optimization": zero, "tensor_parallel": {"autotp_size": tp}}
            yield attrs.evolve(case, gpus=gpus, config=config)
    like = next(iter(cases()))
    for number, (precision, tp, optimizer, more) in enumerate(_ROWS):
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1 + number % 2,
            "optimizer": {"type": optimizer, "params": {"lr": 1e-4}},
            **({} if precision == "fp32" else {precision: {"enabled": True}}),
            "zero_optimization": {"stage": 3, **more},
            "tensor_parallel": {"autotp_size": tp},
        }
        options = {**like.options, "seq_len": 1024, "attention": "flash", "method": "full", "chunked_loss": False}
        name = f"{OTHERS} s{number + 1}"
        yield attrs.evolve(like, name=name, model=OTHERS, depth=SPLIT_DEPTH, gpus=8, config=config, options=options)


def _of_each_kind() -> Iterator[tuple[str, Any]]:
    """One model of each architecture with a profile, tied and not, and each type without one."""
    seen = set()
    for name, model in (*models(), *((name, of_type(name)) for name in TYPES)):
        kind = model.architecture, model.tied_embeddings
        if kind in seen or model.experts or family_of(model).autotp.refused or model.kv_heads % min(_DEGREES):
            continue
        if model.attention_heads % min(_DEGREES):
            continue
        seen.add(kind)
        yield name, model
