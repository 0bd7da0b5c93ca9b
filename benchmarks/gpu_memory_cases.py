"""The cases in which a real GPU and the simulation are compared: each a request as `dsgen.engine.simulate` takes it."""

from __future__ import annotations

from typing import Any

import attrs

import dsgen
from dsgen.families.hf_config import to_hf_config

__all__ = ["CASES", "Case", "case_of", "cases"]

ANY_GPU = "generic-80g"  # a job needs one; the model's facts do not depend on it
LEARNING_RATE = 1e-5
LOSS_SCALE = 128.0  # fixed: a dynamic one begins so high that the first steps are skipped and no states are made
WHOLE = 3  # the stage that cuts the weights too
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


@attrs.frozen
class Case:
    """One comparison.

    Attributes:
        name: What differs, in words; it is its key in the records.
        request: As in `dsgen.engine.simulate`, without the GPU's memory, which is that of the card at hand.
    """

    name: str
    request: dict[str, Any]


def cases() -> tuple[Case, ...]:
    """Every case, the small ones first: what fails early says most."""
    return tuple(case_of(**each) for each in CASES)


def case_of(
    model: str,
    stage: int,
    precision: str = "bf16",
    seq_len: int = 1024,
    micro_batch: int = 1,
    accumulation: int = 1,
    offload: str = "",
    checkpointing: bool = False,
    attention: str = "sdpa",
    method: str = "full",
    evaluation: int | None = None,
    checkpoint: bool = False,
) -> Case:
    """One case.

    Args:
        model: A built-in profile.
        stage: Of ZeRO.
        precision: bf16, fp16 or fp32.
        seq_len: Tokens a sequence.
        micro_batch: Sequences a micro-batch.
        accumulation: Micro-batches a step.
        offload: What is on the CPU: nothing, "optimizer", "param" or "optimizer+param".
        checkpointing: Hugging Face's.
        attention: sdpa, eager or flash.
        method: full, lora or qlora.
        evaluation: Sequences that are evaluated at a time after every step; None: none are.
        checkpoint: Behind the steps a checkpoint is saved, and another engine goes on from it.
    """
    zero: dict[str, Any] = {"stage": stage}
    for part in filter(None, offload.split("+")):
        zero[f"offload_{part}"] = {"device": "cpu", "pin_memory": True}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": LEARNING_RATE}},
        "zero_optimization": zero,
    }
    if precision != "fp32":
        config[precision] = {"enabled": True, **({"loss_scale": LOSS_SCALE} if precision == "fp16" else {})}
    request: dict[str, Any] = {
        "config": config,
        "model": _hf_config(model),
        "world_size": 1,
        "gpus_per_node": 1,
        "seq_len": seq_len,
        "steps": 2,
        "dtype": DTYPES[precision],
        "attention": attention,
        "checkpointing": checkpointing,
    }
    if method != "full":
        request["method"] = method
    if evaluation is not None:
        request["evaluation"] = evaluation
    if checkpoint:
        request["checkpoint"] = True
        if stage == WHOLE and method == "full":
            zero["stage3_gather_16bit_weights_on_model_save"] = True
    words = [model, f"zero-{stage}", precision, f"{seq_len} tokens", f"micro-batch {micro_batch}"]
    words += [f"accumulation {accumulation}"] if accumulation > 1 else []
    words += [f"{offload} on the CPU"] if offload else []
    words += ["checkpointing"] if checkpointing else []
    words += [attention] if attention != "sdpa" else []
    words += [method] if method != "full" else []
    words += [f"{evaluation} evaluated at a time"] if evaluation is not None else []
    words += ["saved and resumed"] if checkpoint else []
    return Case(", ".join(words), request)


def _hf_config(model: str) -> dict[str, Any]:
    """The config.json of a profile's model."""
    facts = dsgen.job(dsgen.profile(ANY_GPU) | dsgen.profile(model)).model
    return dict(to_hf_config(attrs.asdict(facts)))


CASES: tuple[dict[str, Any], ...] = (
    {"model": "opt-125m", "stage": 0, "precision": "fp32", "seq_len": 512},
    {"model": "opt-125m", "stage": 0, "seq_len": 512, "micro_batch": 16},
    {"model": "opt-125m", "stage": 1, "precision": "fp16", "micro_batch": 8},
    {"model": "opt-125m", "stage": 2, "seq_len": 2048, "micro_batch": 4},
    {"model": "opt-125m", "stage": 3, "seq_len": 2048, "micro_batch": 4},
    {"model": "opt-125m", "stage": 2, "seq_len": 2048, "micro_batch": 2, "attention": "eager"},
    {"model": "gpt2", "stage": 0, "precision": "fp16", "micro_batch": 8},
    {"model": "gpt2", "stage": 1, "micro_batch": 16, "attention": "eager"},
    {"model": "gpt2", "stage": 2, "precision": "fp32", "micro_batch": 4},
    {"model": "gpt2", "stage": 3, "micro_batch": 4, "accumulation": 2},
    {"model": "smollm2-135m", "stage": 0, "seq_len": 16384, "checkpointing": True, "attention": "flash"},
    {"model": "smollm2-135m", "stage": 2, "seq_len": 32768, "checkpointing": True},
    {"model": "qwen2.5-0.5b", "stage": 0},
    {"model": "qwen2.5-0.5b", "stage": 1, "seq_len": 2048, "accumulation": 2},
    {"model": "qwen2.5-0.5b", "stage": 2, "seq_len": 4096, "checkpointing": True},
    {"model": "qwen2.5-0.5b", "stage": 3, "seq_len": 16384, "checkpointing": True},
    {"model": "qwen2.5-0.5b", "stage": 2, "offload": "optimizer"},
    {"model": "qwen2.5-0.5b", "stage": 3, "offload": "optimizer+param"},
    {"model": "llama-3.2-1b", "stage": 0, "seq_len": 512},
    {"model": "llama-3.2-1b", "stage": 1, "seq_len": 2048},
    {"model": "llama-3.2-1b", "stage": 2, "seq_len": 2048},
    {"model": "llama-3.2-1b", "stage": 3, "seq_len": 2048},
    {"model": "llama-3.2-1b", "stage": 1, "precision": "fp32"},
    {"model": "llama-3.2-1b", "stage": 2, "precision": "fp16", "seq_len": 2048},
    {"model": "llama-3.2-1b", "stage": 2, "seq_len": 2048, "micro_batch": 8, "checkpointing": True},
    {"model": "llama-3.2-1b", "stage": 2, "micro_batch": 2, "accumulation": 2},
    {"model": "llama-3.2-1b", "stage": 2, "attention": "eager"},
    {"model": "llama-3.2-1b", "stage": 2, "seq_len": 4096, "attention": "flash"},
    {"model": "llama-3.2-1b", "stage": 3, "seq_len": 8192, "checkpointing": True},
    {"model": "llama-3.2-1b", "stage": 2, "seq_len": 2048, "offload": "optimizer"},
    {"model": "llama-3.2-1b", "stage": 3, "seq_len": 2048, "offload": "optimizer+param"},
    {"model": "llama-3.2-1b", "stage": 2, "seq_len": 512, "micro_batch": 16, "method": "lora"},
    {"model": "qwen2.5-1.5b", "stage": 2, "seq_len": 2048, "checkpointing": True},
    {"model": "qwen2.5-1.5b", "stage": 3, "seq_len": 4096, "checkpointing": True, "attention": "flash"},
    {"model": "llama-3.2-3b", "stage": 2, "checkpointing": True},
    {"model": "llama-3.2-3b", "stage": 3, "checkpointing": True},
    {"model": "llama-3.2-3b", "stage": 2, "seq_len": 2048, "checkpointing": True, "offload": "optimizer"},
    {"model": "llama-3.2-3b", "stage": 3, "seq_len": 4096, "checkpointing": True, "offload": "optimizer+param"},
    {"model": "llama-3.1-8b", "stage": 0, "seq_len": 2048, "checkpointing": True, "method": "lora"},
    {"model": "llama-3.1-8b", "stage": 2, "seq_len": 1024, "method": "lora"},
    {"model": "llama-3.1-8b", "stage": 3, "seq_len": 4096, "checkpointing": True, "method": "lora"},
    {"model": "llama-3.1-8b", "stage": 3, "seq_len": 2048, "checkpointing": True, "offload": "param", "method": "lora"},
    {"model": "opt-125m", "stage": 2, "seq_len": 2048, "evaluation": 8},
    {"model": "qwen2.5-0.5b", "stage": 3, "seq_len": 2048, "evaluation": 8},
    {"model": "llama-3.2-1b", "stage": 2, "seq_len": 2048, "checkpointing": True, "evaluation": 8},
    {"model": "llama-3.1-8b", "stage": 3, "checkpointing": True, "method": "lora", "evaluation": 8},
    {"model": "qwen2.5-0.5b", "stage": 2, "seq_len": 512, "checkpoint": True},
    {"model": "llama-3.2-1b", "stage": 3, "seq_len": 512, "checkpoint": True},
    {"model": "llama-3.2-1b", "stage": 3, "seq_len": 512, "offload": "optimizer+param", "checkpoint": True},
    {"model": "llama-3.1-8b", "stage": 3, "checkpointing": True, "method": "lora", "checkpoint": True},
    # More than 80 GB hold: the row says so, on both sides.
    {"model": "llama-3.1-8b", "stage": 2, "checkpointing": True},
)
