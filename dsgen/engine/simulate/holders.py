"""Who holds which tensor: the attributes in which DeepSpeed's engine and optimizers keep what outlives a phase."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["HOLDERS", "held"]

# Class of DeepSpeed 0.19 -> attribute -> kind. A test holds every attribute against the source of the class.
HOLDERS: dict[str, dict[str, str]] = {
    "deepspeed.runtime.zero.stage3:DeepSpeedZeroOptimizer_Stage3": {
        "ipg_buckets": "communication buckets",
        "grad_partitions_flat_buffer": "gradients",
        "_DeepSpeedZeroOptimizer_Stage3__param_id_to_grad_partition": "gradients",
        "averaged_gradients": "gradients",
        "optimizer_swapper": "offload buffers",
        "fp16_partitioned_groups_flat": "weights",
        "lp_param_buffer": "weights",
        "fp32_partitioned_groups_flat": "fp32 master weights",
    },
    "deepspeed.runtime.zero.stage_1_and_2:DeepSpeedZeroOptimizer": {
        "ipg_buckets": "communication buckets",
        "averaged_gradients": "gradients",
        "all_grad_tensors": "gradients",
        "param_dict": "weights",
        "accumulated_grads_in_cpu": "gradients",
        "temp_grad_buffer_for_cpu_offload": "offload buffers",
        "temp_grad_buffer_for_gpu_offload": "offload buffers",
        "param_buffer_of_bit16_for_cpu_offload_groups": "offload buffers",
        "bit16_groups_flat": "weights",
        "single_partition_of_fp32_groups": "fp32 master weights",
    },
    "deepspeed.runtime.bf16_optimizer:BF16_Optimizer": {
        "fp32_groups_gradients_flat": "gradients",
        "fp32_groups_flat_partition": "fp32 master weights",
        "bf16_groups_flat": "weights",
    },
    "deepspeed.runtime.fp16.fused_optimizer:FP16_Optimizer": {
        "fp16_groups_flat": "weights",
        "fp32_groups_flat": "fp32 master weights",
    },
    "deepspeed.runtime.fp16.unfused_optimizer:FP16_UnfusedOptimizer": {
        "fp16_groups": "weights",
        "fp32_groups": "fp32 master weights",
    },
    "dsgen.engine.simulate.eight_bits:AdamW8bit": {"name2qmap": "optimizer states"},
}

_DEEPEST = 6  # levels of lists and objects below an attribute


def held(module: Any, engine: Any) -> Iterator[tuple[Any, str]]:
    """Every tensor that the model and the engine keep, with what it is for; the last word about a tensor counts.

    Args:
        module: The model.
        engine: The engine; None before `deepspeed.initialize`.
    """
    parameters = list(module.parameters())
    for buffer in module.buffers():
        yield buffer, "weights"
    swappers = {
        id(swapper): swapper for one in parameters if (swapper := getattr(one, "nvme_swapper", None)) is not None
    }
    for buffer in _tensors(list(swappers.values()), _DEEPEST):
        yield buffer, "offload buffers"
    for parameter in parameters:
        if not hasattr(parameter, "ds_id"):
            yield parameter.data, "weights"
        for name in ("ds_tensor", "ds_secondary_tensor"):
            if torch.is_tensor(part := getattr(parameter, name, None)):
                yield part, "weights"
        if parameter.grad is not None:
            yield parameter.grad, "gradients"
    if engine is None:
        return
    optimizers = [getattr(engine, name, None) for name in ("optimizer", "basic_optimizer")]
    # Where a part of the states is offloaded (`ratio`), a second optimizer steps the rest on the GPU.
    optimizers.append(getattr(engine.optimizer, "backup_optimizer", None))
    for optimizer in optimizers:
        table = HOLDERS.get(f"{type(optimizer).__module__}:{type(optimizer).__qualname__}", {})
        for name, kind in table.items():
            for tensor in _tensors(getattr(optimizer, name, None), _DEEPEST):
                yield tensor, kind
                if kind == "fp32 master weights" and tensor.grad is not None:
                    yield tensor.grad, "gradients"
    for optimizer in optimizers:
        for tensor in _tensors(list(getattr(optimizer, "state", {}).values()), _DEEPEST):
            yield tensor, "optimizer states"


def _tensors(value: Any, deepest: int) -> Iterator[Any]:
    """Every tensor in nested lists, dicts and DeepSpeed's own objects."""
    if torch.is_tensor(value):
        yield value
    elif deepest == 0 or value is None:
        return
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item, deepest - 1)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from _tensors(item, deepest - 1)
    elif type(value).__module__.startswith("deepspeed.runtime") and hasattr(value, "__dict__"):
        yield from _tensors(list(vars(value).values()), deepest - 1)
