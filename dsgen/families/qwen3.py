"""Qwen3: Qwen2 without its biases, with a norm over every head of queries and keys; and its mixture of experts."""

from __future__ import annotations

import functools

from dsgen.families import peft, rows
from dsgen.families.config_keys import SPLIT, keys
from dsgen.families.family import UNKNOWN_STYLE, AutoTP, Facts, Family
from dsgen.families.orders import FIRST, GATED, NORMED, OUT, SECOND, Order
from dsgen.families.parts import llama
from dsgen.families.parts.mixtures import routed
from dsgen.families.qwen2 import late_window, leading, read_window, written_leading, written_window
from dsgen.families.reading import Reader
from dsgen.families.tape import liger

__all__ = ["QWEN3", "QWEN3_MOE"]

_ATTENTION_ROWS = rows.attention(bias="attention_bias", qk_norm=True)
_LEADING = f"{FIRST} {NORMED} {OUT} {SECOND}"
_DENSE = (*_ATTENTION_ROWS, *rows.gated_mlp(), *rows.TWO_NORMS)


def _read_mixture(reader: Reader, facts: Facts) -> dict[str, object]:
    return read_window(reader, facts) | leading(reader, facts)


def _write_mixture(facts: Facts) -> dict[str, object]:
    return written_window(facts) | written_leading(facts)


_attention = functools.partial(llama.attention, head_norms=True)


QWEN3 = Family(
    model_type="qwen3",
    huggingface="Qwen3ForCausalLM",
    keys=keys(32, 4096, 32, 32, 128, 22016, 151936, 32768, tied=False, attention_bias=False, sliding_window=4096),
    read=read_window,
    write=written_window,
    windowed=late_window,
    layout=rows.llama_frame(dense=_DENSE),
    forward=llama.llama_forward(attending=_attention, liger_norm=liger.norm),
    order=Order(dense=f"{_LEADING} {GATED}"),
    autotp=AutoTP(head=True, tied_head=True),
)
QWEN3_MOE = Family(
    model_type="qwen3_moe",
    huggingface="Qwen3MoeForCausalLM",
    keys=keys(
        *(24, 2048, 32, 4, SPLIT, 6144, 151936, 32768),
        tied=False,
        attention_bias=False,
        sliding_window=4096,
        experts=128,
        experts_per_token=8,
        expert_ffn_size=768,
    ),
    pinned={"decoder_sparse_step": 1},
    read=_read_mixture,
    write=_write_mixture,
    layout=rows.llama_frame(dense=_DENSE, sparse=(*_ATTENTION_ROWS, *rows.EXPERTS, *rows.ROUTER, *rows.TWO_NORMS)),
    forward=llama.llama_forward(attending=_attention, mixture=routed()),
    order=Order(dense=f"{_LEADING} {GATED}", sparse=f"{_LEADING} mlp"),
    autotp=UNKNOWN_STYLE,
    leaf=True,
    leaf_class="transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock",
    parts=peft.PARTS,
)
