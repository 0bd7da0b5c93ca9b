"""What DeepSpeed means by errors whose own words do not say it, and what helps; each was met in a real run too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dsgen.strategies.constraints import BY_CODE

__all__ = ["known"]

_ZERO = "zero_optimization"


def known(error: Mapping[str, Any], message: str) -> tuple[str, str] | None:
    """A sentence for a person and what to do; None for an error that is not known.

    Args:
        error: type, message and site of the exception.
        message: Its message on one line.
    """
    site = str(error.get("site", ""))
    if message.startswith("tracing error at step"):
        return (
            "the model reads its weights in another order than in its first step, which stage 3 cannot follow",
            "A real run ends so too. Adapters on experts are the usual cause: name other --lora-targets, or raise "
            f"{_ZERO}.stage3_max_live_parameters and stage3_max_reuse_distance above the largest weight.",
        )
    if "pipelined_optimizer_swapper.py" in site and ("buffer" in message or message == "(no message)"):
        return (
            "the pipelined swapper of the optimizer has too few buffers",
            f"Raise {_ZERO}.offload_optimizer.buffer_count: for Adam to 8 with pipeline_read or pipeline_write, to 12 "
            "with both.",
        )
    if match := re.match(r"More elements (\d+) than buffer size (\d+)", message):
        return (
            f"{_ZERO}.offload_param.buffer_size is {match[2]}; it must be at least {match[1]}, the elements of the "
            "largest weight",
            f"Set {_ZERO}.offload_param.buffer_size.",
        )
    if str(error.get("type")) == "NoMatchingPeftModuleError":
        return (
            f"no module of the model has one of the names that the adapters are for: {message.partition('. ')[0]}",
            "Name modules of this model with --lora-targets, or all-linear for every linear layer.",
        )
    if message.endswith("does not work with lora_dropout != 0."):
        return (
            BY_CODE["dropout-of-experts"].reason,
            "Name other modules with --lora-targets, or leave --lora-dropout out.",
        )
    if "in defragment" in site and message == "(no message)":
        return (
            BY_CODE["copies-at-stage-3"].reason,
            f"A real run ends so too. Take stage 2, --method qlora or {_ZERO}.offload_param.",
        )
    if error.get("type") == "TiedHeadError":
        return (
            message,
            f"{BY_CODE['copies-of-tied-weights'].reason}. Leave --lora-train-embeddings out, or train the whole model.",
        )
    if message.startswith("Parameter") and "_create_param_mapping" in site:
        return (
            BY_CODE["autotp-with-adapters"].reason,
            "Leave tensor_parallel out: adapters fit beside every stage of ZeRO.",
        )
    if message.startswith("AutoTP not supported for model"):
        return (
            "AutoTP does not know how to split this model",
            "Leave tensor_parallel out: ZeRO shards every model.",
        )
    return None
