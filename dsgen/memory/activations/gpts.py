"""Forward of the models with LayerNorm, GPT-2's and after it: sizes on a tape.

Source: transformers 5.23, models/{gpt2,gpt_neox,gptj,opt,bloom,falcon}/modeling_*.py. Local variables are those of the
classes: they decide how long a tensor lives. Dropout is that of the classes' default configs.
"""

from __future__ import annotations

from typing import Any

from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import FALCON, GPT2, attend, attend_alibi
from dsgen.memory.activations.llama import rotate
from dsgen.memory.activations.products import cross_entropy
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Tape, Tensor

__all__ = ["before", "bloom_block", "falcon_block", "gpt2_block", "gpt_neox_block", "gptj_block", "head", "opt_block"]

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
    query, key, value = op.split(tape, on.linear(tape, hidden, 3 * width, bias=True), width, width, width)
    if on.eager:
        query, key, value = (op.transposed(tape, one) for one in (query, key, value))
    out, weights = attend(tape, on, query, key, value, style=GPT2, drop=True)
    out = on.linear(tape, out, on.hidden, bias=True)
    out = op.dropout(tape, out, True)
    return out, weights


def _gpt2_mlp(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    states = on.linear(tape, hidden, on.ffn, bias=True)
    states = op.gelu_steps(tape, states)
    states = on.linear(tape, states, on.hidden, bias=True)
    return op.dropout(tape, states, True)


def gpt_neox_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """GPTNeoXLayer with the parallel residual of its default."""
    states = on.layer_norm(tape, hidden)
    found, weights = _gpt_neox_attention(tape, on, states)
    del states
    states = on.layer_norm(tape, hidden)
    out = _plain_mlp(tape, on, states)
    del states
    both = op.add(tape, out, found)
    hidden = op.add(tape, both, hidden)
    del both, found, weights
    return hidden


def _plain_mlp(tape: Tape, on: Setting, hidden: Tensor, *, bias: bool = True) -> Tensor:
    states = on.linear(tape, hidden, on.ffn, bias=bias)
    states = op.gelu(tape, states)
    return on.linear(tape, states, on.hidden, bias=bias)


def _gpt_neox_attention(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    width = on.heads * on.model.head_size
    fused = op.transposed(tape, on.linear(tape, hidden, 3 * width, bias=True))
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
    return on.linear(tape, out, on.hidden, bias=True), weights


def gptj_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """GPTJBlock: attention and feed-forward share a norm."""
    residual = hidden
    states = on.layer_norm(tape, hidden)
    found, weights = _gptj_attention(tape, on, states)
    out = on.linear(tape, states, on.ffn, bias=True)
    out = op.gelu_steps(tape, out)
    out = on.linear(tape, out, on.hidden, bias=True)
    both = op.add(tape, found, out)
    hidden = op.add(tape, both, residual)
    del both, found, weights, out
    return hidden


GPTJ_ROTARY = 64  # elements of a head that are rotated (rotary_dim of its config)


def _gptj_attention(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    size = on.model.head_size
    width, rotary = on.heads * size, min(GPTJ_ROTARY, size)
    query = on.linear(tape, hidden, width)
    key = on.linear(tape, hidden, width)
    value = on.linear(tape, hidden, width)
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
    out = on.linear(tape, out, on.hidden)
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
    states = on.linear(tape, states, on.ffn, bias=True)
    states = op.relu(tape, states)
    states = on.linear(tape, states, on.hidden, bias=True)
    states = op.dropout(tape, states, True)
    states = op.add(tape, residual, states)
    if after:
        states = on.layer_norm(tape, states)
    del weights
    return states


def _opt_attention(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    width = on.heads * on.model.head_size
    query = op.scaled(tape, on.linear(tape, hidden, width, bias=True))
    key = on.linear(tape, hidden, width, bias=True)
    value = on.linear(tape, hidden, width, bias=True)
    if on.eager:
        query, key, value = (op.transposed(tape, one) for one in (query, key, value))
    out, weights = attend(tape, on, query, key, value)
    return on.linear(tape, out, on.hidden, bias=True), weights


def bloom_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """BloomBlock."""
    states = on.layer_norm(tape, hidden)
    found, weights = _bloom_attention(tape, on, states, hidden)
    states = on.layer_norm(tape, found)
    out = _bloom_mlp(tape, on, states, found)
    del weights
    return out


def _bloom_mlp(tape: Tape, on: Setting, hidden: Tensor, residual: Tensor) -> Tensor:
    states = on.linear(tape, hidden, on.ffn, bias=True)
    states = _bloom_gelu(tape, states)
    out = on.linear(tape, states, on.hidden, bias=True)
    return op.add(tape, residual, out)


def _bloom_gelu(tape: Tape, tensor: Tensor) -> Tensor:
    """GeLUFunction: `x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))`, and by hand its backward:
    `0.5 * x * ((1 - t * t) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1 + t)` of the tanh `t`, times the gradient.
    """

    def new() -> Tensor:
        return op.like(tape, tensor)

    half = new()
    made = _bent(new)
    bent = new()
    del made
    made = new()
    del half, bent
    saved = tape.keep(tensor)
    rows, width, item = tensor.rows, tensor.width, tensor.item

    def run(_: Any, gradient: Tensor) -> list[Any]:
        def make() -> Tensor:
            return tape.born(rows, width, item)

        curve = _bent(make)
        left = make()  # 0.5 * x
        square = make()
        slope = make()
        del square
        scaled = make()
        cubic = make()
        del scaled
        raised = make()
        del cubic
        product = make()
        del slope, raised
        whole = make()
        del left, product
        other = make()
        half_other = make()
        del other
        found = make()
        del whole, half_other
        result = [make()]
        del curve, found
        return result

    return tape.node(made, (tensor.edge,), saved, run)  # type: ignore[no-any-return]


def _bent(new: Any) -> Tensor:
    """`tanh(0.79788456 * x * (1 + 0.044715 * x * x))`."""
    left = new()
    scaled = new()
    square = new()
    del scaled
    raised = new()
    del square
    product = new()
    del left, raised
    made = new()
    del product
    return made  # type: ignore[no-any-return]


def _bloom_attention(tape: Tape, on: Setting, hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor | None]:
    width = on.heads * on.model.head_size
    fused = on.linear(tape, hidden, 3 * width, bias=True)
    query, key, value = (op.transposed(tape, op.part(tape, fused, width)) for _ in range(3))
    out, weights = attend_alibi(tape, on, query, key, value)
    del fused
    out = on.linear(tape, out, on.hidden, bias=True)
    return op.add(tape, residual, out), weights


def falcon_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """FalconDecoderLayer, with one norm (falcon-7b) or two (40b, 180b)."""
    residual = hidden
    attended = on.layer_norm(tape, hidden)
    fed = on.layer_norm(tape, hidden) if on.model.kv_heads > 1 else attended
    found, weights = _falcon_attention(tape, on, attended)
    out = _plain_mlp(tape, on, fed, bias=False)
    out = op.in_place(tape, out, found)
    hidden = op.add(tape, residual, out)
    del out, found, weights, attended, fed
    return hidden


def _falcon_attention(tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    model = on.model
    size, several = model.head_size, model.kv_heads > 1
    fused = on.linear(tape, hidden, (on.heads + 2 * on.kv_heads) * size)
    query = op.part(tape, fused, on.heads * size)
    key = op.index(tape, fused, fused.rows, on.kv_heads * size)
    value = op.index(tape, fused, fused.rows, on.kv_heads * size)
    kv_heads = on.kv_heads
    if several:
        kv_heads = on.heads
        query, key, value = op.clone(tape, query), _spread(tape, on, key), _spread(tape, on, value)
    if on.eager:
        query, key, value = (op.transposed(tape, one) for one in (query, key, value))
    table = on.table(size)
    rotated, rotated_key = rotate(tape, query, table, table), rotate(tape, key, table, table)
    query, key = rotated, rotated_key
    del rotated, rotated_key
    out, weights = attend(tape, on, query, key, value, kv_heads=kv_heads, style=FALCON)
    del fused
    return on.linear(tape, out, on.hidden), weights


def _spread(tape: Tape, on: Setting, tensor: Tensor) -> Tensor:
    """Keys or values written out for every query head; backward sums them."""
    rows, width, item = tensor.rows, tensor.width, tensor.item
    made = tape.born(rows, on.heads * on.model.head_size, item)
    return tape.node(made, (tensor.edge,), None, lambda *_: [tape.born(rows, width, item)])  # type: ignore[no-any-return]


def before(tape: Tape, on: Setting) -> Before:
    """Embeddings, masks and rope tables, as `llama.before`."""
    model = on.model
    kind, width = model.architecture, model.embedding_size or model.hidden_size
    embedded = op.embedding(tape, on.rows, on.weight(model.vocab_size * width), width)
    ids = tape.born((on.seq_len, 0), 1, 8)
    masks = [tape.born(on.rows, on.seq_len, on.item)] if on.eager else []
    if kind in ("gpt2", "opt"):
        rows = (on.seq_len, 0) if kind == "gpt2" else on.rows
        positions = op.embedding(tape, rows, on.weight(model.max_positions * on.hidden), on.hidden)
        if width != on.hidden:
            embedded = on.linear(tape, embedded, on.hidden)
        hidden = op.add(tape, embedded, positions)
        if kind == "gpt2":
            hidden = op.dropout(tape, hidden, True)
        return hidden, [], [ids, *masks], [embedded, positions]
    if kind == "bloom":
        hidden = on.layer_norm(tape, embedded)
        return hidden, [], [ids, *masks, tape.born((0, on.heads), on.seq_len, on.item)], [embedded]
    if kind == "gptj":
        return embedded, [], [ids, *masks], [embedded]
    size = model.head_size // (ROTARY_SHARE if kind == "gpt_neox" else 1)
    tables = [tape.born((on.seq_len, 0), size, on.item) for _ in range(2)]
    return embedded, tables, [ids, *masks], [embedded]


def head(tape: Tape, on: Setting, hidden: list[Tensor]) -> Tensor:
    """Final norm, output head and loss."""
    states = _final(tape, on, hidden)
    logits = on.linear(tape, states, on.model.vocab_size, bias=on.model.architecture == "gptj")
    del states
    wide = op.cast(tape, logits, op.FP32)
    return cross_entropy(tape, wide)


def _final(tape: Tape, on: Setting, hidden: list[Tensor]) -> Tensor:
    states = hidden.pop()
    if not on.model.post_norm:
        states = on.layer_norm(tape, states)
    width = on.model.embedding_size or on.hidden
    return states if width == on.hidden else on.linear(tape, states, width)
