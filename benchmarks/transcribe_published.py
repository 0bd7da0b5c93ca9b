"""From a published record with its remarks to what dsgen's comparison reads of it: figures, and words of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from transcribe_words import (  # benchmarks/, beside this script
    ATTENTIONS,
    CARDS,
    EVERY_PART,
    FABRICS,
    LINKS,
    OFFLOADS,
    OPTIMIZERS,
    PARTS,
    PRECISIONS,
    QUANTIZATIONS,
    TARGETS,
    UNSIZED_CARDS,
    VARIANTS,
)

__all__ = ["CAVEATS", "transcribed"]

Record = Mapping[str, Any]

# The recipe of DeepSpeed's Azure blog is that of its smallest model; the others may offload.
_DEFAULT_RECIPE, _SIZE_OF_RECIPE = "none (recipe default; larger sizes may use cpu)", "GPT 175B"
_GUESSED = ("maybe", "may enable", "unknown")  # beside a word about checkpointing
_NO_FLAG = "read from the launch script"  # of checkpointing: none is given
_ANOTHER_STAGE = "ZeRO stage 2"  # zero_stage tells that one GPU has nothing to share
_TARGET_LENGTH = r"input \d+ tokens, output (\d+) tokens"
_MEAN_LENGTH = r"\(mean about (\d+)\)"
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
    "implausible": ("PHYSICALLY IMPLAUSIBLE", "affinity suspected broken"),
    "one-off": ("one of many one-off rows",),
    "maybe ZeRO-2": ("7B could be ZeRO-2",),
}
# A caveat of ours -> what the notes of a record say then.
_NOTED = {
    "host memory": ("host OOM",),
    "implausible": ("abnormally low", "use as a fits verdict only"),
    "few steps": ("throughput is rough",),
    "start-up": ("start-up weighs",),
    "sum of timings": ("autotuner metric",),
    "many lengths": ("short alpaca samples", "variable lengths"),
}
_PURE_SYSTEM = "other"
_SYSTEMS = {"single-gpu/other": _PURE_SYSTEM}
_INTERN = "InternEvo"  # of Megatron's family in the records: its tables share out states as ZeRO-1 does


def transcribed(record: Record) -> dict[str, Any]:
    """What the comparison reads of one record; what is not stated is left out.

    Raises:
        KeyError: A word that has none of ours.
    """
    model = record["model"]
    facts = {name: model.get(name) for name in _FACTS}
    lengths = {"mean_tokens": _mean_length(record), "target_len": _target_length(record)}
    return {
        "id": record["id"],
        "source": record["source"],
        "grade": record["quality"],
        "system": _system(record),
        **_stated({"transformers": _transformers(record["framework"])}),
        "model": _stated({**facts, **lengths}),
        "hardware": _stated(_hardware(record["hardware"])),
        "config": _stated(_config(record)),
        "measured": _stated({name: record["measured"].get(old) for name, old in _MEASURED.items()}),
        **_stated({"caveats": _caveats(record)}),
    }


_FACTS = (
    *("name", "params", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "seq_len", "tied"),
    *("experts", "experts_per_token"),
)
_MEASURED = {
    "fits": "fits",
    "failed": "failed",
    "peak_gib": "peak_gpu_mem_gib",
    "peak_gb": "peak_gpu_mem_gb",
    "nvidia_smi_gib": "nvidia_smi_mem_gib",
    "tokens_per_second_per_gpu": "tokens_per_s_per_gpu",
    "samples_per_second": "samples_per_s",
    "step_seconds": "step_time_s",
    "run_seconds": "run_time_s",
}
_DEGREES = ("tp", "pp", "cp", "sp", "ep")
_BUCKETS = {
    "reduce_bucket": "reduce_bucket_size",
    "allgather_bucket": "allgather_bucket_size",
    "prefetch_bucket": "stage3_prefetch_bucket_size",
    "max_live": "stage3_max_live_parameters",
}


def _transformers(framework: str) -> str | None:
    """The release of transformers that a run names."""
    found = re.search(r"transformers (\d+\.[\d.]*\d)", framework)
    return found[1] if found else None


def _stated(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value is not None}


def _hardware(hardware: Mapping[str, Any]) -> dict[str, Any]:
    said, gpu = hardware["interconnect"] or "", hardware["gpu"]
    fabric, speed = FABRICS.get(said, (None, None))
    several = (hardware["nodes"] or 1) > 1
    link = None if "assumed" in said else next((LINKS[word] for word in LINKS if said.startswith(word)), None)
    return {
        "gpu": CARDS.get(gpu, gpu),
        "card": UNSIZED_CARDS.get(gpu),
        "gpus": hardware["gpus"],
        "nodes": hardware["nodes"],
        "link": link,
        "fabric": fabric if several else None,
        "network_gbps": speed if several else None,
    }


def _system(record: Record) -> str:
    if record["framework"].startswith(_INTERN):
        return _INTERN.lower()
    family = "deepspeed" if "deepspeed" in record["framework"] else record["framework_family"]
    return _SYSTEMS.get(family, family)


def _config(record: Record) -> dict[str, Any]:
    config = record["config"]
    return {
        "zero_stage": 2 if _says(record, _ANOTHER_STAGE) else config.get("zero_stage"),
        "zero_stage_equiv": config.get("zero_stage_equiv"),
        "states_over": _sharing(config),
        "offload": _offload(record),
        "micro_batch": config.get("micro_batch"),
        "grad_accum": config.get("grad_accum"),
        "global_batch": config.get("global_batch"),
        "checkpointing": _checkpointing(record),
        "precision": _precision(record),
        "optimizer": OPTIMIZERS[config.get("optimizer")],
        "attention": None if config.get("flash_attn") is None else ATTENTIONS[config["flash_attn"]],
        "flash_version": 3 if config.get("flash_attn") == "FA3" else None,
        "quantization": _quantization(config),
        "lora": _adapters(record["id"], config["lora"]),
        "chunked_loss": bool(config.get("liger_kernel")) or "chunked" in str(config.get("loss")) or None,
        "compile": config.get("compile") not in (None, False, "eager") or None,
        "passes": _passes(config),
        "fused_kernels": _fused(config),
        "plugins": None if config.get("framework_config") in (None, "none") else config["framework_config"],
        "padding_free": config.get("padding_free") or None,
        "activation_offload": config.get("activation_offload") or None,
        "sequence_parallel": config.get("sequence_parallel") or None,
        "device_map": config.get("parallel") == "device_map" or None,
        "ddp": record["framework"] == "pytorch ddp" or None,
        "overlap_comm": config.get("overlap_comm"),
        **{name: config.get(name) if (config.get(name) or 1) > 1 else None for name in _DEGREES},
        **{name: config.get(old) and int(config[old]) for name, old in _BUCKETS.items()},
    }


def _says(record: Record, *words: str) -> bool:
    return any(word in text for word in words for text in record["assumptions"])


def _sharing(config: Record) -> int | None:
    """GPUs over which the optimizer's states are shared out, where these are not all that train a replica each."""
    group = config.get("zero1_group")
    return group if group and group > 0 else None


def _passes(config: Record) -> str | None:
    """DeepCompile's passes: P prefetches, S keeps some weights gathered."""
    said = str(config.get("compile"))
    return said.removeprefix(_DEEP_COMPILE) if said.startswith(_DEEP_COMPILE) else None


_DEEP_COMPILE = "DeepCompile "


def _fused(config: Record) -> bool | None:
    """Kernels that a project brings for norms, rotary embedding, adapters or experts."""
    return config.get("fused_kernels") or str(config.get("framework_config")).startswith("moe-scattermoe") or None


def _quantization(config: Record) -> str | None:
    said = config.get("quantization")
    twice = said is not None and "double quant" in str((config["lora"] or {}).get("base"))
    return "nf4 twice" if twice else said and QUANTIZATIONS[said]


def _offload(record: Record) -> str | None:
    said = record["config"]["offload"]
    if said == _DEFAULT_RECIPE:
        return "none" if record["model"]["name"] == _SIZE_OF_RECIPE else None
    return OFFLOADS[said]


def _checkpointing(record: Record) -> bool | None:
    """Whether every block is recomputed; None where that is not stated, or only a part of it is."""
    said = "none" if _says(record, _NO_FLAG) else str(record["config"].get("activation_checkpointing"))
    about = [said, *(text for text in record["assumptions"] if "checkpointing" in text)]
    if any(word in text for word in _GUESSED for text in about):
        return None
    return True if said.startswith("full") else False if said.startswith("none") else None


def _precision(record: Record) -> str | None:
    precision, framework = record["config"]["precision"], record["framework"]
    notes = record["notes"]
    if framework.startswith("pytorch DDP") or "baseline vanilla HF (AMP fp16)" in notes or "Not runnable" in notes:
        return "fp16 autocast"
    ours = "fp8" if record["config"].get("float8") else PRECISIONS[precision]
    alone = record["framework_family"] == "single-gpu/other"  # no engine that would keep an fp32 copy
    return "pure bf16" if alone and precision == "bf16" else ours


def _adapters(name: str, lora: Any) -> dict[str, Any] | None:
    if not lora:
        return None
    method = lora.get("method", "lora").lower()
    variant = next((VARIANTS[end] for end in VARIANTS if name.endswith(end)), None)
    return _stated(
        {
            "r": lora.get("r"),
            "targets": _targets(lora.get("targets")),
            "train_embeddings": lora.get("train_embeddings") is True or None,
            "other": method if method not in _PLAIN else "dora" if lora.get("dora") else variant,
        }
    )


_PLAIN = ("lora", "gptq-lora")


def _targets(said: str | list[str] | None) -> tuple[str, ...] | None:
    if said is None or isinstance(said, str):
        return None if said is None else TARGETS[said]
    if set(said) >= EVERY_PART:
        return ("all-linear", "lm_head") if "head" in said else ("all-linear",)
    return tuple(PARTS.get(part, part) for part in said)


def _mean_length(record: Record) -> float | None:
    """Mean tokens of a sequence, padding counted where the speed counts it; None where all are as long as is said."""
    found = re.search(_MEAN_LENGTH, record["notes"])
    stated: float | None = record["model"].get("mean_tokens_per_sample")
    return float(found[1]) if found else stated


def _target_length(record: Record) -> int | None:
    found = (re.search(_TARGET_LENGTH, text) for text in record["assumptions"])
    return next((int(match[1]) for match in found if match), None)


def _caveats(record: Record) -> list[str] | None:
    found = [caveat for caveat, words in CAVEATS.items() if _says(record, *words)]
    found += [caveat for caveat, words in _NOTED.items() if any(word in record["notes"] for word in words)]
    return list(dict.fromkeys(found)) or None
