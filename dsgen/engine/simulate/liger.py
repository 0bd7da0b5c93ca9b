"""A stand-in of Liger's SwiGLU and GeGLU, norms and RoPE: the same tensors are made, kept and given on, none computed.

Source: the wheels of liger-kernel 0.4.1 to 0.8.5, liger_kernel/ops/swiglu.py (LigerSiLUMulFunction), geglu.py
(LigerGELUMulFunction), rms_norm.py (rms_norm_forward, rms_norm_backward), rope.py (rope_forward, rope_backward), and
transformers/monkey_patch.py (apply_liger_kernel_to_llama and its like with a model that is there, as the Trainer calls
them). The functions of ten of these wheels, run on the CPU with kernels that do nothing, make and keep the same
tensors. What they take:

- what is multiplied keeps gate and up, and backward writes their gradients over them;
- a norm keeps its input and an fp32 number for every row; backward writes over the gradient that it is given, but in
  Gemma 2 and 3, and sums the weight's in fp32, a row for each multiprocessor, before 0.8.5 of a frozen weight too;
- RoPE turns queries and keys where they are, and their gradients too, copied first where they lie in another order;
- norms over the heads of Qwen3 are Liger's from 0.8.5 on; those of Gemma 3 are in every release that knows it (0.5.7
  and later), and get heads that lie behind a transposition, of which a norm and RoPE make copies.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from dsgen.engine.simulate.devices import streams
from dsgen.engine.simulate.requests import LIGER_KERNELS

__all__ = ["PROCESSORS", "replace"]

PROCESSORS = 132  # multiprocessors of an H100 SXM (NVIDIA H100 white paper)
_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
_HEAD_NORMS = ("q_norm", "k_norm")
_EVERY_NORM = ("gemma3_text",)  # model types whose norms over heads are Liger's in every release
_APART = ("gemma2", *_EVERY_NORM)  # model types whose norms leave the gradient that they are given
_KNOWN = ("gemma", "llama", "mistral", "qwen2", "qwen3", *_APART)


class _Gated(torch.autograd.Function):  # type: ignore[misc]
    """act(gate) * up."""

    @staticmethod
    def forward(ctx: Any, gate: Any, up: Any) -> Any:
        made = torch.empty_like(gate)
        _launched("swiglu", "stream", gate, up, made)
        ctx.save_for_backward(gate, up)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        gate, up = ctx.saved_tensors
        _launched("swiglu_backward", "stream", gradient, gate, up, gate, up)
        return gate.view(gate.shape), up.view(up.shape)


class _Normed(torch.autograd.Function):  # type: ignore[misc]
    """An RMS norm."""

    @staticmethod
    def forward(ctx: Any, states: Any, weight: Any, in_place: bool, always: bool) -> Any:
        rows = states.contiguous().view(-1, states.shape[-1])
        made = torch.empty_like(rows)
        roots = torch.empty(rows.shape[0], dtype=torch.float32, device=rows.device)
        _launched("rms_norm", "norm", rows, weight, made, roots)
        ctx.save_for_backward(rows, weight, roots)
        ctx.in_place, ctx.always = in_place, always
        return made.view(states.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        rows, weight, roots = ctx.saved_tensors
        gradient = gradient.contiguous()
        sums = of_weight = None
        if ctx.always or ctx.needs_input_grad[1]:
            sums = torch.empty(PROCESSORS, rows.shape[-1], dtype=torch.float32, device=rows.device)
        made = gradient if ctx.in_place else torch.zeros_like(gradient)
        _launched("rms_norm_backward", "norm", gradient, rows, weight, roots, made, *(() if sums is None else (sums,)))
        if sums is not None:
            of_weight = sums.sum(dim=0).to(weight.dtype)
        return made.view(gradient.shape), of_weight, None, None


class _Rotated(torch.autograd.Function):  # type: ignore[misc]
    """Queries and keys of (sequence, head, token, element), turned where they are."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, cosine: Any, sine: Any) -> Any:
        query, key = (one.transpose(1, 2).contiguous() for one in (query, key))
        _launched("rope", "stream", query, key, cosine, sine, query, key)
        ctx.save_for_backward(cosine, sine)
        return query.transpose(1, 2), key.transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        cosine, sine = ctx.saved_tensors
        query, key = (one.transpose(1, 2).contiguous() for one in gradients)
        _launched("rope_backward", "stream", query, key, cosine, sine, query, key)
        return query.transpose(1, 2), key.transpose(1, 2), None, None


def _launched(name: str, sort: str, *tensors: Any) -> None:
    """Write a kernel down that reads or writes these tensors."""
    if streams.program is not None:
        moved = sum(one.numel() * one.element_size() for one in tensors)
        streams.program.kernel(streams.current.number, name, sort, moved)


def replace(model: Any, release: str) -> None:
    """Let a Hugging Face model run these, as `_apply_liger_kernel_to_instance` of a release of LIGER_KERNELS does.

    Raises:
        ValueError: Of this model type it is not known what is put in its place.
    """
    kind = model.config.model_type
    if kind not in _KNOWN:
        raise ValueError(f"liger_kernels is {release!r}, which is not known for model_type {kind!r}: it must be empty")
    always, in_place = release != LIGER_KERNELS[-1], kind not in _APART

    def normed(self: Any, hidden_states: Any) -> Any:
        return _Normed.apply(hidden_states, self.weight, in_place, always)

    def fed(self: Any, x: Any) -> Any:
        return self.down_proj(_Gated.apply(self.gate_proj(x), self.up_proj(x)))

    def rotated(q: Any, k: Any, cos: Any, sin: Any, *_: Any, **__: Any) -> Any:
        return _Rotated.apply(q, k, cos, sin)

    _bind(model.model.norm, normed)
    for layer in model.model.layers:
        _bind(layer.mlp, fed)
        for name in _NORMS:
            if hasattr(layer, name):
                _bind(getattr(layer, name), normed)
        for name in () if always and kind not in _EVERY_NORM else _HEAD_NORMS:
            if hasattr(layer.self_attn, name):
                _bind(getattr(layer.self_attn, name), normed)
        _rotate(layer.self_attn, rotated)


def _bind(module: Any, forward: Any) -> None:
    """Give a module another forward."""
    module.forward = types.MethodType(forward, module)


def _rotate(attention: Any, rotated: Any) -> None:
    """Give an attention another function for its positions: Liger puts it into the module, here it is this model's."""
    own = type(attention).forward
    seen = {**own.__globals__, "apply_rotary_pos_emb": rotated}
    forward = types.FunctionType(own.__code__, seen, own.__name__, own.__defaults__, own.__closure__)
    forward.__kwdefaults__ = own.__kwdefaults__
    _bind(attention, forward)
