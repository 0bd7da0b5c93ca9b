"""Why a record's memory is shown apart: its program held something else than what dsgen's words for the rest mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from published_models import type_of  # benchmarks/, beside this script
from published_reasons import stage_of
from published_sources import source_of

__all__ = ["APART", "why_apart"]

Record = Mapping[str, Any]

_FOUR_BITS = ("gptq-int4", "nf4", "nf4 twice")
# Programs that call peft's prepare_model_for_kbit_training, or keep what is not in 4 bits in fp32 themselves, and run
# without DeepSpeed, which makes it 16 bits again: ms-swift (tuners), fms-acceleration's baseline plugin, and
# universal-llm-trainer (ljm565/universal-llm-trainer@aefdc4a, src/models/llama3.py).
_LIFTS = ("swb", "ullmt")
_LIFTING_PLUGIN = "baseline-peft-bnb"
_LITGPT = ("litr", "lith")  # bitsandbytes 0.41 and 0.42
# Firefly's requirements.txt at ef55b7d names bitsandbytes 0.39.0.
_KEEPS_INPUTS = (*_LITGPT, "ff")
_DELETES_LOGITS = "ullmt"  # del_logits_after_forward of its configs
# On one GPU without DeepSpeed: modeling_qwen.py and finetune.py of Qwen's own, and modules_to_save beside 4 bits
# (philschmid/deep-learning-pytorch-huggingface@59b3797, training/receipes/llama-3-1-8b-qlora.yaml).
_PLAIN_PROGRAMS = ("qwen", "ps25")
# ATorch checkpoints blocks by a wrapper of its own, so the model's use_cache stays true: every forward gives keys and
# values of all blocks, and the loop's `outputs` holds those and the logits of the step before while the next one makes
# its own (intelligent-machine-learning/dlrover@a7315308, atorch/examples/llama2/fsdp_llama2.py). Of 16,384 tokens of a
# Llama 7B that is 2 x 8.0 and 2.0 GiB beside the 11.3 of a step: all eight rows have 29.3 GiB beside their shards.
_KEEPS_CACHES = "ator"
# FSDP of a base that is loaded in fp32 and cast as it is gathered: a shard has 4 bytes a frozen weight, ZeRO-3's 2
# (pacman100/DHS-LLM-Workshop, chat_assistant/sft/training/utils.py; bobcchen/peft-explore, src/finetuning.py).
_WIDE_BASE = ("dgx", "bob")
# ms-swift packed to no length, from 91 to 19,548 tokens; of ChatGLM-Finetuning's every sample is a pass of its own
# length, up to some 1,150 tokens, whose cache nvidia-smi counts up to the whole card.
_MANY_LENGTHS = ("cgf", "swb")


def _plain(record: Record) -> bool:
    return record["system"] != "deepspeed" and not stage_of(record)


def _base(record: Record) -> str:
    said: str = record["config"].get("quantization", "")
    return said


def _prefix(record: Record) -> str:
    return source_of(record).prefix


# What a program held otherwise -> whether it did; the first that holds is the reason.
APART: Mapping[str, Callable[[Record], bool]] = {
    "kernels of another project, its loss among them, which holds fewer copies of the logits": lambda r: (
        bool(r["config"].get("fused_kernels")) and not r["config"].get("chunked_loss")
    ),
    "logits that the program deletes before backward": lambda r: (
        _prefix(r) == _DELETES_LOGITS and _base(r) not in _FOUR_BITS
    ),
    "what is not in 4 bits in fp32, which DeepSpeed would make 16 bits again": lambda r: (
        _base(r) in _FOUR_BITS and (_prefix(r) in _LIFTS or r["config"].get("plugins") == _LIFTING_PLUGIN)
    ),
    "bitsandbytes before 0.44, which kept the input of every 4-bit layer": lambda r: (
        _prefix(r) in _KEEPS_INPUTS and _base(r) in _FOUR_BITS
    ),
    "a base in GPTQ's 4 bits, with kernels of its own": lambda r: _base(r) == "gptq-int4",
    "adapters, embedding and head with torch's AdamW in 16 bits, without an fp32 copy": lambda r: (
        _prefix(r) in _PLAIN_PROGRAMS and _plain(r) and bool(r["config"].get("lora", {}).get("train_embeddings"))
    ),
    "FSDP under autocast, whose trained weights are fp32": lambda r: r["system"] == "fsdp" and _prefix(r) == "fms",
    "FSDP whose frozen weights are fp32": lambda r: (
        r["system"] == "fsdp" and _prefix(r) in _WIDE_BASE and "lora" in r["config"]
    ),
    "another project's Phi, whose GELU is one operator": lambda r: (
        _prefix(r) in _LITGPT and type_of(r) == "phi" and _base(r) not in _FOUR_BITS
    ),
    "FSDP that gathers gradients of frozen weights, whole between steps": lambda r: (
        r["system"] == "fsdp" and _prefix(r) in _LITGPT
    ),
    "keys and values of every block, which its loop keeps until the next step has made its own": lambda r: (
        _prefix(r) == _KEEPS_CACHES
    ),
    "sequences of many lengths, of which only the longest is known": lambda r: _prefix(r) in _MANY_LENGTHS,
}


def why_apart(record: Record) -> str | None:
    """What the program of a record held otherwise; None where nothing is known to differ."""
    return next((text for text, holds in APART.items() if holds(record)), None)
