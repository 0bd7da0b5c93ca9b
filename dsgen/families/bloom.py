"""BLOOM: LayerNorms, position biases instead of positions (ALiBi), and Megatron's names."""

from __future__ import annotations

from dsgen.families import orders, rows
from dsgen.families.config_keys import FOUR_H, HEADS, PLAIN_HEADS, SPLIT, keys
from dsgen.families.family import AutoTP, Family, OlderLoss
from dsgen.families.orders import FIRST, MEGATRON_MLP, SECOND
from dsgen.families.parts import gpts
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import attend_alibi
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Before, Forward
from dsgen.families.tape.gelus import bloom_gelu
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["BLOOM"]

# ALiBi has no longest sequence; BLOOM was trained on 2048 tokens (arXiv 2211.05100, table 3).
_POSITIONS = 2048
_NAMES: dict[str, tuple[str, ...]] = {
    **PLAIN_HEADS,
    "layers": ("n_layer", "num_hidden_layers"),
    "hidden_size": ("hidden_size", "n_embed"),
    "attention_heads": ("n_head", "num_attention_heads"),
    "ffn_size": (),
    "max_positions": ("seq_length",),
}


def _before(tape: Tape, on: Execution) -> Before:
    """The embedding behind a norm, and ALiBi's biases."""
    embedded, read = gpts.embed(tape, on)
    hidden = on.layer_norm(tape, embedded)
    return hidden, [], [*read, tape.make((0, on.heads), on.seq_len, on.item)], [embedded]


@forward
def _block(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """BloomBlock."""
    my.states = on.layer_norm(tape, hidden)
    attended, my.weights = _attention(tape, on, my.states, hidden)
    my.states = on.layer_norm(tape, attended)
    return _mlp(tape, on, my.states, attended)


@forward
def _attention(my: Names, tape: Tape, on: Execution, hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor | None]:
    width = on.heads * on.model.head_size
    fused = on.linear(tape, hidden, 3 * width, "query_key_value", bias=True)
    my.query, my.key, my.value = (op.transposed(tape, op.part(tape, fused, width)) for _ in range(3))
    out, weights = attend_alibi(tape, on, my.query, my.key, my.value)
    out = on.linear(tape, out, on.hidden, "dense", bias=True)
    return op.add(tape, residual, out), weights


@forward
def _mlp(my: Names, tape: Tape, on: Execution, hidden: Tensor, residual: Tensor) -> Tensor:
    states = on.linear(tape, hidden, on.ffn, "dense_h_to_4h", bias=True)
    my.states = bloom_gelu(tape, states)
    out = on.linear(tape, my.states, on.hidden, "dense_4h_to_h", bias=True)
    return op.add(tape, residual, out)


BLOOM = Family(
    model_type="bloom",
    huggingface="BloomForCausalLM",
    keys=keys(2, 64, 8, HEADS, SPLIT, FOUR_H, 250880, _POSITIONS, tied=True, names=_NAMES),
    gated=False,
    layout=rows.TensorLayout(
        before=(
            *rows.embedding("transformer.word_embeddings.weight"),
            *rows.layer_norm("transformer.word_embeddings_layernorm"),
        ),
        block="transformer.h.*",
        dense=(
            *rows.layer_norm("input_layernorm"),
            *rows.megatron_attention("self_attention"),
            *rows.layer_norm("post_attention_layernorm"),
            *rows.megatron_mlp(),
        ),
        after=rows.layer_norm("transformer.ln_f"),
    ),
    forward=Forward(_before, _block, _block, gpts.head, carries_weights=True),
    order=orders.Order(
        dense=f"{FIRST} self_attention self_attention.query_key_value self_attention.attention_dropout"
        f" self_attention.dense {SECOND} {MEGATRON_MLP.format('mlp.gelu_impl')}",
        ahead="word_embeddings word_embeddings_layernorm",
    ),
    kernels=(),
    older_loss=OlderLoss((4, 48), wide=False),
    autotp=AutoTP(refused="AutoTP of {} stops in forward: its position biases (ALiBi) keep all heads"),
)
