"""What a parsed DeepSpeedConfig holds, under the dotted keys of a config file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsgen.engine.pydantic_fields import as_json

__all__ = ["ParsedValues", "held_values"]

# Attribute of DeepSpeedConfig -> the key that fills it (runtime/config.py). One that is not here has its key's name.
_PLACES = {
    "zero_config": "zero_optimization",
    "float16_config": "fp16",
    "bfloat16_config": "bf16",
    "fp16_enabled": "fp16.enabled",  # up to 0.16, as are the next five
    "fp16_auto_cast": "fp16.auto_cast",
    "fp16_master_weights_and_gradients": "fp16.fp16_master_weights_and_grads",
    "loss_scale": "fp16.loss_scale",
    "bfloat16_enabled": "bf16.enabled",
    "bfloat16_immediate_grad_update": "bf16.immediate_grad_update",
    "amp_enabled": "amp.enabled",  # up to 0.19.7, as are the next five sections
    "amp_params": "amp",
    "pld_enabled": "progressive_layer_drop.enabled",
    "pld_params": "progressive_layer_drop",
    "curriculum_enabled_legacy": "curriculum_learning.enabled",
    "curriculum_params_legacy": "curriculum_learning",
    "elasticity_enabled": "elasticity.enabled",
    "sparse_gradients_enabled": "sparse_gradients",
    "nebula_config": "nebula",
    "activation_checkpointing_config": "activation_checkpointing",
    "monitor_config": "",  # its parts are sections of their own
    "flops_profiler_config": "flops_profiler",
    "autotuning_config": "autotuning",
    "hybrid_engine": "hybrid_engine",
    "pipeline": "pipeline",
    "data_efficiency_config": "data_efficiency",
    "checkpoint_config": "checkpoint",
    "aio_config": "aio",
    "weight_quantization_config": "weight_quantization",
    "compile_config": "compile",
    "timers_config": "timers.throughput",
    "tensor_parallel_config": "tensor_parallel",
    "expert_parallel_config": "expert_parallel",
    "optimizer_name": "optimizer.type",
    "optimizer_params": "optimizer.params",
    "optimizer_legacy_fusion": "optimizer.legacy_fusion",
    "scheduler_name": "scheduler.type",
    "scheduler_params": "scheduler.params",
    "torch_autocast_enabled": "torch_autocast.enabled",
    "torch_autocast_dtype": "torch_autocast.dtype",
    "torch_autocast_lower_precision_safe_modules": "torch_autocast.lower_precision_safe_modules",
    "load_universal_checkpoint": "checkpoint.load_universal",
    "use_node_local_storage": "checkpoint.use_node_local_storage",
    "checkpoint_parallel_write_pipeline": "checkpoint.parallel_write.pipeline_stage",
    "grad_accum_dtype": "data_types.grad_accum_dtype",
    "param_dtype": "data_types.param_dtype",
    "buffer_dtype": "data_types.buffer_dtype",
    "keep_in_fp32_modules": "data_types.keep_in_fp32_modules",
    "use_data_before_expert_parallel_": "use_data_before_expert_parallelism",
}
# What DeepSpeed derives for itself from other keys, and the config as written.
_DERIVED = {
    "_param_dict", "global_rank", "world_size", "zero_enabled", "zero_optimization_stage", "data_efficiency_enabled",
    "checkpoint_tag_validation_enabled", "checkpoint_tag_validation_fail", "datastates_config",
}  # fmt: skip
_ABSENT = ("amp_params", "pld_params", "curriculum_params_legacy")  # False where the config has no such section
_DEEPEST = 40  # sections inside each other; DeepSpeed's deepest key has 7


class ParsedValues:
    """The values of one parsed config.

    Attributes:
        values: Dotted key -> value, plain JSON types; a section without keys is an empty dict.
        aliases: Another accepted name of a key -> the key.
        moved: A deprecated key that DeepSpeed emptied -> the key that took its value.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.aliases: dict[str, str] = {}
        self.moved: dict[str, str] = {}

    def put(self, path: str, value: Any, depth: int = 0) -> None:
        """Take over a value: a model, a map, an object with attributes, or plain data."""
        inside = dict(self._inside(path, value)) if depth < _DEEPEST else {}
        if not inside and path:
            self.values[path] = {} if _is_section(value) else _plain(value)
        for name, item in inside.items():
            self.put(f"{path}.{name}" if path else name, item, depth + 1)

    def _inside(self, path: str, value: Any) -> Iterator[tuple[str, Any]]:
        fields = _fields(value)
        if fields is not None:
            yield from self._model(path, value, fields)
        elif isinstance(value, Mapping):
            yield from ((str(key), item) for key, item in value.items())
        elif _is_section(value):
            yield from ((key, item) for key, item in vars(value).items() if not key.startswith("_"))

    def _model(self, path: str, model: Any, fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """The fields of a pydantic model; DeepSpeed deletes a deprecated field whose value it has moved."""
        before = f"{path}." if path else ""
        for name, field in fields.items():
            key = field.alias or name
            if key != name:
                self.aliases[f"{before}{name}"] = f"{before}{key}"
            if name in model.__dict__:
                yield key, model.__dict__[name]
                continue
            extra = getattr(field, "json_schema_extra", None) or getattr(
                getattr(field, "field_info", None), "extra", None
            )
            target = extra.get("new_param") if isinstance(extra, dict) else None
            if target:
                taken = fields.get(target)
                self.moved[f"{before}{key}"] = before + ((taken.alias if taken else None) or target)


def _is_section(value: Any) -> bool:
    """Whether a value is an object of DeepSpeed's with settings as attributes, a model or a map."""
    known = value is None or isinstance(value, (bool, int, float, str, list, tuple, set, type))
    if known or hasattr(value, "value"):
        return False
    inside = type(value).__module__.startswith("deepspeed.") and hasattr(value, "__dict__")
    return isinstance(value, Mapping) or _fields(value) is not None or inside


def _fields(value: Any) -> Any:
    """The fields of a pydantic model, of version 2 or of 1; None of what is none."""
    return getattr(type(value), "model_fields", None) or getattr(type(value), "__fields__", None)


def _plain(value: Any) -> Any:
    """Plain JSON data; of an object that JSON cannot say, the name of its type."""
    data = as_json(value)
    if isinstance(value, float):  # also those that are not finite, which `plain` drops
        return float(value)
    return f"<{type(value).__name__}>" if data is None and value is not None else data


def held_values(config: Any) -> ParsedValues:
    """The values of a `DeepSpeedConfig`."""
    parsed_values = ParsedValues()
    for name, value in vars(config).items():
        if name == "comms_config":
            logger = getattr(value, "comms_logger", None)
            if logger is not None:
                parsed_values.put("comms_logger", logger)
        elif name not in _DERIVED and (value is not False or name not in _ABSENT):
            parsed_values.put(_PLACES.get(name, name), value)
    return parsed_values
