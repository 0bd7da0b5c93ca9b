"""Forward of Llama and of the models written after it, as modeling_llama.py has it: sizes on a tape."""

from __future__ import annotations

from dsgen.memory.activations import operators as op
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Tape, Tensor

__all__ = ["before", "block", "head"]


def norm(tape: Tape, on: Setting, hidden: Tensor, width: int) -> Tensor:
    """LlamaRMSNorm: in fp32, with the weight's product in the model's type."""
    item = hidden.item
    states = op.cast(tape, hidden, op.FP32)
    squares = op.power(tape, states)
    variance = op.mean(tape, squares)
    del squares
    scale = op.rsqrt(tape, variance)
    states = op.mul(tape, states, scale)
    del scale
    states_cast = op.cast(tape, states, item)
    return op.mul(tape, on.weight(width), states_cast)


def rotate(tape: Tape, tensor: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """`(q * cos) + (rotate_half(q) * sin)`."""
    one = op.mul(tape, tensor, cosine)
    first, second = op.part(tape, tensor, tensor.width // 2), op.part(tape, tensor, tensor.width // 2)
    turned = op.neg(tape, second)
    half = op.cat(tape, turned, first)
    del turned, first, second
    other = op.mul(tape, half, sine)
    del half
    return op.add(tape, one, other)


def attention(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """LlamaAttention."""
    model = on.model
    heads, kv_heads, size = model.attention_heads // on.tp, max(1, model.kv_heads // on.tp), model.head_size
    query = op.transposed(tape, linear(tape, on, hidden, heads * size))
    key = op.transposed(tape, linear(tape, on, hidden, kv_heads * size))
    value = linear(tape, on, hidden, kv_heads * size)
    table = Tensor((on.seq_len, 0), size, on.item, None)
    rotated = rotate(tape, query, table, table)
    rotated_key = rotate(tape, key, table, table)
    query, key = rotated, rotated_key
    del rotated, rotated_key
    out = op.attend(tape, query, key, value, heads, kv_heads)
    return linear(tape, on, out, model.hidden_size)


def linear(tape: Tape, on: Setting, hidden: Tensor, out: int, bias: bool = False) -> Tensor:
    """nn.Linear."""
    return op.linear(tape, hidden, on.weight(hidden.width * out), out, on.weight(out) if bias else None)


def mlp(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """LlamaMLP: down(act(gate(x)) * up(x))."""
    width = on.model.ffn_size // on.tp
    gate = op.silu(tape, linear(tape, on, hidden, width))
    up = linear(tape, on, hidden, width)
    product = op.mul(tape, gate, up)
    del gate, up
    return linear(tape, on, product, on.model.hidden_size)


def block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """LlamaDecoderLayer."""
    residual = hidden
    states = norm(tape, on, hidden, on.model.hidden_size)
    found = attention(tape, on, states)
    hidden = op.add(tape, residual, found)
    del found, states
    residual = hidden
    states = norm(tape, on, hidden, on.model.hidden_size)
    found = mlp(tape, on, states)
    return op.add(tape, residual, found)


def before(tape: Tape, on: Setting) -> list[Tensor]:
    """Token ids, embedding and rope tables; the hidden states come first."""
    hidden = op.embedding(tape, on.rows, on.weight(on.model.vocab_size * on.model.hidden_size), on.model.hidden_size)
    tables = [tape.born((on.seq_len, 0), on.model.head_size, on.item) for _ in range(2)]
    return [hidden, *tables]


def head(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """Final norm, output head and loss."""
    states = norm(tape, on, hidden, on.model.hidden_size)
    logits = linear(tape, on, states, on.model.vocab_size)
    del states
    wide = op.cast(tape, logits, op.FP32)
    return op.cross_entropy(tape, wide)
