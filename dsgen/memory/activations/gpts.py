"""Forward of the models with LayerNorm, GPT-2's and after it: sizes on a tape.

Source: transformers 5.23, models/{gpt2,gpt_neox,gptj,opt,bloom}/modeling_*.py. Names are those of the classes: they
decide how long a tensor lives. Dropout is that of the classes' default configs.
"""

from __future__ import annotations

from dsgen.families import gptj, phi
from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import GPT2, attend, attend_alibi
from dsgen.memory.activations.gelus import bloom_gelu, gelu_steps
from dsgen.memory.activations.llama import rotate
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Names, Tape, Tensor, forward

__all__ = ["before", "bloom_block", "gpt2_block", "gpt_neox_block", "gptj_block", "head", "opt_block", "plain_mlp"]

BIASED_HEADS = frozenset({"gptj", "phi"})
ROTARY_SHARE = 4  # a quarter of a head of GPT-NeoX is rotated (rotary_pct of its config: 0.25)

Before = tuple[Tensor, list[Tensor], list[Tensor], list[Tensor]]


@forward
def gpt2_block(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """GPT2Block."""
    my.states = on.layer_norm(tape, hidden)
    my.found, my.weights = _gpt2_attention(tape, on, my.states)
    hidden = op.add(tape, my.found, hidden)
    my.states = on.layer_norm(tape, hidden)
    out = _gpt2_mlp(tape, on, my.states)
    return op.add(tape, hidden, out)


@forward
def _gpt2_attention(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    width = on.heads * on.model.head_size
    fused = on.linear(tape, hidden, 3 * width, "c_attn", bias=True)
    my.query, my.key, my.value = op.split(tape, fused, width, width, width)
    if on.eager:
        my.query, my.key, my.value = (op.transposed(tape, one) for one in (my.query, my.key, my.value))
    out, weights = attend(tape, on, my.query, my.key, my.value, style=GPT2, drop=True)
    out = on.linear(tape, out, on.hidden, "c_proj", bias=True)
    return op.dropout(tape, out, True), weights


def _gpt2_mlp(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    states = on.linear(tape, hidden, on.ffn, "c_fc", bias=True)
    states = gelu_steps(tape, states)
    states = on.linear(tape, states, on.hidden, "c_proj", bias=True)
    return op.dropout(tape, states, True)


@forward
def gpt_neox_block(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """GPTNeoXLayer with the parallel residual of its default."""
    my.found, my.weights = _gpt_neox_attention(tape, on, on.layer_norm(tape, hidden))
    my.out = plain_mlp(tape, on, on.layer_norm(tape, hidden))
    both = op.add(tape, my.out, my.found)
    return op.add(tape, both, hidden)


@forward
def plain_mlp(my: Names, tape: Tape, on: Setting, hidden: Tensor, *, bias: bool = True) -> Tensor:
    """Two matrices with a GELU between them."""
    states = on.linear(tape, hidden, on.ffn, "dense_h_to_4h", bias=bias)
    states = op.gelu(tape, states)
    return on.linear(tape, states, on.hidden, "dense_4h_to_h", bias=bias)


@forward
def _gpt_neox_attention(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    width = on.heads * on.model.head_size
    fused = op.transposed(tape, on.linear(tape, hidden, 3 * width, "query_key_value", bias=True))
    query, key, my.value = op.split(tape, fused, width, width, width)
    table = on.table(on.model.head_size // ROTARY_SHARE)
    query_turned, query_rest = op.part(tape, query, width // ROTARY_SHARE), op.part(tape, query, width - width // 4)
    key_turned, key_rest = op.part(tape, key, width // ROTARY_SHARE), op.part(tape, key, width - width // 4)
    turned, turned_key = rotate(tape, query_turned, table, table), rotate(tape, key_turned, table, table)
    my.query = op.cat(tape, turned, query_rest)
    my.key = op.cat(tape, turned_key, key_rest)
    out, weights = attend(tape, on, my.query, my.key, my.value, heads_first=True)
    return on.linear(tape, out, on.hidden, "dense", bias=True), weights


@forward
def gptj_block(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """GPTJBlock: attention and feed-forward share a norm."""
    my.states = on.layer_norm(tape, hidden)
    my.found, my.weights = _gptj_attention(tape, on, my.states)
    out = on.linear(tape, my.states, on.ffn, "fc_in", bias=True)
    out = gelu_steps(tape, out)
    my.out = on.linear(tape, out, on.hidden, "fc_out", bias=True)
    both = op.add(tape, my.found, my.out)
    return op.add(tape, both, hidden)


@forward
def _gptj_attention(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    size = on.model.head_size
    width, rotary = on.heads * size, min(gptj.ROTARY, size)
    my.query = on.linear(tape, hidden, width, "q_proj")
    my.key = on.linear(tape, hidden, width, "k_proj")
    my.value = on.linear(tape, hidden, width, "v_proj")
    if on.eager:
        my.value = op.transposed(tape, my.value)
    my.positions = tape.make((on.seq_len, 0), rotary, on.item)
    key_part, key_rest = op.part(tape, my.key, on.heads * rotary), op.part(tape, my.key, width - on.heads * rotary)
    query_part, rest = op.part(tape, my.query, on.heads * rotary), op.part(tape, my.query, width - on.heads * rotary)
    my.key_turned = _every_two(tape, on, key_part, rotary)
    my.query_turned = _every_two(tape, on, query_part, rotary)
    my.key = op.cat(tape, my.key_turned, key_rest)
    my.query = op.cat(tape, my.query_turned, rest)
    tape.hold(key_rest)
    if not on.eager:
        out, _ = attend(tape, on, my.query, my.key, my.value)
        return on.linear(tape, out, on.hidden, "out_proj"), out
    query, key = op.cast(tape, my.query, op.FP32), op.cast(tape, my.key, op.FP32)
    my.query, my.key = op.transposed(tape, query), op.transposed(tape, key)
    out, weights = attend(tape, on, my.query, my.key, my.value, style=GPT2)
    return on.linear(tape, out, on.hidden, "out_proj"), weights


@forward
def _every_two(my: Names, tape: Tape, on: Setting, tensor: Tensor, rotary: int) -> Tensor:
    """GPT-J's apply_rotary_pos_emb: neighbours are a pair; the tables are made for every tensor."""
    my.sine, my.cosine = (tape.make((on.seq_len, 0), rotary, on.item) for _ in range(2))
    one = op.mul(tape, tensor, my.cosine)
    other = op.mul(tape, _pairs(tape, tensor), my.sine)
    return op.add(tape, one, other)


def _pairs(tape: Tape, tensor: Tensor) -> Tensor:
    first, second = op.part(tape, tensor, tensor.width // 2), op.part(tape, tensor, tensor.width // 2)
    return op.cat(tape, op.neg(tape, second), first)


@forward
def opt_block(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """OPTDecoderLayer; opt-350m's norms follow what they belong to."""
    after = on.model.post_norm
    my.states = hidden if after else on.layer_norm(tape, hidden)
    found, my.weights = _opt_attention(tape, on, my.states)
    my.states = op.dropout(tape, found, True)
    my.residual = op.add(tape, hidden, my.states)
    my.states = None
    if after:
        my.residual = on.layer_norm(tape, my.residual)
    states = my.residual if after else on.layer_norm(tape, my.residual)
    states = on.linear(tape, states, on.ffn, "fc1", bias=True)
    states = op.relu(tape, states)
    states = on.linear(tape, states, on.hidden, "fc2", bias=True)
    states = op.dropout(tape, states, True)
    states = op.add(tape, my.residual, states)
    return on.layer_norm(tape, states) if after else states


@forward
def _opt_attention(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    width = on.heads * on.model.head_size
    my.query = op.scaled(tape, on.linear(tape, hidden, width, "q_proj", bias=True))
    my.key = on.linear(tape, hidden, width, "k_proj", bias=True)
    my.value = on.linear(tape, hidden, width, "v_proj", bias=True)
    if on.eager:
        my.query, my.key, my.value = (op.transposed(tape, one) for one in (my.query, my.key, my.value))
    out, weights = attend(tape, on, my.query, my.key, my.value)
    return on.linear(tape, out, on.hidden, "out_proj", bias=True), weights


@forward
def bloom_block(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """BloomBlock."""
    my.states = on.layer_norm(tape, hidden)
    found, my.weights = _bloom_attention(tape, on, my.states, hidden)
    my.states = on.layer_norm(tape, found)
    return _bloom_mlp(tape, on, my.states, found)


@forward
def _bloom_mlp(my: Names, tape: Tape, on: Setting, hidden: Tensor, residual: Tensor) -> Tensor:
    states = on.linear(tape, hidden, on.ffn, "dense_h_to_4h", bias=True)
    my.states = bloom_gelu(tape, states)
    out = on.linear(tape, my.states, on.hidden, "dense_4h_to_h", bias=True)
    return op.add(tape, residual, out)


@forward
def _bloom_attention(
    my: Names, tape: Tape, on: Setting, hidden: Tensor, residual: Tensor
) -> tuple[Tensor, Tensor | None]:
    width = on.heads * on.model.head_size
    fused = on.linear(tape, hidden, 3 * width, "query_key_value", bias=True)
    my.query, my.key, my.value = (op.transposed(tape, op.part(tape, fused, width)) for _ in range(3))
    out, weights = attend_alibi(tape, on, my.query, my.key, my.value)
    out = on.linear(tape, out, on.hidden, "dense", bias=True)
    return op.add(tape, residual, out), weights


def before(tape: Tape, on: Setting) -> Before:
    """Embeddings, masks and rope tables, as `llama.before`."""
    model = on.model
    kind, width = model.architecture, model.embedding_size or model.hidden_size
    embedded = op.embedding(tape, on.rows, on.outer(model.vocab_size * width), width)
    on.ask(tape, embedded)
    ids = tape.make((on.seq_len, 0), 1, 8)
    masks = [tape.make(on.rows, on.seq_len, on.item)] if on.eager else []
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
        return hidden, [], [ids, *masks, tape.make((0, on.heads), on.seq_len, on.item)], [embedded]
    if kind == "gptj":
        return embedded, [], [ids, *masks], [embedded]
    size = phi.ROTARY if kind == "phi" else model.head_size // (ROTARY_SHARE if kind == "gpt_neox" else 1)
    tables = [tape.make((on.seq_len, 0), size, on.item) for _ in range(2)]
    return embedded, tables, [ids, *masks], [embedded]


def head(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """Final norm, output head and loss."""
    states = _final(tape, on, hidden)
    if on.chunked:
        return on.chunked_loss(tape, states)
    logits = on.logits(tape, states, bias=on.model.architecture in BIASED_HEADS)
    loss = on.loss(tape, logits)
    tape.hold(states, logits)
    return loss


def _final(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """What goes in is dropped with the model's own forward."""
    states = hidden if on.model.post_norm else on.layer_norm(tape, hidden)
    width = on.model.embedding_size or on.hidden
    return states if width == on.hidden else on.linear(tape, states, width)
