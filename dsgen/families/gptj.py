"""GPT-J: attention and feed-forward part side by side behind one norm, a head with a bias."""

from __future__ import annotations

import functools

from dsgen.families import rows
from dsgen.families.config_keys import FOUR_H, GPT2_NAMES, HEADS, SPLIT, keys
from dsgen.families.family import AutoTP, Family, OlderLoss
from dsgen.families.orders import Order
from dsgen.families.parts import gpts
from dsgen.families.tape import attending
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import attend
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Before, Forward
from dsgen.families.tape.gelus import gelu_steps
from dsgen.families.tape.tape import Names, Tape, Tensor, forward
from dsgen.shapes.profiles import Model

__all__ = ["GPTJ", "ROTARY"]

ROTARY = 64  # elements of a head that are rotated (rotary_dim of its config)
_FP32 = 4  # bytes


def _tables(model: Model) -> int:
    """Bytes of GPTJAttention.embed_positions: sines and cosines, which every block has of its own."""
    return _FP32 * model.layers * model.max_positions * min(ROTARY, model.head_size)


def _before(tape: Tape, on: Execution) -> Before:
    embedded, read = gpts.embed(tape, on)
    return embedded, [], read, [embedded]


@forward
def _block(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """GPTJBlock: attention and feed-forward share a norm."""
    my.states = on.layer_norm(tape, hidden)
    my.attention, my.weights = _attention(tape, on, my.states)
    out = on.linear(tape, my.states, on.ffn, "fc_in", bias=True)
    out = gelu_steps(tape, out)
    my.out = on.linear(tape, out, on.hidden, "fc_out", bias=True)
    both = op.add(tape, my.attention, my.out)
    return op.add(tape, both, hidden)


@forward
def _attention(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    size = on.model.head_size
    width, rotary = on.heads * size, min(ROTARY, size)
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
    out, weights = attend(tape, on, my.query, my.key, my.value, style=attending.GPT2)
    return on.linear(tape, out, on.hidden, "out_proj"), weights


@forward
def _every_two(my: Names, tape: Tape, on: Execution, tensor: Tensor, rotary: int) -> Tensor:
    """GPT-J's apply_rotary_pos_emb: neighbours are a pair; the tables are made for every tensor."""
    my.sine, my.cosine = (tape.make((on.seq_len, 0), rotary, on.item) for _ in range(2))
    one = op.mul(tape, tensor, my.cosine)
    other = op.mul(tape, _pairs(tape, tensor), my.sine)
    return op.add(tape, one, other)


def _pairs(tape: Tape, tensor: Tensor) -> Tensor:
    first, second = op.part(tape, tensor, tensor.width // 2), op.part(tape, tensor, tensor.width // 2)
    return op.cat(tape, op.neg(tape, second), first)


GPTJ = Family(
    model_type="gptj",
    huggingface="GPTJForCausalLM",
    hybrid=True,
    keys=keys(28, 4096, 16, HEADS, SPLIT, FOUR_H, 50400, 2048, tied=False, names=GPT2_NAMES),
    gated=False,
    autotp=AutoTP(biased_rows=True),
    layout=rows.TensorLayout(
        before=rows.embedding("transformer.wte.weight"),
        block="transformer.h.*",
        dense=(
            *rows.layer_norm("ln_1"),
            *rows.linear("attn.k_proj", "kv", "hidden", "attention"),
            *rows.linear("attn.v_proj", "kv", "hidden", "attention"),
            *rows.linear("attn.q_proj", "q", "hidden", "attention"),
            *rows.linear("attn.out_proj", "hidden", "q", "attention"),
            *rows.linear("mlp.fc_in", "ffn", "hidden", "mlp", bias=True),
            *rows.linear("mlp.fc_out", "hidden", "ffn", "mlp", bias=True),
        ),
        after=rows.layer_norm("transformer.ln_f"),
        head_bias=True,
    ),
    forward=Forward(_before, _block, _block, functools.partial(gpts.head, bias=True), carries_weights=True),
    order=Order(
        dense="ln_1 attn attn.q_proj attn.k_proj attn.v_proj attn.out_proj attn.resid_dropout"
        " mlp mlp.fc_in mlp.act mlp.fc_out mlp.dropout",
        ahead="wte drop",
        registered="q_proj",
        parallel=("mlp.fc_in",),
    ),
    kernels=("flash",),
    wide_queries=True,
    buffers=_tables,
    older_loss=OlderLoss((4, 48), wide_until=(5, 0)),
)
