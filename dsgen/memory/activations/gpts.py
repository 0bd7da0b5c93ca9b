"""Forward of the models with LayerNorm, GPT-2's and after it: sizes on a tape.

Source: transformers 5.23, models/{gpt2,gpt_neox,gptj,opt,bloom}/modeling_*.py. Local variables are those of the
classes: they decide how long a tensor lives. Dropout is that of the classes' default configs.
"""

from __future__ import annotations

from dsgen.families import gptj, phi
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import GPT2, attend, attend_alibi
from dsgen.memory.activations.gelus import bloom_gelu, gelu_steps
from dsgen.memory.activations.llama import rotate
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Tape, Tensor

__all__ = ["before", "bloom_block", "gpt2_block", "gpt_neox_block", "gptj_block", "head", "opt_block", "plain_mlp"]

BIASED_HEADS = frozenset({"gptj", "phi"})
ROTARY_SHARE = 4  # a quarter of a head of GPT-NeoX is rotated (rotary_pct of its config: 0.25)

Before = tuple[Tensor, list[Tensor], list[Tensor], list[Tensor]]


def gpt2_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """GPT2Block."""
    residual = hidden
    states = on.layer_norm(tape, hidden)
    found, weights = _gpt2_attention(tape, on, states)
    hidden = op.add(tape, found, residual)
    residual = hidden
    states = on.layer_norm(tape, hidden)
    out = _gpt2_mlp(tape, on, states)
    hidden = op.add(tape, residual, out)
    del found, weights
    return hidden


def _gpt2_attention(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    width = on.heads * on.model.head_size
    query, key, value = op.split(tape, on.linear(tape, hidden, 3 * width, "c_attn", bias=True), width, width, width)
    if on.eager:
        query, key, value = (op.transposed(tape, one) for one in (query, key, value))
    out, weights = attend(tape, on, query, key, value, style=GPT2, drop=True)
    out = on.linear(tape, out, on.hidden, "c_proj", bias=True)
    out = op.dropout(tape, out, True)
    return out, weights


def _gpt2_mlp(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    states = on.linear(tape, hidden, on.ffn, "c_fc", bias=True)
    states = gelu_steps(tape, states)
    states = on.linear(tape, states, on.hidden, "c_proj", bias=True)
    return op.dropout(tape, states, True)


def gpt_neox_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """GPTNeoXLayer with the parallel residual of its default."""
    states = on.layer_norm(tape, hidden)
    found, weights = _gpt_neox_attention(tape, on, states)
    del states
    states = on.layer_norm(tape, hidden)
    out = plain_mlp(tape, on, states)
    del states
    both = op.add(tape, out, found)
    hidden = op.add(tape, both, hidden)
    del both, found, weights
    return hidden


def plain_mlp(tape: Tape, on: Setting, hidden: Tensor, *, bias: bool = True) -> Tensor:
    """Two matrices with a GELU between them."""
    states = on.linear(tape, hidden, on.ffn, "dense_h_to_4h", bias=bias)
    states = op.gelu(tape, states)
    return on.linear(tape, states, on.hidden, "dense_4h_to_h", bias=bias)


def _gpt_neox_attention(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    width = on.heads * on.model.head_size
    fused = op.transposed(tape, on.linear(tape, hidden, 3 * width, "query_key_value", bias=True))
    query, key, value = op.split(tape, fused, width, width, width)
    table = on.table(on.model.head_size // ROTARY_SHARE)
    query_turned, query_rest = op.part(tape, query, width // ROTARY_SHARE), op.part(tape, query, width - width // 4)
    key_turned, key_rest = op.part(tape, key, width // ROTARY_SHARE), op.part(tape, key, width - width // 4)
    turned, turned_key = rotate(tape, query_turned, table, table), rotate(tape, key_turned, table, table)
    del query_turned, key_turned
    turned = op.cat(tape, turned, query_rest)
    turned_key = op.cat(tape, turned_key, key_rest)
    del query_rest, key_rest
    query, key = turned, turned_key
    del turned, turned_key
    out, weights = attend(tape, on, query, key, value, heads_first=True)
    del fused
    return on.linear(tape, out, on.hidden, "dense", bias=True), weights


def gptj_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """GPTJBlock: attention and feed-forward share a norm."""
    residual = hidden
    states = on.layer_norm(tape, hidden)
    found, weights = _gptj_attention(tape, on, states)
    out = on.linear(tape, states, on.ffn, "fc_in", bias=True)
    out = gelu_steps(tape, out)
    out = on.linear(tape, out, on.hidden, "fc_out", bias=True)
    both = op.add(tape, found, out)
    hidden = op.add(tape, both, residual)
    del both, found, weights, out
    return hidden


def _gptj_attention(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    size = on.model.head_size
    width, rotary = on.heads * size, min(gptj.ROTARY, size)
    query = on.linear(tape, hidden, width, "q_proj")
    key = on.linear(tape, hidden, width, "k_proj")
    value = on.linear(tape, hidden, width, "v_proj")
    if on.eager:
        value = op.transposed(tape, value)
    positions = tape.born((on.seq_len, 0), rotary, on.item)
    key_turned, key_rest = op.part(tape, key, on.heads * rotary), op.part(tape, key, width - on.heads * rotary)
    query_turned, query_rest = op.part(tape, query, on.heads * rotary), op.part(tape, query, width - on.heads * rotary)
    key_turned = _every_two(tape, on, key_turned, rotary)
    query_turned = _every_two(tape, on, query_turned, rotary)
    key = op.cat(tape, key_turned, key_rest)
    query = op.cat(tape, query_turned, query_rest)
    del query_rest, key_rest
    if not on.eager:
        out, _ = attend(tape, on, query, key, value)
        weights: Tensor | None = out
    else:
        query, key = (
            op.transposed(tape, op.cast(tape, query, op.FP32)),
            op.transposed(tape, op.cast(tape, key, op.FP32)),
        )
        out, weights = attend(tape, on, query, key, value, style=GPT2)
    out = on.linear(tape, out, on.hidden, "out_proj")
    del positions, query_turned, key_turned
    return out, weights


def _every_two(tape: Tape, on: Setting, tensor: Tensor, rotary: int) -> Tensor:
    """GPT-J's apply_rotary_pos_emb: neighbours are a pair; the tables are made for every tensor."""
    sine, cosine = (tape.born((on.seq_len, 0), rotary, on.item) for _ in range(2))
    one = op.mul(tape, tensor, cosine)
    half = _pairs(tape, tensor)
    other = op.mul(tape, half, sine)
    del half
    return op.add(tape, one, other)


def _pairs(tape: Tape, tensor: Tensor) -> Tensor:
    first, second = op.part(tape, tensor, tensor.width // 2), op.part(tape, tensor, tensor.width // 2)
    turned = op.neg(tape, second)
    return op.cat(tape, turned, first)


def opt_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """OPTDecoderLayer; opt-350m's norms follow what they belong to."""
    after = on.model.post_norm
    residual = hidden
    states = hidden if after else on.layer_norm(tape, hidden)
    found, weights = _opt_attention(tape, on, states)
    states = op.dropout(tape, found, True)
    del found
    states = op.add(tape, residual, states)
    if after:
        states = on.layer_norm(tape, states)
    residual = states
    if not after:
        states = on.layer_norm(tape, states)
    states = on.linear(tape, states, on.ffn, "fc1", bias=True)
    states = op.relu(tape, states)
    states = on.linear(tape, states, on.hidden, "fc2", bias=True)
    states = op.dropout(tape, states, True)
    states = op.add(tape, residual, states)
    if after:
        states = on.layer_norm(tape, states)
    del weights
    return states


def _opt_attention(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    width = on.heads * on.model.head_size
    query = op.scaled(tape, on.linear(tape, hidden, width, "q_proj", bias=True))
    key = on.linear(tape, hidden, width, "k_proj", bias=True)
    value = on.linear(tape, hidden, width, "v_proj", bias=True)
    if on.eager:
        query, key, value = (op.transposed(tape, one) for one in (query, key, value))
    out, weights = attend(tape, on, query, key, value)
    return on.linear(tape, out, on.hidden, "out_proj", bias=True), weights


def bloom_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """BloomBlock."""
    states = on.layer_norm(tape, hidden)
    found, weights = _bloom_attention(tape, on, states, hidden)
    states = on.layer_norm(tape, found)
    out = _bloom_mlp(tape, on, states, found)
    del weights
    return out


def _bloom_mlp(tape: Tape, on: Setting, hidden: Tensor, residual: Tensor) -> Tensor:
    states = on.linear(tape, hidden, on.ffn, "dense_h_to_4h", bias=True)
    states = bloom_gelu(tape, states)
    out = on.linear(tape, states, on.hidden, "dense_4h_to_h", bias=True)
    return op.add(tape, residual, out)


def _bloom_attention(tape: Tape, on: Setting, hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor | None]:
    width = on.heads * on.model.head_size
    fused = on.linear(tape, hidden, 3 * width, "query_key_value", bias=True)
    query, key, value = (op.transposed(tape, op.part(tape, fused, width)) for _ in range(3))
    out, weights = attend_alibi(tape, on, query, key, value)
    del fused
    out = on.linear(tape, out, on.hidden, "dense", bias=True)
    return op.add(tape, residual, out), weights


def before(tape: Tape, on: Setting) -> Before:
    """Embeddings, masks and rope tables, as `llama.before`."""
    model = on.model
    kind, width = model.architecture, model.embedding_size or model.hidden_size
    embedded = op.embedding(tape, on.rows, on.outer(model.vocab_size * width), width)
    on.ask(tape, embedded)
    ids = tape.born((on.seq_len, 0), 1, 8)
    masks = [tape.born(on.rows, on.seq_len, on.item)] if on.eager else []
    if kind in ("gpt2", "gpt_bigcode", "opt"):
        rows = on.rows if kind == "opt" else (on.seq_len, 0)
        positions = op.embedding(tape, rows, on.weight(model.max_positions * on.hidden), on.hidden)
        if width != on.hidden:
            embedded = on.linear(tape, embedded, on.hidden)
        hidden = op.add(tape, embedded, positions)
        hidden = op.dropout(tape, hidden, kind == "gpt2" or model.dropout)
        return hidden, [], [ids, *masks], [embedded, positions]
    if kind == "bloom":
        hidden = on.layer_norm(tape, embedded)
        return hidden, [], [ids, *masks, tape.born((0, on.heads), on.seq_len, on.item)], [embedded]
    if kind == "gptj":
        return embedded, [], [ids, *masks], [embedded]
    size = phi.ROTARY if kind == "phi" else model.head_size // (ROTARY_SHARE if kind == "gpt_neox" else 1)
    tables = [tape.born((on.seq_len, 0), size, on.item) for _ in range(2)]
    return embedded, tables, [ids, *masks], [embedded]


def head(tape: Tape, on: Setting, hidden: list[Tensor]) -> Tensor:
    """Final norm, output head and loss."""
    states = _final(tape, on, hidden)
    if on.chunked:
        return on.chunked_loss(tape, states)
    logits = on.logits(tape, states, bias=on.model.architecture in BIASED_HEADS)
    loss = on.loss(tape, logits)
    del states  # forward refers to them while the loss is made
    return loss


def _final(tape: Tape, on: Setting, hidden: list[Tensor]) -> Tensor:
    states = hidden.pop()
    if not on.model.post_norm:
        states = on.layer_norm(tape, states)
    width = on.model.embedding_size or on.hidden
    return states if width == on.hidden else on.linear(tape, states, width)
