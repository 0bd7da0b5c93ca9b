"""AutoTP as each release wants it: before 0.18.6 the program splits the model itself, `initialize` splits nothing."""

from __future__ import annotations

from typing import Any

__all__ = ["split"]

_IN_INITIALIZE_SINCE = (0, 18, 6)  # deepspeed/__init__.py: tp_model_init only records its arguments from there on


def split(model: Any, config: dict[str, Any], degree: int) -> bool:
    """Split a model over the tensor-parallel ranks where `deepspeed.initialize` would not; whether it did."""
    import deepspeed
    import torch

    if degree == 1 or tuple(int(part) for part in deepspeed.__version__.split(".")[:3]) >= _IN_INITIALIZE_SINCE:
        return False
    types = {"fp16": torch.float16, "bf16": torch.bfloat16}
    on = [dtype for name, dtype in types.items() if (config.get(name) or {}).get("enabled") is True]
    deepspeed.tp_model_init(model, tp_size=degree, dtype=on[0] if on else torch.float32)
    return True
