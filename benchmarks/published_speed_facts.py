"""What programs of some sources set though their tables do not say it: found in their repositories, with places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from published_sources import source_of  # benchmarks/, beside this script

from dsgen.kernels.architectures import architecture
from dsgen.shapes.profiles import Hardware

__all__ = ["flash_attention", "host_of", "launcher", "narrow_adapters", "really", "torch_of"]

Record = Mapping[str, Any]

# A release of torch from before sdpa asked cuDNN first. The rows on Hopper that ran sdpa were published from 03-2024
# (fsdp_qlora) to 06-2025 (TorchTitan), before torch 2.11.
_TORCH = "2.10"
# What the sources of later rounds ran: AsymGEMM's environment (scripts/lf/bootstrap_lf_venv.sh) has 2.12.0; Halo's
# guide says that sdpa is cuDNN's kernel there, as it is from 2.11 on.
_TORCHES = {"asg": "2.12", "ast": "2.12", "halo": "2.11"}
# What an operator costs the host of the published runs on V100 and A100, most of 2023, whose software has less Python
# than today's (transformers 4.46 takes 0.8 of 5.23's time for a layer of Llama, forward, on one core). Fitted on the
# LoRA runs of Qwen's README at 256 and 512 tokens, which the host bounds: 4.7 to 5.2 ms a block forward, again and
# backward, with 24, 32 and 40 blocks. ZeRO-3's hooks then take 0.29 ms a module; 64 layers of BERT under ZeRO-3 less
# those under ZeRO-2 say 0.31, on V100 in 2021 (deepspeedai/DeepSpeed pull request 1188).
OLDER_DISPATCH = 7e-6  # seconds
_OLDER = ("sm70", "sm80")
# LLM Foundry: submit_benchmarks.py asks for `attn_impl: triton` where nobody says else, the algorithm of the first
# release in Triton (mosaicml/llm-foundry@5f43bf160 of May 2023, before FlashAttention 2, for A100; b2a43a147 for H100).
# For the table of H100 from 128 GPUs on sweep.py says flash, then flash-attn 2.4.2, but for 13b and 30b (5e85bd62d).
_TRITON, _LARGE = "llmf", "Large Scale"
_TRITON_MODELS = ("MPT-13b", "MPT-30b")
# MPT as LLM Foundry's yamls have it: learned positions, and norms before each part (mosaicml/llm-foundry@15fb4ffaa,
# scripts/train/yamls/pretrain/mpt-7b.yaml says nothing of alibi or rope). OPT does as much, whose ReLU moves what a
# GELU does; GPT-NeoX, which keeps as much for backward, turns query and key besides.
_TIMED_AS = {"llmf": "opt"}
# DeepSpeed's Azure blog: the recipe that it points to (deepspeedai/Megatron-DeepSpeed@62bc4562, examples/azure).
_RECIPE = {"dsaz": {"reduce_bucket": 90_000_000, "max_reuse": 3_000_000_000}}
# Qwen: full training is finetune_ds.sh, whose config is of stage 3 (QwenLM/Qwen@e8e1596, README: "ZeRO 3").
_STAGE_3 = "qwen"
# DeepCompile's benchmark is started by Accelerate, which leaves each rank one CPU thread (DeepSpeedExamples@45b4b71).
_ONE_THREAD = "dsdc"
# Programs without DeepSpeed whose adapters have the type of the base: LoRA of their own (LitGPT, torchtune), or peft
# before 0.12 of July 2024, which makes them fp32 (huggingface/peft#1706), without autocast (train.py of
# AnswerDotAI/fsdp_qlora@05ed9f2, --precision bf16). Their memory is another matter: DeepSpeed keeps an fp32 copy.
_OF_THE_BASE = ("fsdpq", "lith", "lithc", "litr", "obl", "tune")
# FSDP's mixed precision gathers every weight in param_dtype, adapters among them (torch/distributed/fsdp/api.py,
# MixedPrecision), as Accelerate and ATorch ask for it. A model that is 16 bits from the beginning is trained without.
_GATHERED_IN = ("bf16", "fp16")


def torch_of(record: Record) -> str:
    """The release of torch that a record ran with."""
    return _TORCHES.get(source_of(record).prefix, _TORCH)


def narrow_adapters(record: Record) -> bool:
    """Whether the products of a record's adapters have the type of its base.

    Every published run of DeepSpeed is of a release before 0.19.2, which casts adapters at stage 3 too.
    """
    if record["system"] == "fsdp" and record["config"].get("zero_stage_equiv") and _precision(record) in _GATHERED_IN:
        return True
    return record["system"] == "deepspeed" or source_of(record).prefix in _OF_THE_BASE


def _precision(record: Record) -> str:
    said: str = record["config"].get("precision", "")
    return said


def really(record: Record) -> Record:
    """The record with what its program set."""
    prefix, config = source_of(record).prefix, record["config"]
    more: dict[str, Any] = {name: value for name, value in _RECIPE.get(prefix, {}).items() if name not in config}
    if prefix == _STAGE_3 and config.get("zero_stage") == 2 and "lora" not in config:
        more["zero_stage"] = 3
    timed = {"timed_as": _TIMED_AS[prefix]} if prefix in _TIMED_AS else {}
    return {**record, "config": {**config, **more}, **timed} if more or timed else record


def flash_attention(record: Record) -> int:
    """The release of FlashAttention that a record ran with."""
    asked = _LARGE not in record["source"] or record["model"]["name"] in _TRITON_MODELS
    early = source_of(record).prefix == _TRITON and asked
    release: int = record["config"].get("flash_version", 1 if early else 2)
    return release


def host_of(hardware: Hardware) -> Hardware:
    """The hardware with the host that the published runs on it had."""
    older = hardware.dispatch_seconds is None and architecture(hardware).name in _OLDER
    return attrs.evolve(hardware, dispatch_seconds=OLDER_DISPATCH) if older else hardware


def launcher(record: Record) -> str:
    """Who started the ranks of a record; DeepSpeed's launcher where nobody says it."""
    said: str | None = record["config"].get("launcher")
    return said or ("torchrun" if source_of(record).prefix == _ONE_THREAD else "deepspeed")
