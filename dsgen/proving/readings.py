"""A config as DeepSpeed reads it: old keys as the new ones, and texts and numbers where it wants another type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsgen.shapes import lax

__all__ = ["as_read"]

_ZERO = "zero_optimization"
_SWITCHES = ("fp16", "bf16", "bfloat16")  # sections with `enabled`
# Old key of ZeRO -> the section that it asks for (runtime/zero/config.py, 0.19.8: new_param).
_OLD_OFFLOADS = (("cpu_offload", "offload_optimizer"), ("cpu_offload_param", "offload_param"))


def as_read(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with what decides its course as DeepSpeed has it after its parse; what it refuses stays as written."""
    read = dict(config)
    if isinstance(zero := config.get(_ZERO), bool):  # before 0.3 it was a switch: stage 1 or none
        read[_ZERO] = {"stage": int(zero)}
    elif isinstance(zero, Mapping):
        read[_ZERO] = _zero(zero)
    for name in _SWITCHES:
        section = config.get(name)
        if isinstance(section, Mapping) and (on := lax.boolean(section.get("enabled"))) is not None:
            read[name] = {**section, "enabled": on}
    parallel = config.get("tensor_parallel")
    degree = parallel.get("autotp_size") if isinstance(parallel, Mapping) else None
    if isinstance(degree, float) and degree.is_integer():  # a text stops deepspeed.initialize, which compares it first
        read["tensor_parallel"] = {**config["tensor_parallel"], "autotp_size": int(degree)}
    return read


def _zero(section: Mapping[str, Any]) -> dict[str, Any]:
    read = dict(section)
    if (stage := lax.integer(section.get("stage"))) is not None:
        read["stage"] = stage
    for old, new in _OLD_OFFLOADS:
        if old in section and lax.boolean(section[old]) is not None:
            del read[old]
            if lax.boolean(section[old]):
                read.setdefault(new, {"device": "cpu"})
    return read
