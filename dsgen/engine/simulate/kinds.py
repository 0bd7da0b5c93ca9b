"""What a storage is for: by the function that makes it, by the phase it is born in, and by who holds it in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["BY_PHASE", "HIDDEN", "MAKERS", "STAND_INS", "collective", "site"]

# Phase -> kind of a storage that no known function makes.
BY_PHASE = {
    "load": "weights",
    "init": "temporaries",
    "input": "inputs",
    "forward": "activations",
    "evaluate": "activations",
    "save": "other",
    "resume": "other",
    "step": "temporaries",
}

# File of DeepSpeed or transformers -> function -> kind of what it makes. A test holds every name against the release.
MAKERS: dict[str, dict[str, str]] = {
    "deepspeed/runtime/zero/partition_parameters.py": {
        "all_gather_coalesced": "gathered parameters",
        "_all_gather_dtype": "gathered parameters",
        "_all_gather_sequential": "gathered parameters",
        "_allgather_param": "gathered parameters",
        "_allgather_params_coalesced": "gathered parameters",
        "_allgather_params_sequential": "gathered parameters",
        "wait": "gathered parameters",
        "_partition_param": "weights",
        "_partition_param_sec": "weights",
        "wrapped_fn": "weights",  # a parameter at full size, as the model's class makes it under zero.Init
    },
    "deepspeed/runtime/zero/utils.py": {"defragment": "weights"},
    "deepspeed/runtime/zero/stage3.py": {
        "__avg_scatter_contiguous_grads": "communication buckets",
        "__avg_scatter_grads": "communication buckets",
        "__reduce_and_partition_ipg_grads": "communication buckets",
        "_create_fp32_partitions": "fp32 master weights",
        "_prepare_fp32_grad_for_sub_group": "gradients",
        "initialize_optimizer_states": "gradients",  # zeros, for a first step that makes the states
    },
    "deepspeed/runtime/comm/coalesced_collectives.py": {"reduce_scatter_coalesced": "communication buckets"},
    "deepspeed/runtime/zero/stage_1_and_2.py": {
        "setup_buckets": "communication buckets",
        "average_tensor": "communication buckets",
        "allreduce_bucket": "communication buckets",
        "allreduce_and_copy": "communication buckets",
        "copy_grads_in_partition": "gradients",
        "get_flat_partition": "gradients",
        "initialize_optimizer_states": "gradients",
        "reduce_independent_p_g_buckets_and_remove_grads": "gradients",  # a copy of one larger than the bucket
        "step": "gradients",  # flattened, and in the type of the master weights
        "get_grad_norm_direct": "temporaries",
        "has_overflow": "temporaries",
        "set_norm_for_param_grad": "temporaries",
        "set_norm_for_param_grad_in_gpu": "temporaries",
    },
    "deepspeed/runtime/engine.py": {
        "_cast_module_mixed_precision": "weights",
        "_configure_distributed_model": "weights",
        "allreduce_bucket": "communication buckets",
        "allreduce_and_copy": "communication buckets",
    },
    "deepspeed/runtime/fp16/fused_optimizer.py": {
        "initialize_optimizer_states": "gradients",
        "step": "gradients",  # the flat fp32 copy that the optimizer reads
    },
    "deepspeed/runtime/fp16/unfused_optimizer.py": {
        "initialize_optimizer_states": "gradients",
        "step": "gradients",  # the fp32 copies that the optimizer reads
    },
    "deepspeed/runtime/utils.py": {
        "clip_grad_norm_": "temporaries",
        "get_flattened_grad_norm": "temporaries",
        "get_weight_norm": "temporaries",
    },
    "deepspeed/module_inject/layers.py": {"move": "weights"},
    "deepspeed/runtime/swap_tensor/partitioned_param_swapper.py": {"_configure_aio": "offload buffers"},
    "deepspeed/sequence/cross_entropy.py": {"forward": "logits and loss", "backward": "logits and loss"},
    # States that live for one step only are those swapped to NVMe; the others are found in the optimizer anyway.
    "deepspeed/ops/adam/cpu_adam.py": {"step": "optimizer states"},
    "deepspeed/ops/adam/fused_adam.py": {"step": "optimizer states"},
    "torch/optim/adam.py": {"_init_group": "optimizer states", "adam": "temporaries"},
    "transformers/modeling_utils.py": {"to": "weights"},
    "transformers/loss/loss_utils.py": {"ForCausalLMLoss": "logits and loss", "fixed_cross_entropy": "logits and loss"},
}

# The same for what stands in for functions of DeepSpeed and other libraries.
STAND_INS: dict[str, dict[str, str]] = {
    "dsgen/engine/simulate/shortcuts.py": {
        "wait": "gathered parameters",
        "reduce_scatter_coalesced": "communication buckets",
    },
    "dsgen/engine/simulate/losses.py": {
        "chunks": "logits and loss",
        "kept": "gradients",
        "older_loss": "logits and loss",
    },
    "dsgen/engine/simulate/kept_logits.py": {"gathered": "kept logits", "behind": "kept logits"},
    "dsgen/engine/simulate/quantized.py": {"dequantized": "temporaries"},
    "dsgen/engine/simulate/eight_bits.py": {"table": "optimizer states", "moved": "optimizer states"},
}

_PACKAGES = ("deepspeed", "transformers", "torch/optim")


def site(filename: str, function: str) -> tuple[str, str | None, bool]:
    """What is known of a function.

    Returns:
        Where it stands ("deepspeed/runtime/engine.py:step", empty outside the libraries), the kind it makes, and
        whether it is the model's own code.
    """
    path = filename.replace("\\", "/").rpartition("site-packages/")[2]
    for file, functions in STAND_INS.items():
        if path.endswith(file):
            return "", functions.get(function), False
    if not path.startswith(_PACKAGES):
        return "", None, False
    return f"{path}:{function}", MAKERS.get(path, {}).get(function), path.startswith("transformers/models/")


def collective(operator: str) -> str | None:
    """The name NCCL gives to an operator of torch's namespace c10d; None where nothing is moved."""
    stem = operator.partition(".")[0].strip("_")
    return _COLLECTIVES.get(stem)


_COLLECTIVES = {
    "allreduce": "all-reduce",
    "allreduce_coalesced": "all-reduce",
    "broadcast": "broadcast",
    "allgather": "all-gather",
    "allgather_base": "all-gather",
    "allgather_coalesced": "all-gather",
    "allgather_into_tensor_coalesced": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "reduce_scatter_base": "reduce-scatter",
    "reduce_scatter_tensor_coalesced": "reduce-scatter",
    "reduce": "reduce",
    "alltoall": "all-to-all",
    "alltoall_base": "all-to-all",
    "send": "send",
    "recv": "receive",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
}


def _like_first(args: Any) -> int:
    return int(args[0].numel() * args[0].element_size())


# Operator -> bytes that its kernel allocates and frees unseen, from its arguments.
HIDDEN: dict[Any, Callable[[Any], int]] = {
    torch.ops.aten.isinf.default: _like_first,  # x.abs() == inf (ATen/native/UnaryOps / TensorCompare.cpp)
}
