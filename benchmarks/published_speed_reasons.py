"""Why the speed of a record is not compared, or only apart from the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from published_models import model_of, targets_of, type_of  # benchmarks/, beside this script
from published_questions import PROFILES
from published_reasons import KNOWN_OPTIMIZERS, stage_of
from published_sources import source_of

__all__ = ["APART", "CARDS", "REASONS", "offload_of", "sized", "tokens_of", "why_apart", "why_left_out"]

Record = Mapping[str, Any]

CARDS = {"V100": "V100-SXM-32GB", "A100": "A100-80GB"}  # whose memory alone is not stated
_OTHER_SYSTEMS = ("megatron", "nanotron", "colossalai")
_FOUR_BITS = ("gptq-int4", "nf4", "nf4 twice")
_OFFLOADS = ("none", "optimizer", "optimizer and parameters")
_WHOLE_STATES = "whole states of FSDP"
_SEVERAL_MODELS = "dschat"
# The recipe of DeepSpeed's Azure blog offloads only what does not fit, and the states of its larger models are 8 to
# 32 GB on each GPU.
_RECIPE_WITHOUT_OFFLOAD = "dsaz"
# Hugging Face's `train_samples_per_second` over runs of 50 and 200 steps (DeepSpeedExamples@45b4b71, autotuning/hf).
_WHOLE_RUNS = "dsat"
# Qwen's LoRA on two servers of two GPUs: 1.75 to 1.9 times as long at every length, so no network explains it.
_TWICE = "qwen"
# Its configs set `deterministic`, and its QLoRA keeps all but the 4-bit matrices in fp32: attention, head and adapters
# (ljm565/universal-llm-trainer@aefdc4a, utils/__init__.py, src/models/llama3.py). ML Engineering's benchmark.py sets it
# too (set_seed), by which torch fills every new tensor before it is written.
_DETERMINISTIC = ("ullmt", "mle")


def tokens_of(record: Record) -> int | None:
    """Tokens of a sequence as the speed counts them: the mean where lengths differ; None where it is not known."""
    model = record["model"]
    if "mean_tokens" in model:
        return round(model["mean_tokens"])
    shorter = bool(source_of(record).length) or bool({"shorter", "many lengths"} & set(record.get("caveats", ())))
    return None if shorter else model.get("seq_len")


def offload_of(record: Record) -> str | None:
    """What is in host memory, in the words of the records; None where that is not stated."""
    found: str | None = record["config"].get("offload")
    return "none" if found is None and source_of(record).prefix == _RECIPE_WITHOUT_OFFLOAD else found


def sized(record: Record) -> Record:
    """The record with the length that its speed counts, its card's memory, and words that its offload is like.

    All that the questions of memory need is in it; a record for which a reason holds has no such form.
    """
    offload, optimizer = offload_of(record), record["config"].get("optimizer", "AdamW")
    hardware = record["hardware"]
    return {
        **record,
        "model": {**record["model"], "seq_len": tokens_of(record)},
        "hardware": {**hardware, "gpu": hardware.get("gpu") or CARDS[hardware["card"]]},
        "config": {
            **record["config"],
            "offload": "optimizer and parameters" if offload == _WHOLE_STATES else offload,
            "optimizer": optimizer,
            "precision": record["config"]["precision"].removesuffix(" autocast"),
        },
    }


def _caveat(caveat: str) -> Callable[[Record], bool]:
    return lambda record: caveat in record.get("caveats", ())


def _lacks(name: str) -> Callable[[Record], bool]:
    return lambda record: name not in record["config"]


def _has(name: str) -> Callable[[Record], bool]:
    return lambda record: name in record["config"]


def _shape_missing(record: Record) -> bool:
    return any(name not in record["model"] for name in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab"))


def _card(record: Record) -> str | None:
    hardware = record["hardware"]
    found: str | None = hardware.get("gpu") or CARDS.get(hardware.get("card", ""))
    return found


def _shares_in_groups(record: Record) -> bool:
    """Optimizer states over fewer GPUs than there are replicas: hpZ and MiCS do so for weights alone, or for all."""
    config = record["config"]
    return "states_over" in config and config["states_over"] < record["hardware"]["gpus"] // config.get("tp", 1)


def _splits_sequences(record: Record) -> bool:
    """TorchTitan and Megatron split the sequence between two tensor-parallel products; AutoTP does not."""
    split = "sequence_parallel" in record["config"] or record["system"] == "fsdp"
    return "tp" in record["config"] and split


def _no_targets(record: Record) -> bool:
    if "lora" not in record["config"]:
        return False
    return "r" not in record["config"]["lora"] or targets_of(record, model_of(sized(record))) is None


# Why a record's speed is not compared -> whether it holds; the first that does is the reason.
REASONS: Mapping[str, Callable[[Record], bool]] = {
    "no speed was measured": lambda r: not {"tokens_per_second_per_gpu", "step_seconds"} & set(r["measured"]),
    "another training system (Megatron, nanotron, Colossal-AI)": lambda r: r["system"] in _OTHER_SYSTEMS,
    "pipeline parallelism": _has("pp"),
    "context or sequence parallelism": lambda r: _has("cp")(r) or _has("sp")(r),
    "expert parallelism": _has("ep"),
    "tensor parallelism with split sequences, Megatron's or TorchTitan's": _splits_sequences,
    "several models at once, or one without its head (RLHF, rewards)": lambda r: r["id"].startswith(_SEVERAL_MODELS),
    "the record itself doubts its figure": _caveat("implausible"),
    "the shape of the model is not stated": _shape_missing,
    "the length of its sequences, or their mean, is not stated": lambda r: tokens_of(r) is None,
    "the micro-batch is not stated": _lacks("micro_batch"),
    "the GPU is not stated": lambda r: _card(r) is None,
    "dsgen has no profile of its GPU": lambda r: _card(r) not in PROFILES,
    "the configuration is not described": _caveat("undescribed"),
    "the precision is not stated": _lacks("precision"),
    "fp8": lambda r: r["config"]["precision"] == "fp8",
    "checkpointing of a part of each block, or not stated": _lacks("checkpointing"),
    "optimizer states over some of the replicas alone": _shares_in_groups,
    "what is offloaded, and where to, is not stated": lambda r: offload_of(r) not in (*_OFFLOADS, _WHOLE_STATES),
    "activations offloaded to the CPU": _has("activation_offload"),
    "layers spread over GPUs (device_map)": _has("device_map"),
    "an optimizer that dsgen has no word for (inside backward, LoRA-FA)": (
        lambda r: r["config"].get("optimizer", "AdamW") not in KNOWN_OPTIMIZERS
    ),
    "adapters that are no plain LoRA": lambda r: "other" in r["config"].get("lora", ()),
    "a base in 8 bits (GPTQ)": lambda r: r["config"].get("quantization", "nf4") not in _FOUR_BITS,
    "sparse attention": lambda r: r["config"].get("attention") == "sparse",
    "dsgen has no such model type": lambda r: type_of(r) is None,
    "the ZeRO stage is not stated": lambda r: stage_of(r) is None,
    "the adapted matrices, or their rank, are not stated": _no_targets,
}

# What dsgen has no word for though it can say the rest -> whether it holds; such rows are predicted, and shown apart.
APART: Mapping[str, Callable[[Record], bool]] = {
    "torch.compile or DeepCompile": _has("compile"),
    "kernels of another project (norms, rotary embedding, adapters)": _has("fused_kernels"),
    "FSDP with its base in 4 bits, which ZeRO-3 keeps whole": (
        lambda r: bool(r["config"].get("zero_stage_equiv")) and "quantization" in r["config"]
    ),
    "FSDP's own offload, with torch's Adam on the CPU": lambda r: offload_of(r) == _WHOLE_STATES,
    "a base in GPTQ's 4 bits, with kernels of its own": lambda r: r["config"].get("quantization") == "gptq-int4",
    "torch's deterministic algorithms": lambda r: source_of(r).prefix in _DETERMINISTIC,
    "16-bit autocast over fp32 weights": lambda r: r["config"]["precision"].endswith("autocast"),
    "a sum of timings, without what lies between them": _caveat("sum of timings"),
    "a few steps, the first among them": lambda r: _caveat("few steps")(r) or source_of(r).prefix == _WHOLE_RUNS,
    "twice the time of the same job on one GPU, which its source leaves unexplained": (
        lambda r: source_of(r).prefix == _TWICE and "lora" in r["config"] and r["config"].get("zero_stage") == 2
    ),
    "one of many short runs, on which start-up weighs": _caveat("one-off"),
}


def why_left_out(record: Record) -> str | None:
    """Why a record is not compared; None where it is."""
    return next((text for text, holds in REASONS.items() if holds(record)), None)


def why_apart(record: Record) -> str | None:
    """What dsgen has no word for in a record that can be said; None where it has one for all."""
    return next((text for text, holds in APART.items() if holds(record)), None)
