"""Attention that keeps what the GPU's kernels keep, and computes nothing."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from dsgen.engine.simulate.devices import streams
from dsgen.engine.simulate.programs import PYTHON
from dsgen.engine.simulate.works import NAMES

__all__ = ["FLASH", "GROUPED", "MASKED", "SDPA", "implementation", "register", "word"]

FLASH = "dsgen_fused"  # transformers looks for a package where a name holds "flash"
SDPA, MASKED, GROUPED = "dsgen_sdpa", "dsgen_masked", "dsgen_grouped"
EAGER = "eager"

# Classes of transformers 5 that do not know its attention interface keep a table of their own.
_TABLES = {
    "falcon": ("FALCON_ATTENTION_CLASSES", "FalconFlashAttention2"),
    "gptj": ("GPTJ_ATTENTION_CLASSES", "GPTJFlashAttention2"),
}


class _FlashAttention(torch.autograd.Function):  # type: ignore[misc]
    """FlashAttention 2: forward keeps query, key, value, output and the log-sum-exp; backward makes three gradients.

    Source: flash_attn/flash_attn_interface.py, FlashAttnFunc: save_for_backward(q, k, v, out_padded, softmax_lse,
    rng_state); csrc/flash_attn/flash_api.cpp: softmax_lse is fp32 (batch, heads, tokens); backward allocates
    softmax_d fp32 (batch, heads, tokens rounded to 128) and dq_accum fp32 (batch, tokens rounded to 128, heads, head
    size rounded to 32), and for grouped queries expanded dk and dv that it sums afterwards.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Any, key: Any, value: Any, causal: bool = True, window: int = 0, bias: Any = None
    ) -> Any:
        out = query.new_empty((*query.shape[:-1], value.shape[-1]))
        batch, tokens, heads, _ = query.shape
        lse = query.new_empty((batch, heads, tokens), dtype=torch.float32)
        ctx.save_for_backward(query, key, value, out, lse, bias)
        ctx.sees = (causal, window)
        _note("forward", query, key, causal, window)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        query, key, value, *_ = ctx.saved_tensors
        batch, tokens, heads, size = query.shape
        padded = -(-tokens // 128) * 128
        products = [query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)]
        work = [
            query.new_empty((batch, heads, padded), dtype=torch.float32),
            query.new_empty((batch, padded, heads, -(-size // 32) * 32), dtype=torch.float32),
        ]
        if key.shape[2] != heads:
            work += [key.new_empty((batch, key.shape[1], heads, size)) for _ in range(2)]
        del work
        _note("backward", query, key, *ctx.sees)
        return *products, None, None, None


def _note(direction: str, query: Any, key: Any, causal: bool, window: int) -> None:
    """Write the kernel to the program, where there is one."""
    if streams.program is None:
        return
    batch, tokens, heads, size = query.shape
    keys, key_heads = key.shape[1:3]
    # Checkpointing enables gradients again where it recomputes, in backward.
    again = torch._C._current_graph_task_id() != -1 and direction == "forward"
    shape = (batch, heads, key_heads, tokens, keys, size, causal, window, NAMES.get(query.dtype, "fp32"))
    streams.program.add("attention", streams.current.number, PYTHON, again, direction, *shape)


def _flash(module: Any, query: Any, key: Any, value: Any, attention_mask: Any = None, **more: Any) -> tuple[Any, None]:
    """The layout of transformers' flash_attention_forward: (batch, tokens, heads, head size), keys not repeated."""
    if more.get("position_bias") is not None:
        raise ValueError("a fused attention with learned position biases is not simulated; ask for eager or math")
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    wanted = next((m for m in module.modules() if isinstance(m, torch.nn.Linear)), None)
    if query.dtype == torch.float32 and wanted is not None and wanted.weight.dtype != torch.float32:
        target = wanted.weight.dtype if wanted.weight.dtype.is_floating_point else module.config.dtype  # 4-bit weights
        query, key, value = (tensor.to(target) for tensor in (query, key, value))
    # The kernel asks for a contiguous last dimension only, so a transposed view is taken as it is.
    size, narrow = query.shape[-1], value.shape[-1]
    causal = more.get("is_causal")
    sees = (bool(getattr(module, "is_causal", True) if causal is None else causal), more.get("sliding_window") or 0)
    if narrow == size:
        return _FlashAttention.apply(query, key, value, *sees), None
    # Latent attention: one head size is all the kernel knows, so the models of DeepSeek pad values and cut the output.
    padded = torch.nn.functional.pad(value, (0, size - narrow))
    return _FlashAttention.apply(query, key, padded, *sees)[..., :narrow], None


def _with_mask(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **more: Any) -> tuple[Any, None]:
    """torch's fused kernel beside a mask: a key and a value for every query head, and the mask as numbers to add.

    Source: transformers 5.23, integrations/sdpa_attention.py; torch 2.13, native/transformers/attention.cpp,
    convert_boolean_attn_mask, whose result the kernel saves.
    """
    from transformers.integrations.sdpa_attention import repeat_kv

    groups = getattr(module, "num_key_value_groups", 1)
    key, value = (repeat_kv(one, groups) for one in (key, value))
    nothing = torch.scalar_tensor(0.0, dtype=query.dtype, device=query.device)
    bias = torch.where(attention_mask.logical_not(), float("-inf"), nothing)
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    return _FlashAttention.apply(query, key, value, False, more.get("sliding_window") or 0, bias), None


def _as_sdpa(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **more: Any) -> tuple[Any, None]:
    """torch's fused kernels, as there is a mask or none."""
    attend = _flash if attention_mask is None else _with_mask
    return attend(module, query, key, value, attention_mask, **more)


def _as_grouped_sdpa(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **more: Any
) -> tuple[Any, None]:
    """torch's sdpa where no fused kernel takes grouped queries: where there is no mask transformers repeats no keys."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward, use_gqa_in_sdpa

    grouped = getattr(module, "num_key_value_groups", 1) > 1 and use_gqa_in_sdpa(attention_mask, key, value)
    attend = sdpa_attention_forward if grouped else _as_sdpa
    return attend(module, query, key, value, attention_mask, **more)


def _mask_of_window(kv_length: int, local_size: int | None = None, **more: Any) -> Any:
    """transformers' own, of whole sequences without padding: one of a window alone, from its length on. Nobody can look
    at the positions here to see that no sequences share a row."""
    from transformers.masking_utils import sdpa_mask, sliding_window_causal_mask_function

    if local_size is None or kv_length < local_size:
        return None
    more |= {"attention_mask": None, "mask_function": sliding_window_causal_mask_function(local_size)}
    return sdpa_mask(kv_length=kv_length, local_size=local_size, **more)


def _mask(batch_size: int, q_length: int, kv_length: int, device: Any = "cpu", **more: Any) -> Any:
    """transformers' own, of sequences with padding; nobody can look at the numbers here to see that there is none."""
    from transformers.masking_utils import sdpa_mask

    seen = torch.ones((batch_size, kv_length), dtype=torch.bool, device=device)
    more |= {"attention_mask": seen, "allow_is_causal_skip": False}
    return sdpa_mask(batch_size, q_length, kv_length, device=device, **more)


def _of_the_class(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Any:
    """The function that a class with a table of its own calls; tokens already come before heads."""
    return _FlashAttention.apply(query, key, value)


def register() -> None:
    """Tell transformers of the functions; the first asks for no mask, as flash attention does."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(FLASH, _flash)
    AttentionMaskInterface.register(FLASH, lambda *_, **__: None)
    AttentionInterface.register(SDPA, _as_sdpa)
    AttentionMaskInterface.register(SDPA, _mask_of_window)
    AttentionInterface.register(GROUPED, _as_grouped_sdpa)
    AttentionMaskInterface.register(GROUPED, _mask_of_window)
    AttentionInterface.register(MASKED, _with_mask)
    AttentionMaskInterface.register(MASKED, _mask)


def word(name: str) -> str:
    """What ran: "fused" (with a mask), "math" or "eager", from transformers' name."""
    return {FLASH: "fused", SDPA: "fused", MASKED: "fused, with a mask", GROUPED: "math", "sdpa": "math"}.get(
        name, name
    )


def implementation(name: str, kind: Any) -> str:
    """transformers' name of an attention, as far as a model's class has it.

    Args:
        name: "flash", "sdpa" (its CUDA kernels), "masked" (those beside a mask of padding), "grouped" (those that take
            no grouped queries), "math" (sdpa without a fused kernel) or "eager".
        kind: The class of the model. One that has no such attention runs the eager one, as transformers does where
            nothing is asked.
    """
    fused = name in ("flash", "sdpa", "masked", "grouped")
    if not (kind._supports_flash_attn if name == "flash" else kind._supports_sdpa) or name == EAGER:
        return EAGER
    family = kind.__module__.rpartition(".")[0].rpartition(".")[2]
    if fused and family in _TABLES:
        module: Any = importlib.import_module(kind.__module__)
        table, entry = _TABLES[family]
        getattr(module, table)[FLASH] = getattr(module, entry)
        module._flash_attention_forward = _of_the_class
        return FLASH  # nothing of it asks for a mask
    return {"flash": FLASH, "sdpa": SDPA, "masked": MASKED, "grouped": GROUPED}.get(name, "sdpa")
