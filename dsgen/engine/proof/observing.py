"""What a DeepSpeed engine really holds: stage, classes, types, sizes and places, as plain JSON values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["engine_facts", "held_config", "masters", "model_sizes", "rates", "snapshot", "state_facts", "unread"]

# Where each optimizer wrapper of DeepSpeed 0.19 keeps its fp32 master weights.
_MASTER_ATTRIBUTES = (
    "single_partition_of_fp32_groups",  # runtime/zero/stage_1_and_2.py
    "fp32_partitioned_groups_flat",  # runtime/zero/stage3.py
    "fp32_groups_flat_partition",  # runtime/bf16_optimizer.py
    "fp32_groups_flat",  # runtime/fp16/fused_optimizer.py
    "fp32_groups",  # runtime/fp16/unfused_optimizer.py
)
# Section of the config -> attribute of DeepSpeedConfig that holds it after parsing (runtime/config.py).
_SECTIONS = {
    "zero_optimization": "zero_config",
    "fp16": "float16_config",
    "bf16": "bfloat16_config",
    "tensor_parallel": "tensor_parallel_config",
    "activation_checkpointing": "activation_checkpointing_config",
    "flops_profiler": "flops_profiler_config",
    "aio": "aio_config",
}


def _flat(value: Any) -> Iterable[Any]:
    """Every tensor in nested lists."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    elif value is not None:
        yield value


def masters(engine: Any) -> list[Any]:
    """The tensors that the optimizer updates on this rank: fp32 masters, or the parameters where there are none."""
    for name in _MASTER_ATTRIBUTES:
        flat = list(_flat(getattr(engine.optimizer, name, None)))
        if flat:
            return flat
    groups = getattr(engine.optimizer, "param_groups", [])
    return [parameter for group in groups for parameter in group["params"]]


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _optimizer_place(optimizer: Any) -> str:
    """Where the optimizer keeps its masters and states: accelerator, cpu or nvme."""
    if getattr(optimizer, "swap_optimizer", False):
        return "nvme"
    if getattr(optimizer, "offload_optimizer", False) or getattr(optimizer, "cpu_offload", False):
        return "cpu"
    return "accelerator"


def _parameter_place(optimizer: Any) -> str:
    """Where the parameters rest between uses: accelerator, cpu or nvme."""
    if getattr(optimizer, "params_in_nvme_and_cpu", False):
        return "nvme"
    return "cpu" if getattr(optimizer, "offload_param", False) else "accelerator"


def _swap_bytes(swapper: Any) -> int:
    """Bytes of the files that a swapper of DeepSpeed keeps on NVMe, gradients on their way excepted."""
    folder = getattr(swapper, "swap_folder", None)
    if folder is None:
        return 0
    return sum(file.stat().st_size for file in Path(folder).rglob("*.swp") if "_gradient_" not in file.name)


def engine_facts(engine: Any, rank: int) -> dict[str, Any]:
    """What one rank's engine is after `deepspeed.initialize`; sizes in elements."""
    parameters = list(engine.module.parameters())
    sharded = [p for p in parameters if hasattr(p, "ds_tensor") and p.requires_grad]
    base = [p for p in parameters if not p.requires_grad] or parameters  # below adapters
    own = masters(engine)
    optimizer = engine.optimizer
    return {
        "rank": rank,
        "stage": int(engine.zero_optimization_stage()),
        "data_parallel": int(engine.dp_world_size),
        "micro_batch": engine.train_micro_batch_size_per_gpu(),
        "accumulation": engine.gradient_accumulation_steps(),
        "train_batch": engine.train_batch_size(),
        "gradient_clipping": engine.gradient_clipping(),
        "optimizer_clipping": getattr(optimizer, "clip_grad", None),
        "parameter_dtypes": sorted({_dtype(p) for p in base if p.is_floating_point()}),
        "optimizer": type(engine.basic_optimizer).__name__ if engine.basic_optimizer is not None else None,
        "wrapper": type(optimizer).__name__,
        "scheduler": type(engine.lr_scheduler).__name__ if engine.lr_scheduler is not None else None,
        "parameter_sizes": [int(getattr(p, "ds_numel", p.numel())) for p in parameters if p.requires_grad],
        "parameters_partitioned": len(sharded),
        "parameters_held": sum(_numel(p.ds_tensor) for p in sharded),
        "parameter_place": _parameter_place(optimizer),
        "master_dtypes": sorted({_dtype(tensor) for tensor in own}),
        "master_groups": len(own),
        "master_held": sum(_numel(tensor) for tensor in own),
        "optimizer_place": _optimizer_place(optimizer),
    }


def model_sizes(model: Any) -> dict[str, int]:
    """Elements before DeepSpeed takes the model: all, those of linear layers, which AutoTP shards, and of the head."""
    import torch

    linear = {id(one.weight): one.weight for one in model.modules() if isinstance(one, torch.nn.Linear)}
    heads = [one for one in (getattr(model, "get_output_embeddings", lambda: None)(),) if one is not None]
    return {
        "head_elements": sum(int(getattr(one.weight, "ds_numel", one.weight.numel())) for one in heads),
        "model_elements": sum(int(getattr(one, "ds_numel", one.numel())) for one in model.parameters()),
        "linear_elements": sum(int(getattr(one, "ds_numel", one.numel())) for one in linear.values()),
    }


def _numel(tensor: Any) -> int:
    """Elements of a tensor; a tensor swapped out to NVMe says how many it stands for."""
    return int(getattr(tensor, "ds_numel", 0) or tensor.numel())


def state_facts(engine: Any) -> dict[str, Any]:
    """What the optimizer's states are after a step: elements of one moment held by this rank, types, devices, files."""
    states = [s for s in getattr(engine.optimizer, "state", {}).values() if isinstance(s, dict)]
    if not states and engine.basic_optimizer is not None:
        states = [s for s in engine.basic_optimizer.state.values() if isinstance(s, dict)]
    moments = [s["exp_avg"] for s in states if "exp_avg" in s]
    return {
        "optimizer_swap_bytes": _swap_bytes(getattr(engine.optimizer, "optimizer_swapper", None)),
        "parameter_swap_bytes": _swap_bytes(getattr(next(engine.module.parameters()), "nvme_swapper", None)),
        "moment_held": sum(_numel(m) for m in moments),
        "moment_dtypes": sorted({_dtype(m) for m in moments}),
        "moment_devices": sorted({m.device.type for m in moments}),
    }


def snapshot(engine: Any) -> dict[str, Any]:
    """A copy of what a checkpoint must bring back: every trained weight, the step and the schedule.

    Every rank must call it: gathering a partitioned parameter is collective.
    """
    import torch
    from deepspeed.utils import safe_get_full_fp32_param

    tensors = []
    for parameter in (p for p in engine.module.parameters() if p.requires_grad):
        full = safe_get_full_fp32_param(parameter)
        tensors.append((parameter.detach() if full is None else full).to("cpu", torch.float32, copy=True))
    scheduler = engine.lr_scheduler
    return {
        "tensors": tensors,
        "learning_rate": rates(engine),
        "global_steps": int(engine.global_steps),
        "schedule": scheduler.state_dict() if hasattr(scheduler, "state_dict") else None,
    }


def held_config(config: Any) -> dict[str, Any]:
    """The values a parsed `DeepSpeedConfig` holds, under the names that a config file uses.

    A field with an alias appears under both names.
    """
    held = {key: value for key, value in vars(config).items() if isinstance(value, (bool, int, float, str))}
    for section, attribute in _SECTIONS.items():
        value = getattr(config, attribute, None)
        if value is not None:
            held[section] = _fields(value)
    return held


def _fields(value: Any) -> Any:
    """A section as nested dicts of plain values."""
    if hasattr(type(value), "model_fields"):
        fields = {}
        for name, field in type(value).model_fields.items():
            # A deprecated field is deleted once DeepSpeed has moved its value to the new one.
            if name in value.__dict__:
                fields[name] = fields[field.alias or name] = _fields(value.__dict__[name])
        return fields
    if isinstance(value, dict):
        return {str(key): _fields(item) for key, item in value.items()}
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if hasattr(value, "value") and isinstance(value.value, (str, int)):
        return value.value
    if hasattr(value, "__dict__"):
        return {key: _fields(item) for key, item in vars(value).items() if not key.startswith("_")}
    return str(value)


def rates(engine: Any) -> list[float]:
    """The learning rate of each group; None is NaN here: it stops the optimizer's own step, in its own words."""
    return [math.nan if rate is None else float(rate) for rate in engine.get_lr()]


def unread(config: dict[str, Any], seen: set[str], prefix: str = "") -> list[str]:
    """Written keys that no code asked for; below a key that was not read, only that key."""
    paths = []
    for key, value in config.items():
        path = f"{prefix}{key}"
        if path not in seen:
            paths.append(path)
        elif isinstance(value, dict):
            paths += unread(value, seen, f"{path}.")
    return paths
