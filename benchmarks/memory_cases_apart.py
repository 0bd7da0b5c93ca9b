"""Scenarios of what the usual ones leave out: a dropout, the head's adapters, 16-bit master weights, further types."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
from memory_cases import Case, drawn, models, of_type  # benchmarks/memory_cases.py, beside this script
from memory_types import RUNS, TYPES, Run
from memory_types_encoders import ENCODER_ADAPTERS, ENCODER_RUNS, ENCODERS, TARGET_RUNS
from memory_types_mixtures import MIXTURES, MORE_RUNS

from dsgen.families import family_of
from dsgen.families.parameters import fused_targets, parameters

__all__ = ["dropping", "heads", "narrow", "of_encoders", "of_mixtures", "of_types", "with_embeddings"]

DROPPING_SEED, DROPPING_ROUNDS = 5050, 3  # rounds of each architecture; the last without checkpointing
DROPPING_DEPTH = 6  # blocks: of Gemma 3's the sixth is the first that looks at everything
HEAD_SEED, HEAD_DEPTH = 6060, 4  # of the scenarios with an adapter of the output head
EMBEDDINGS_SEED, EMBEDDINGS_ROUNDS, EMBEDDINGS_DEPTH = 7411, 4, 5  # rounds of each architecture
NARROW_SEED, NARROW_DEPTH = 1616, 4  # blocks
DROPOUT = 0.05  # of the adapters, as most public recipes have it


def dropping() -> Iterator[Case]:
    """Adapters that drop elements of their input: over every architecture, on attention alone where there are experts.

    peft refuses a dropout for adapters of experts.
    """
    seen = set()
    for name, model in models():
        if model.architecture in seen:
            continue
        seen.add(model.architecture)
        for number in range(DROPPING_ROUNDS):
            draw = random.Random(f"{DROPPING_SEED} {name} {number}")
            case = drawn(
                f"{name} d{number + 1}", name, min(model.layers, DROPPING_DEPTH), draw, model, ("lora", "qlora")
            )
            options = {**case.options, "lora_dropout": DROPOUT}
            options["checkpointing"] &= number < DROPPING_ROUNDS - 1  # else little of what is dropped is at the peak
            if fused_targets(model):
                options["lora_targets"] = ["q_b_proj" if model.q_lora_rank else "q_proj", "o_proj"]
            yield attrs.evolve(case, options=options)


def heads() -> Iterator[Case]:
    """Adapters of the output head, alone and beside attention's, over every architecture whose head is its own."""
    seen = set()
    for name, model in models():
        if model.architecture in seen or model.tied_embeddings:
            continue
        seen.add(model.architecture)
        head = next(item.name for item in parameters(model) if item.kind == "head").split(".")[-2]
        matrix = next(item.name for item in parameters(model) if item.matrix and item.layer).split(".")[-2]
        for number, targets in enumerate(([head], [matrix, head], [matrix, head])):
            draw = random.Random(f"{HEAD_SEED} {name} {number}")
            case = drawn(f"{name} h{number + 1}", name, min(model.layers, HEAD_DEPTH), draw, model, ("lora", "qlora"))
            yield attrs.evolve(case, options={**case.options, "lora_targets": targets})


def narrow() -> Iterator[Case]:
    """Master weights and their gradients in 16 bits, with the optimizer's states or, on the CPU, without: every model.

    DeepSpeed has them in ZeRO alone, and those of fp16 on the CPU alone.
    """
    for name, model in models():
        draw = random.Random(f"{NARROW_SEED} {name}")
        depth = min(model.layers, NARROW_DEPTH)
        case = drawn(f"{name} n1", name, depth, draw, model, ("full",) * 3 + ("lora", "qlora"))
        zero = {**case.config["zero_optimization"]}
        zero["stage"] = zero["stage"] or draw.choice((1, 2))
        offloads = "offload_optimizer" in zero
        dtype = "fp16" if offloads and "fp16" in case.config else "bf16"
        section = {"enabled": True, f"{dtype}_master_weights_and_grads": True}
        if dtype == "bf16" and (not offloads or draw.random() < 0.5):
            section["bf16_optimizer_states"] = True
        rest = {key: value for key, value in case.config.items() if key not in ("bf16", "fp16")}
        yield attrs.evolve(case, config={**rest, "zero_optimization": zero, dtype: section})


def with_embeddings() -> Iterator[Case]:
    """Embedding and head trained beside adapters: over every architecture whose head is a matrix of its own.

    Where DeepSpeed stops at stage 3, which is with adapters in fp32 beside copies in 16 bits, parameters are offloaded.
    """
    seen = set()
    for name, model in models():
        if model.tied_embeddings or model.architecture in seen:
            continue
        seen.add(model.architecture)
        for number in range(EMBEDDINGS_ROUNDS):
            draw = random.Random(f"{EMBEDDINGS_SEED} {name} {number}")
            depth = min(model.layers, EMBEDDINGS_DEPTH)
            case = drawn(f"{name} e{number + 1}", name, depth, draw, model, ("lora", "lora", "qlora"))
            chunked = draw.random() < 0.2
            options = {**case.options, "lora_train_embeddings": True, "chunked_loss": chunked}
            zero = case.config["zero_optimization"]
            if zero["stage"] == 3 and options["method"] == "lora" and {"bf16", "fp16"} & {*case.config}:
                zero["offload_param"] = {"device": "cpu", "pin_memory": True}
            if fused_targets(model):
                options["lora_targets"] = ["q_b_proj" if model.q_lora_rank else "q_proj", "o_proj"]
            yield attrs.evolve(case, options=options)


def of_types() -> Iterator[Case]:
    """The same runs of every model type without a profile; DeepSpeed does not split all of them."""
    for name in TYPES:
        for number, (run, more) in enumerate(RUNS):
            facts = of_type(name)
            if "tensor_parallel" not in more or not (
                facts.experts or facts.kv_heads == 1 or family_of(facts).autotp.refused
            ):
                yield _run(f"{name} {number + 1}", name, run, more)


def of_encoders() -> Iterator[Case]:
    """Runs of every type with an encoder, of those that are counted by arithmetic."""
    for name in ENCODERS:
        for number, (fields, more) in enumerate(ENCODER_RUNS):
            yield _run(f"{name} {number + 1}", name, Run(*fields), more)
        for number, (fields, more, targets) in enumerate(ENCODER_ADAPTERS):
            case = _run(f"{name} a{number + 1}", name, Run(*fields), more)
            yield attrs.evolve(case, options={**case.options, "lora_targets": targets})
        for number, (fields, more) in enumerate(TARGET_RUNS):
            yield _run(f"{name} t{number + 1}", name, Run(*fields), more)


def of_mixtures() -> Iterator[Case]:
    """The same runs, and more, of every mixture of experts without a profile, without AutoTP.

    DeepSpeed 0.19.8 mostly stops with a tracing error where stage 3 has adapters on experts whose mixture is no leaf
    module: peft makes the modules that own those experts anew in every forward.
    """
    for name in MIXTURES:
        model = of_type(name)
        stops = bool(fused_targets(model)) and not family_of(model).leaf
        runs = [(run, more) for run, more in RUNS if "tensor_parallel" not in more]
        runs += [(Run(*fields), more) for fields, more in MORE_RUNS]
        for number, (run, more) in enumerate(runs):
            if not (stops and run.method != "full" and more["zero_optimization"]["stage"] == 3):
                yield _run(f"{name} {number + 1}", name, run, more)


def _run(name: str, model: str, run: Run, more: Mapping[str, Any]) -> Case:
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": run.micro_batch,
        "gradient_accumulation_steps": run.passes,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        **({} if run.precision == "fp32" else {run.precision: {"enabled": True}}),
        **more,
    }
    options = {
        "seq_len": run.seq_len,
        "attention": run.attention,
        "checkpointing": run.checkpointing,
        "method": run.method,
        "lora_rank": 16,
        "chunked_loss": run.chunked_loss,
        **({"target_len": run.target_len} if run.target_len else {}),
    }
    return Case(name=name, model=model, depth=None, gpus=run.gpus, config=config, options=options)
