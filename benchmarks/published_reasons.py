"""Why a record is not compared: dsgen has no word for it, the source does not say it, or it is another system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from published_models import model_of, targets_of, type_of  # benchmarks/, beside this script
from published_sources import measured_bytes, source_of

__all__ = ["EIGHT_BIT_OPTIMIZERS", "KNOWN_OPTIMIZERS", "REASONS", "offload_of", "reason", "stage_of"]

Record = Mapping[str, Any]

_OTHER_SYSTEMS = ("megatron", "nanotron", "colossalai")
# bitsandbytes' AdamW, whose states are on the GPU while there is room, paged or not (dsgen.shapes.optimizer_names).
EIGHT_BIT_OPTIMIZERS = ("8-bit AdamW", "paged 8-bit AdamW", "paged AdamW 8-bit")
KNOWN_OPTIMIZERS = ("Adam", "AdamW", "Muon", "paged AdamW", *EIGHT_BIT_OPTIMIZERS)
_GPTQ = "gptq-int4"  # groups of 128 take 4.16 bits a weight, NF4 with double quantization 4.13
_NF4 = (_GPTQ, "nf4", "nf4 twice")
_OFFLOADS = {
    "none": ("none", "none"),
    "optimizer": ("cpu", "none"),
    "optimizer and parameters": ("cpu", "cpu"),
}
_SEVERAL_MODELS = "dschat"
# finetune/finetune_ds.sh passes ds_config_zero3.json at every commit since the first, and so says its README.
_QWEN = "qwen"


def stage_of(record: Record) -> int | None:
    """The ZeRO stage of a record, or the one that its FSDP strategy is like; None where neither is stated."""
    config = record["config"]
    if source_of(record).prefix == _QWEN and "lora" not in config and record["hardware"]["gpus"] > 1:
        return 3  # the record guesses another; its script for several GPUs never passed one
    stage = config.get("zero_stage", config.get("zero_stage_equiv"))
    return None if stage is None else int(stage)


def offload_of(record: Record) -> tuple[str, str] | None:
    """Where optimizer and parameters are; None where that is not stated, or means none of dsgen's words."""
    return _OFFLOADS.get(record["config"].get("offload", ""))


def _caveat(caveat: str) -> Callable[[Record], bool]:
    return lambda record: caveat in record.get("caveats", ())


def _lacks(name: str) -> Callable[[Record], bool]:
    return lambda record: name not in record["config"]


def _has(name: str) -> Callable[[Record], bool]:
    return lambda record: name in record["config"]


def _whole_in_16_bit(record: Record) -> bool:
    """All weights and states in 16 bits, and no second copy of the weights: DeepSpeed's keys for it keep one."""
    config = record["config"]
    plain = not stage_of(record) or "zero_stage_equiv" in config
    return "lora" not in config and plain and config["precision"] in ("pure bf16", "pure fp16")


def _other_adapters(record: Record) -> bool:
    return "other" in record["config"].get("lora", ())


def _no_targets(record: Record) -> bool:
    return "lora" in record["config"] and targets_of(record, model_of(record)) is None


def _copies_gradients(record: Record) -> bool:
    """DDP with every weight trained: its buckets are a second copy of the gradients."""
    config = record["config"]
    return "ddp" in config and record["hardware"]["gpus"] > 1 and "lora" not in config


def _unlike_zero(record: Record) -> bool:
    """FSDP where stage 3 holds something else: fp32 weights twice, or a 4-bit base in whole."""
    config = record["config"]
    differs = config["precision"] == "fp32" or config.get("quantization") in _NF4
    return "zero_stage_equiv" in config and bool(stage_of(record)) and differs


def _shape_missing(record: Record) -> bool:
    sizes = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq_len")
    return any(name not in record["model"] for name in sizes)


def _quantized_otherwise(record: Record) -> bool:
    return record["config"].get("quantization", _GPTQ) not in _NF4


# Why a record is not compared -> whether it holds; the first that does is the reason.
REASONS: Mapping[str, Callable[[Record], bool]] = {
    "another training system (Megatron, nanotron, Colossal-AI)": lambda r: r["system"] in _OTHER_SYSTEMS,
    "pipeline parallelism": _has("pp"),
    "context or sequence parallelism": lambda r: _has("cp")(r) or _has("sp")(r),
    "tensor parallelism of another kind: Megatron's or TorchTitan's, with split sequences": _has("tp"),
    "nothing about memory was measured": lambda r: measured_bytes(r) is None and "fits" not in r["measured"],
    "several models at once, or one without its head (RLHF, rewards)": lambda r: r["id"].startswith(_SEVERAL_MODELS),
    "the shape of the model or the length is not stated": _shape_missing,
    "the micro-batch is not stated": _lacks("micro_batch"),
    "the GPU or its memory is not stated": lambda r: "gpu" not in r["hardware"],
    "the configuration is not described": _caveat("undescribed"),
    "the precision is not stated": _lacks("precision"),
    "fp8": lambda r: r["config"]["precision"] == "fp8",
    "torch.compile or DeepCompile changes what is alive": _has("compile"),
    "DDP keeps a second copy of every gradient in its buckets": _copies_gradients,
    "16-bit autocast over fp32 weights": lambda r: r["config"]["precision"] == "fp16 autocast",
    "all weights and states in 16 bits, without an fp32 copy": _whole_in_16_bit,
    "an optimizer that dsgen has no word for (inside backward, LoRA-FA)": (
        lambda r: r["config"].get("optimizer") not in KNOWN_OPTIMIZERS
    ),
    "activations offloaded to the CPU": _has("activation_offload"),
    "what is offloaded, and where to, is not stated": lambda r: offload_of(r) is None,
    "layers spread over GPUs (device_map)": _has("device_map"),
    "adapters that are no plain LoRA": _other_adapters,
    "a base in 8 bits (GPTQ)": _quantized_otherwise,
    "FSDP with fp32 weights, which ZeRO has twice, or with a 4-bit base, which ZeRO-3 keeps gathered": _unlike_zero,
    "checkpointing of a part of each block, or not stated": _lacks("checkpointing"),
    "sparse attention": lambda r: r["config"].get("attention") == "sparse",
    "the real sequences were shorter, by how much is not stated": (
        lambda r: bool(source_of(r).length) or _caveat("shorter")(r)
    ),
    "the peak includes gathering the whole model to save it": _caveat("gathered to save"),
    "the host's memory ran out, whose size is not stated": _caveat("host memory"),
    "dsgen has no such model type": lambda r: type_of(r) is None,
    "the ZeRO stage is not stated": lambda r: stage_of(r) is None,
    "the adapted matrices are not stated": _no_targets,
}


def reason(record: Record) -> str | None:
    """Why a record is not compared; None where it is."""
    return next((text for text, holds in REASONS.items() if holds(record)), None)
