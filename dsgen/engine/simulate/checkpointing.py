"""Activation checkpointing: Hugging Face's with torch's function, or its blocks with DeepSpeed's."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch

__all__ = ["DEEPSPEED", "enable", "partitioned_for_backward", "use_deepspeed"]

DEEPSPEED = "deepspeed"


def enable(model: Any, reentrant: bool) -> None:
    """Recompute every block; the output of the embedding then asks for a gradient, whatever is trained.

    Args:
        model: The Hugging Face model.
        reentrant: By torch's reentrant kind, whose forward keeps nothing and makes no graph.
    """
    model.activation_checkpointing_enable({"use_reentrant": reentrant})


def use_deepspeed(engine: Any, model: Any, config: dict[str, Any]) -> None:
    """Let `deepspeed.checkpointing.checkpoint` recompute the blocks, as the config's `activation_checkpointing` says.

    Nothing in DeepSpeed's engine does so by itself: a training program calls `configure` and gives the function to the
    model. Hugging Face's blocks hand the function their hidden states alone; the rest is bound before.

    Args:
        engine: The engine, after `deepspeed.initialize`.
        model: The Hugging Face model inside it.
        config: The DeepSpeed config.
    """
    import deepspeed

    checkpointing: Any = importlib.import_module("deepspeed.runtime.activation_checkpointing.checkpointing")
    checkpointing.get_partitioned_activations_for_backward = partitioned_for_backward
    deepspeed.checkpointing.configure(engine.mpu, deepspeed_config=config)
    model._set_gradient_checkpointing(enable=True, gradient_checkpointing_func=_checkpoint)


def partitioned_for_backward(args: Any, inputs: Any, contiguous_checkpoint: bool) -> list[Any]:
    """As DeepSpeed's get_partitioned_activations_for_backward, with shapes that backward can read.

    DeepSpeed keeps shapes in tensors, which have no values here; each carries its shape along instead.
    """
    from deepspeed.runtime.activation_checkpointing.checkpointing import is_activation_to_checkpoint

    kept = []
    for argument, part in zip(args, inputs, strict=True):
        size = None
        if torch.is_tensor(argument):
            size = torch.empty(argument.dim(), dtype=torch.long)
            size.numpy = functools.partial(tuple, argument.size())
        if is_activation_to_checkpoint(argument):
            argument.data = torch.empty([], device=argument.device).data
            argument.saved_data = part.data
        kept += [argument, size]
    return kept


def _checkpoint(function: Any, *args: Any) -> Any:
    import deepspeed

    single: list[bool] = []

    def run(*inner: Any) -> Any:
        result = function(*inner)
        single.append(isinstance(result, tuple) and len(result) == 1)
        return result

    result = deepspeed.checkpointing.checkpoint(run, *args)
    return (result,) if single[0] else result  # DeepSpeed unpacks a tuple of one
