"""From a published record with its remarks to what dsgen's comparison reads of it: figures, and words of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["CAVEATS", "transcribed"]

Record = Mapping[str, Any]

# The words that the records have -> ours; one that is not here is no longer the file that this was written for.
_PRECISIONS = {
    "amp_bf16": "bf16",
    "bf16": "bf16",
    "bf16 (early)": "bf16",
    "bf16 (fp32 master)": "bf16",
    "bf16 (fp32 params sharded, bf16 compute, fp32 reduce)": "bf16",
    "bf16 + BF16_Optimizer (fp32 gradient accumulation, own ZeRO-1; +4 B/param unsharded)": "bf16",
    "bf16 + fp32 grad accumulation": "bf16",
    "bf16 (pure: params and states bf16)": "pure bf16",
    "bf16 params (LoRA adapters fp32: autocast_adapter_dtype)": "pure bf16",
    "bf16-true": "pure bf16",
    "fp16": "fp16",
    "fp16 (fp16 grad accumulation)": "fp16",
    "fp16 AMP": "fp16 autocast",
    "fp32": "fp32",
    **dict.fromkeys(("FP8", "FP8-CS", "FP8-CS (FP8-MX)", "MXFP8", "amp_fp8", "fp8 hybrid"), "fp8"),
    **dict.fromkeys(("float8 tensorwise", "float8 rowwise", "float8 linear + fp8 all-gather, bf16 else"), "fp8"),
    "NVFP4": "fp4",
    **dict.fromkeys(("fp16?", "fp16/bf16", "fp32 (examples) / bf16?")),
}
_OPTIMIZERS = {
    "Adam": "Adam",
    **dict.fromkeys(("FusedAdam", "FusedAdam (apex)"), "Adam"),
    **dict.fromkeys(("AdamW", "AdamW (CPUAdam)", "AdamW (bf16 params)", "AdamW cpu", "AdamW fused"), "AdamW"),
    **dict.fromkeys(("decoupled_adamw", "torch.optim.AdamW"), "AdamW"),
    "Muon (2D hidden weights) + Adam rest": "Muon",
    "AdamW, optimizer_in_bwd": "AdamW inside backward",
    "AdamW8bit, optimizer_in_bwd": "8-bit AdamW inside backward",
    "PagedAdamW8bit, optimizer_in_bwd": "8-bit AdamW inside backward",
    **dict.fromkeys(("adamw_bnb_8bit", "paged_adamw_8bit"), "8-bit AdamW"),
    "DeepSpeedCPUAdam": "CPU Adam",
    "distributed Adam": "distributed Adam",
    **dict.fromkeys(("HybridAdam", "HybridAdam/FusedAdam"), "hybrid Adam"),
    "unknown (differs from the 4090 row)": None,
}
_OFFLOADS = {
    "none": "none",
    "optimizer cpu": "optimizer",
    "optimizer+param cpu": "optimizer and parameters",
    **dict.fromkeys(("param cpu", "params cpu"), "optimizer and parameters"),  # FSDP's CPUOffload takes all along
    "params+grads+optimizer cpu (fsdp_cpu_offload, fused AdamW)": "whole states of FSDP",
    "optimizer cpu (hybrid, precision-aware)": "a part of the optimizer",
    "activation checkpoints to cpu": "checkpoints",
    **dict.fromkeys(("cpu", "ZeRO-Infinity (optimizer+param nvme/cpu)")),
}
# The recipe of DeepSpeed's Azure blog is that of its smallest model; the others may offload.
_DEFAULT_RECIPE, _SIZE_OF_RECIPE = "none (recipe default; larger sizes may use cpu)", "GPT 175B"
_QUANTIZATIONS = {
    **dict.fromkeys(("gptq-int4", "int4 (gptq)"), "gptq-int4"),
    "int8 (gptq)": "gptq-int8",
    **dict.fromkeys(("bnb.nf4", "nf4", "int4 (bnb)", "bnb nf4 (bf16 storage)"), "nf4"),
    "bnb.nf4-dq": "nf4 twice",
}
_ATTENTIONS = {
    False: "eager",
    True: "flash",
    **dict.fromkeys(("SDPA", "SDPA (default)"), "sdpa"),
    **dict.fromkeys(("FA2", "FA3", "FA2/SDPA", "TE", "TE/cuDNN", "xformers memory_efficient_attention"), "flash"),
    "xformers blocksparse": "sparse",
}
_CARDS = {
    **dict.fromkeys(("A100-80GB?", "A800/H800-80GB", "V100 (16 or 32GB not stated)", "unknown (8 GPUs, slow)")),
    "unknown >=24GB": None,
}
_TARGETS = {
    "all-linear": ("all-linear",),
    "c_attn,c_proj,w1,w2": ("all-linear",),
    **dict.fromkeys(("c_attn", "DEFAULT (c_attn for qwen, q,k,v for mistral)"), ("q", "k", "v")),
    "DEFAULT": None,
    **dict.fromkeys(("q,v", "q,v (peft default)"), ("q", "v")),
    **dict.fromkeys(("q,v,output_proj,mlp", "q,v,output,mlp"), ("q", "v", "o", "mlp")),
    "all layers incl. output": ("all-linear", "output"),
}
_PARTS = {"query": "q", "key": "k", "value": "v", "q_proj": "q", "k_proj": "k", "v_proj": "v"}
_EVERY_PART = {"query", "key", "value", "projection", "mlp"}

_GUESSED = ("maybe", "may enable", "unknown")  # beside a word about checkpointing
_ANOTHER_STAGE = "ZeRO stage 2"  # zero_stage tells that one GPU has nothing to share
_TARGET_LENGTH = r"input \d+ tokens, output (\d+) tokens"
# A caveat of ours -> what the assumptions of a record say then. "source/target length 128": the most that a sentence of
# WMT may have, padded to the longest of its batch (transformers issue 8771).
CAVEATS = {
    "undescribed": (
        "baseline configuration not described",
        "not in excerpt",
        "batch size/sequence in the thread not in",
    ),
    "shorter": (
        *("real sequences are short", "short sequences", "unpacked", "mean sample length unknown", "padded to the"),
        "source/target length",
    ),
    "gathered to save": ("includes full state dict saving",),
}
_HOST = "host memory"  # a caveat that stands in the notes
_PURE_SYSTEM = "other"
_SYSTEMS = {"single-gpu/other": _PURE_SYSTEM}


def transcribed(record: Record) -> dict[str, Any]:
    """What the comparison reads of one record; what is not stated is left out.

    Raises:
        KeyError: A word that has none of ours.
    """
    model, hardware = record["model"], record["hardware"]
    facts = {name: model.get(name) for name in _FACTS}
    return {
        "id": record["id"],
        "source": record["source"],
        "grade": record["quality"],
        "system": _system(record),
        "model": _stated({**facts, "target_len": _target_length(record)}),
        "hardware": _stated({"gpu": _CARDS.get(hardware["gpu"], hardware["gpu"]), **_counts(hardware)}),
        "config": _stated(_config(record)),
        "measured": _stated({name: record["measured"].get(old) for name, old in _MEASURED.items()}),
        **_stated({"caveats": _caveats(record)}),
    }


_FACTS = ("name", "params", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "seq_len", "tied")
_MEASURED = {"fits": "fits", "peak_gib": "peak_gpu_mem_gib", "peak_gb": "peak_gpu_mem_gb"}
_DEGREES = ("tp", "pp", "cp", "sp")


def _stated(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value is not None}


def _counts(hardware: Mapping[str, Any]) -> dict[str, Any]:
    return {"gpus": hardware["gpus"], "nodes": hardware["nodes"]}


def _system(record: Record) -> str:
    family = "deepspeed" if "deepspeed" in record["framework"] else record["framework_family"]
    return _SYSTEMS.get(family, family)


def _config(record: Record) -> dict[str, Any]:
    config = record["config"]
    quantization = config.get("quantization")
    return {
        "zero_stage": 2 if _says(record, _ANOTHER_STAGE) else config.get("zero_stage"),
        "zero_stage_equiv": config.get("zero_stage_equiv"),
        "offload": _offload(record),
        "micro_batch": config.get("micro_batch"),
        "grad_accum": config.get("grad_accum"),
        "checkpointing": _checkpointing(record),
        "precision": _precision(record),
        "optimizer": _OPTIMIZERS[config["optimizer"]],
        "attention": None if config.get("flash_attn") is None else _ATTENTIONS[config["flash_attn"]],
        "quantization": quantization and _QUANTIZATIONS[quantization],
        "lora": _adapters(config["lora"]),
        "chunked_loss": bool(config.get("liger_kernel")) or "chunked" in str(config.get("loss")) or None,
        "compile": config.get("compile") not in (None, False, "eager") or None,
        "activation_offload": config.get("activation_offload"),
        "device_map": config.get("parallel") == "device_map" or None,
        "ddp": record["framework"] == "pytorch ddp" or None,
        **{name: config.get(name) if (config.get(name) or 1) > 1 else None for name in _DEGREES},
    }


def _says(record: Record, *words: str) -> bool:
    return any(word in text for word in words for text in record["assumptions"])


def _offload(record: Record) -> str | None:
    said = record["config"]["offload"]
    if said == _DEFAULT_RECIPE:
        return "none" if record["model"]["name"] == _SIZE_OF_RECIPE else None
    return _OFFLOADS[said]


def _checkpointing(record: Record) -> bool | None:
    """Whether every block is recomputed; None where that is not stated, or only a part of it is."""
    said = str(record["config"].get("activation_checkpointing"))
    about = [said, *(text for text in record["assumptions"] if "checkpointing" in text)]
    if any(word in text for word in _GUESSED for text in about):
        return None
    return True if said.startswith("full") else False if said.startswith("none") else None


def _precision(record: Record) -> str | None:
    precision, framework = record["config"]["precision"], record["framework"]
    notes = record["notes"]
    if framework.startswith("pytorch DDP") or "baseline vanilla HF (AMP fp16)" in notes or "Not runnable" in notes:
        return "fp16 autocast"
    ours = "fp8" if record["config"].get("float8") else _PRECISIONS[precision]
    alone = record["framework_family"] == "single-gpu/other"  # no engine that would keep an fp32 copy
    return "pure bf16" if alone and precision == "bf16" else ours


def _adapters(lora: Any) -> dict[str, Any] | None:
    if not lora:
        return None
    method = lora.get("method", "lora")
    return _stated(
        {
            "r": lora.get("r"),
            "targets": _targets(lora.get("targets")),
            "train_embeddings": lora.get("train_embeddings") is True or None,
            "other": method if method != "lora" else "dora" if lora.get("dora") else None,
        }
    )


def _targets(said: str | list[str] | None) -> tuple[str, ...] | None:
    if said is None or isinstance(said, str):
        return None if said is None else _TARGETS[said]
    if set(said) >= _EVERY_PART:
        return ("all-linear", "lm_head") if "head" in said else ("all-linear",)
    return tuple(_PARTS.get(part, part) for part in said)


def _target_length(record: Record) -> int | None:
    found = (re.search(_TARGET_LENGTH, text) for text in record["assumptions"])
    return next((int(match[1]) for match in found if match), None)


def _caveats(record: Record) -> list[str] | None:
    found = [caveat for caveat, words in CAVEATS.items() if _says(record, *words)]
    return found + [_HOST] * ("host OOM" in record["notes"]) or None
