"""Why a record is not compared: dsgen has no word for it, the source does not say it, or it is another system."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from published_models import model_of, targets_of, type_of  # benchmarks/, beside this script
from published_sources import measured_bytes, source_of

__all__ = ["REASONS", "checkpointing_of", "offload_of", "reason", "stage_of", "target_of"]

Record = Mapping[str, Any]

_OTHER_SYSTEMS = ("megatron", "nanotron", "colossalai")
_PLAIN_OPTIMIZERS = ("AdamW", "Adam", "FusedAdam", "decoupled_adamw", "torch.optim.AdamW", "Muon (2D hidden weights)")
_UNKNOWN_OPTIMIZERS = ("8bit", "optimizer_in_bwd", "unknown")
_GPTQ = ("gptq-int4", "int4 (gptq)")  # groups of 128 take 4.16 bits a weight, NF4 with double quantization 4.13
_NF4 = (*_GPTQ, "bnb.nf4", "bnb.nf4-dq", "nf4", "int4 (bnb)", "bnb nf4 (bf16 storage)")
_OFFLOADS = {
    "none": ("none", "none"),
    "optimizer cpu": ("cpu", "none"),
    "optimizer+param cpu": ("cpu", "cpu"),
    "param cpu": ("cpu", "cpu"),  # FSDP's CPUOffload keeps parameters, gradients and states in host memory
    "params cpu": ("cpu", "cpu"),
}
# The recipe of DeepSpeed's Azure blog is that of its smallest model; the others may offload.
_DEFAULT_RECIPE, _SIZE_OF_RECIPE = "none (recipe default; larger sizes may use cpu)", "GPT 175B"
# "source/target length 128": the most that a sentence of WMT may have, padded to the longest of its batch
# (--max_source_length and --sortish_sampler of transformers issue 8771).
_CAPPED = "source/target length"
_SHORTER = ("real sequences are short", "short sequences", "unpacked", "mean sample length unknown", "padded to the")
_NO_DETAIL = ("baseline configuration not described", "not in excerpt", "batch size/sequence in the thread not in")
_SAVING = "includes full state dict saving"
_SEVERAL_MODELS = "dschat"
# finetune/finetune_ds.sh passes ds_config_zero3.json at every commit since the first, and so says its README.
_QWEN = "qwen"
_TARGET = r"input \d+ tokens, output (\d+) tokens"
_GUESSED_CHECKPOINTING = ("maybe", "may enable", "unknown")


def stage_of(record: Record) -> int | None:
    """The ZeRO stage of a record, or the one that its FSDP strategy is like; None where neither is stated."""
    config = record["config"]
    if source_of(record).prefix == _QWEN and not config["lora"] and record["hardware"]["gpus"] > 1:
        return 3  # the record guesses another; its script for several GPUs never passed one
    if any("ZeRO stage 2" in text for text in record["assumptions"]):
        return 2  # its zero_stage tells that one GPU has nothing to share
    stage = config.get("zero_stage", config.get("zero_stage_equiv"))
    return None if stage is None else int(stage)


def offload_of(record: Record) -> tuple[str, str] | None:
    """Where optimizer and parameters are; None where that is not stated, or means none of dsgen's words."""
    said = record["config"]["offload"]
    if said == _DEFAULT_RECIPE:
        return ("none", "none") if record["model"]["name"] == _SIZE_OF_RECIPE else None
    return _OFFLOADS.get(said)


def target_of(record: Record) -> int | None:
    """Tokens of a target where they are not those of the input; None where that is not stated."""
    found = (re.search(_TARGET, text) for text in record["assumptions"])
    return next((int(match[1]) for match in found if match), None)


def checkpointing_of(record: Record) -> bool | None:
    """Whether every block is recomputed; None where that is not stated, or only a part of it is."""
    said = str(record["config"].get("activation_checkpointing"))
    told = (*record["assumptions"], said)
    if any(word in text for word in _GUESSED_CHECKPOINTING for text in told if "checkpointing" in text or text == said):
        return None
    return True if said.startswith("full") else False if said.startswith("none") else None


def _assumed(*words: str) -> Callable[[Record], bool]:
    return lambda record: any(word in text for word in words for text in record["assumptions"])


def _degree(*names: str) -> Callable[[Record], bool]:
    return lambda record: any((record["config"].get(name) or 1) > 1 for name in names)


def _whole_in_16_bit(record: Record) -> bool:
    """All weights and states in 16 bits, and no second copy of the weights: DeepSpeed's keys for it keep one."""
    config = record["config"]
    plain = not stage_of(record) or "zero_stage_equiv" in config
    pure = config["precision"].startswith(("bf16-true", "bf16 (pure", "bf16 params")) or (
        record["framework_family"] == "single-gpu/other" and config["precision"] == "bf16"
    )
    return not config["lora"] and plain and pure


def _autocast(record: Record) -> bool:
    vanilla = "baseline vanilla HF (AMP fp16)" in record["notes"] or "Not runnable" in record["notes"]
    return "AMP" in record["config"]["precision"] or vanilla or record["framework"].startswith("pytorch DDP")


def _other_adapters(record: Record) -> bool:
    lora = record["config"]["lora"] or {}
    return str(lora.get("method", "lora")) != "lora" or lora.get("dora") is True


def _no_targets(record: Record) -> bool:
    return bool(record["config"]["lora"]) and targets_of(record, model_of(record)) is None


def _optimizer(record: Record) -> bool:
    said = record["config"]["optimizer"]
    return any(word in said for word in _UNKNOWN_OPTIMIZERS) or not said.startswith(_PLAIN_OPTIMIZERS)


def _compiled(record: Record) -> bool:
    return record["config"].get("compile") not in (None, False, "eager")


def _copies_gradients(record: Record) -> bool:
    """DDP with every weight trained: its buckets are a second copy of the gradients."""
    config = record["config"]
    several = record["hardware"]["gpus"] > 1
    return record["framework"] == "pytorch ddp" and several and not config["lora"]


def _unlike_zero(record: Record) -> bool:
    """FSDP where stage 3 holds something else: fp32 weights twice, or a 4-bit base in whole."""
    config = record["config"]
    differs = config["precision"] == "fp32" or config.get("quantization") in _NF4
    return "zero_stage_equiv" in config and bool(stage_of(record)) and differs


def _shape_missing(record: Record) -> bool:
    model = record["model"]
    return any(model.get(name) is None for name in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq_len"))


def _unknown_card(record: Record) -> bool:
    unclear = ("unknown", "?", "not stated", "/")
    return any(word in record["hardware"]["gpu"] for word in unclear)


def _quantized_otherwise(record: Record) -> bool:
    said = record["config"].get("quantization")
    return said is not None and said not in _NF4


def _unknown_precision(record: Record) -> bool:
    said = record["config"]["precision"]
    return "?" in said or said == "fp16/bf16"


# Why a record is not compared -> whether it holds; the first that does is the reason.
REASONS: Mapping[str, Callable[[Record], bool]] = {
    "another training system (Megatron, nanotron, Colossal-AI)": lambda r: r["framework_family"] in _OTHER_SYSTEMS,
    "pipeline parallelism": _degree("pp"),
    "context or sequence parallelism": _degree("cp", "sp"),
    "tensor parallelism of another kind: Megatron's or TorchTitan's, with split sequences": _degree("tp"),
    "nothing about memory was measured": lambda r: measured_bytes(r) is None and r["measured"].get("fits") is None,
    "several models at once, or one without its head (RLHF, rewards)": lambda r: r["id"].startswith(_SEVERAL_MODELS),
    "the shape of the model or the length is not stated": _shape_missing,
    "the micro-batch is not stated": lambda r: not r["config"].get("micro_batch"),
    "the GPU or its memory is not stated": _unknown_card,
    "the configuration is not described": _assumed(*_NO_DETAIL),
    "the precision is not stated": _unknown_precision,
    "fp8": lambda r: bool(r["config"].get("float8")) or "fp8" in r["config"]["precision"],
    "torch.compile or DeepCompile changes what is alive": _compiled,
    "DDP keeps a second copy of every gradient in its buckets": _copies_gradients,
    "16-bit autocast over fp32 weights": _autocast,
    "all weights and states in 16 bits, without an fp32 copy": _whole_in_16_bit,
    "an optimizer that dsgen has no word for (8-bit, paged, inside backward)": _optimizer,
    "activations offloaded to the CPU": lambda r: bool(r["config"].get("activation_offload")),
    "what is offloaded, and where to, is not stated": lambda r: offload_of(r) is None,
    "layers spread over GPUs (device_map)": lambda r: r["config"].get("parallel") == "device_map",
    "adapters that are no plain LoRA": _other_adapters,
    "a base in 8 bits (GPTQ)": _quantized_otherwise,
    "FSDP with fp32 weights, which ZeRO has twice, or with a 4-bit base, which ZeRO-3 keeps gathered": _unlike_zero,
    "checkpointing of a part of each block, or not stated": lambda r: checkpointing_of(r) is None,
    "sparse attention": lambda r: "blocksparse" in str(r["config"].get("flash_attn")),
    "the real sequences were shorter, by how much is not stated": (
        lambda r: bool(source_of(r).length) or _assumed(*_SHORTER, _CAPPED)(r)
    ),
    "the peak includes gathering the whole model to save it": _assumed(_SAVING),
    "the host's memory ran out, whose size is not stated": lambda r: "host OOM" in r["notes"],
    "dsgen has no such model type": lambda r: type_of(r) is None,
    "the ZeRO stage is not stated": lambda r: stage_of(r) is None,
    "the adapted matrices are not stated": _no_targets,
}


def reason(record: Record) -> str | None:
    """Why a record is not compared; None where it is."""
    return next((text for text, holds in REASONS.items() if holds(record)), None)
