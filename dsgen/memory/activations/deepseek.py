"""DeepseekV2Attention and DeepseekV3Attention: queries, keys and values from low ranks (MLA): sizes on a tape.

Source: transformers 5.23, models/{deepseek_v2,deepseek_v3}/modeling_*.py.
"""

from __future__ import annotations

from typing import Any

from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import attend
from dsgen.memory.activations.llama import turned_pair
from dsgen.memory.activations.norms import norm
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Names, Tape, Tensor, forward

__all__ = ["latent_attention"]


@forward
def latent_attention(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """DeepseekV2Attention and DeepseekV3Attention."""
    model = on.model
    rope = model.qk_rope_head_size
    plain, narrow = model.head_size - rope, model.v_head_size or model.head_size
    my.query = _query(tape, on, hidden)
    query_plain, my.query_turned = op.split(tape, my.query, on.heads * plain, on.heads * rope)
    width = model.kv_lora_rank + rope
    my.compressed = on.linear(tape, hidden, width, "kv_a_proj_with_mqa", bias=model.attention_bias)
    latent, my.key_turned = op.split(tape, my.compressed, model.kv_lora_rank, rope)
    my.latent = norm(tape, on, latent)
    turned = _turned_as_complex if model.architecture == "deepseek_v2" else _turned_pairs
    my.query_turned, my.key_turned = turned(tape, on, my.query_turned, my.key_turned)
    my.joined = op.cat(tape, query_plain, my.query_turned)
    my.key, my.value = _expanded(tape, on, my.latent, my.key_turned, plain, narrow)
    if on.eager:
        out, weights = attend(tape, on, my.joined, my.key, my.value, kv_heads=on.heads, heads_first=True)
    else:
        out, weights = _padded(tape, on, my.joined, my.key, my.value, narrow)
    return on.linear(tape, out, on.hidden, "o_proj", bias=model.attention_bias), weights


def _query(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    model = on.model
    width = on.heads * model.head_size
    if not model.q_lora_rank:
        return op.transposed(tape, on.linear(tape, hidden, width, "q_proj"))
    low = norm(tape, on, on.linear(tape, hidden, model.q_lora_rank, "q_a_proj", bias=model.attention_bias))
    return op.transposed(tape, on.linear(tape, low, width, "q_b_proj"))


def _turned(tape: Tape, on: Setting, tensor: Tensor) -> Tensor:
    """apply_rotary_pos_emb_interleave of one tensor: every second element is a half."""
    half = tensor.width // 2
    first, second = op.part(tape, tensor, half), op.part(tape, tensor, half)
    table = on.table(on.model.qk_rope_head_size)
    return turned_pair(tape, first, second, table, table)


def _turned_pairs(tape: Tape, on: Setting, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb_interleave."""
    turned = _turned(tape, on, query)
    return turned, _turned(tape, on, key)


@forward
def _turned_as_complex(my: Names, tape: Tape, on: Setting, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """apply_rotary_emb: pairs are complex numbers of two fp32, multiplied by a table of such."""
    table = on.table(on.model.qk_rope_head_size, op.FP32)
    my.query, my.key = op.cast(tape, query, op.FP32), op.cast(tape, key, op.FP32)
    turned = op.cast(tape, op.mul(tape, my.query, table), query.item)
    return turned, op.cast(tape, op.mul(tape, my.key, table), key.item)


def _expanded(
    tape: Tape, on: Setting, latent: Tensor, key_turned: Tensor, plain: int, narrow: int
) -> tuple[Tensor, Tensor]:
    """expand_kv: keys are written into an empty tensor part by part, which backward undoes part by part."""
    rows, item, rope = latent.rows, latent.item, key_turned.width
    fused = op.transposed(tape, on.linear(tape, latent, on.heads * (plain + narrow), "kv_b_proj"))
    key_plain, value = op.split(tape, fused, on.heads * plain, on.heads * narrow)
    spread = Tensor(rows, on.heads * rope, item, key_turned.storage)
    tape.node(spread, (key_turned,), None, lambda _: [tape.like(key_turned)])
    key = tape.make(rows, on.heads * (plain + rope), item)
    first, second = key_plain.width, spread.width

    def undo_first(_: Tensor) -> list[Any]:
        whole, found = tape.make(rows, first + second, item), tape.make(rows, first, item)
        tape.hold(whole)
        return [found]

    def undo_second(_: Tensor) -> list[Any]:
        found = [tape.make(rows, first + second, item), tape.make(rows, second, item)]
        tape.make(rows, second, item)
        return found

    tape.node(key, (key_plain,), None, undo_first)
    tape.node(key, (key, spread), None, undo_second)
    return key, value


@forward
def _padded(
    my: Names, tape: Tape, on: Setting, query: Tensor, key: Tensor, value: Tensor, narrow: int
) -> tuple[Tensor, Tensor | None]:
    """A fused kernel knows one head size: values are padded, and the output is cut."""
    size = on.model.head_size
    if narrow == size:
        return attend(tape, on, query, key, value, kv_heads=on.heads, heads_first=True)
    my.wide = tape.make(value.rows, on.heads * size, value.item)
    tape.node(my.wide, (value,), None, lambda _: [tape.like(value)])
    out, weights = attend(tape, on, query, key, my.wide, kv_heads=on.heads)
    return op.clone(tape, op.part(tape, out, value.width)), weights
