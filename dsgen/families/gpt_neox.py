"""GPT-NeoX and Pythia: attention and feed-forward part side by side, a quarter of every head rotated."""

from __future__ import annotations

from dsgen.families import rows
from dsgen.families.config_keys import HEADS, PLAIN_HEADS, SPLIT, keys
from dsgen.families.family import AutoTP, Family, OlderLoss
from dsgen.families.orders import FIRST, MEGATRON_MLP, SECOND, Order
from dsgen.families.parts import gpts
from dsgen.families.parts.rotary import rotate, rotated_part
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import attend
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Before, Forward
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["GPT_NEOX"]

_SHARE = 4  # a quarter of a head is rotated (rotary_pct of its config: 0.25)


def _before(tape: Tape, on: Execution) -> Before:
    return gpts.rotary(tape, on, on.model.head_size // _SHARE)


@forward
def _block(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """GPTNeoXLayer with the parallel residual of its default."""
    my.attention, my.weights = _attention(tape, on, on.layer_norm(tape, hidden))
    my.out = gpts.megatron_mlp(tape, on, on.layer_norm(tape, hidden))
    both = op.add(tape, my.out, my.attention)
    return op.add(tape, both, hidden)


@forward
def _attention(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    width = on.heads * on.model.head_size
    if on.joins:
        joined = on.together(tape, hidden, (width, width, width), bias=True)
    else:
        joined = on.linear(tape, hidden, 3 * width, "query_key_value", bias=True)
    fused = op.transposed(tape, joined)
    query, key, my.value = op.split(tape, fused, width, width, width)
    table = on.table(on.model.head_size // _SHARE)
    query_turned, query_rest = rotated_part(tape, query, width // _SHARE)
    key_turned, key_rest = rotated_part(tape, key, width // _SHARE)
    turned, turned_key = rotate(tape, query_turned, table, table), rotate(tape, key_turned, table, table)
    my.query = op.cat(tape, turned, query_rest)
    my.key = op.cat(tape, turned_key, key_rest)
    out, weights = attend(tape, on, my.query, my.key, my.value, heads_first=True)
    return on.linear(tape, out, on.hidden, "dense", bias=True), weights


GPT_NEOX = Family(
    model_type="gpt_neox",
    huggingface="GPTNeoXForCausalLM",
    keys=keys(44, 6144, 64, HEADS, SPLIT, 24576, 50432, 2048, tied=False, names=PLAIN_HEADS),
    gated=False,
    pinned={"attention_bias": True},
    layout=rows.TensorLayout(
        before=rows.embedding("gpt_neox.embed_in.weight"),
        block="gpt_neox.layers.*",
        dense=(
            *rows.layer_norm("input_layernorm"),
            *rows.layer_norm("post_attention_layernorm"),
            *rows.megatron_attention("attention"),
            *rows.megatron_mlp(),
        ),
        after=rows.layer_norm("gpt_neox.final_layer_norm"),
    ),
    forward=Forward(_before, _block, _block, gpts.head),
    order=Order(
        dense=f"{FIRST} attention attention.query_key_value attention.dense post_attention_dropout {SECOND}"
        f" {MEGATRON_MLP.format('mlp.act')} post_mlp_dropout",
        ahead="embed_in emb_dropout rotary_emb",
        parallel=("mlp.dense_h_to_4h",),
    ),
    older_loss=OlderLoss((4, 49), wide=False),
    autotp=AutoTP(head=True, biased_rows=True),
)
