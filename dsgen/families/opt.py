"""OPT: learned positions and LayerNorms, before each part of a block or, in opt-350m, behind it."""

from __future__ import annotations

import functools

from dsgen.families import rows
from dsgen.families.config_keys import HEADS, PLAIN_HEADS, SPLIT, keys
from dsgen.families.family import AutoTP, Facts, Family, OlderLoss
from dsgen.families.orders import ATTENTION, Order
from dsgen.families.parts import gpts
from dsgen.families.reading import Reader
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import attend
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Before, Forward
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["OPT"]

_NAMES: dict[str, tuple[str, ...]] = {**PLAIN_HEADS, "ffn_size": ("ffn_dim",), "post_norm": ()}


def _read(reader: Reader, facts: Facts) -> dict[str, object]:
    projected = facts["embedding_size"] != facts["hidden_size"]
    return {
        "post_norm": not reader.boolean("do_layer_norm_before", True),
        "embedding_size": facts["embedding_size"] if projected else 0,
    }


def _write(facts: Facts) -> dict[str, object]:
    return {
        "do_layer_norm_before": not facts["post_norm"],
        "word_embed_proj_dim": facts["embedding_size"] or facts["hidden_size"],
    }


def _before(tape: Tape, on: Execution) -> Before:
    """Every sequence has positions of its own; a narrow embedding is projected."""
    embedded, read = gpts.embed(tape, on)
    positions = op.embedding(tape, on.rows, on.weight(on.model.max_positions * on.hidden), on.hidden)
    if embedded.width != on.hidden:
        embedded = on.linear(tape, embedded, on.hidden)
    return op.add(tape, embedded, positions), [], read, [embedded, positions]


@forward
def _block(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """OPTDecoderLayer; opt-350m's norms follow what they belong to."""
    after = on.model.post_norm
    my.states = hidden if after else on.layer_norm(tape, hidden)
    attended, my.weights = _attention(tape, on, my.states)
    my.states = op.dropout(tape, attended, True)
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
def _attention(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    width = on.heads * on.model.head_size
    my.query = op.scaled(tape, on.linear(tape, hidden, width, "q_proj", bias=True))
    my.key = on.linear(tape, hidden, width, "k_proj", bias=True)
    my.value = on.linear(tape, hidden, width, "v_proj", bias=True)
    if on.eager:
        my.query, my.key, my.value = (op.transposed(tape, one) for one in (my.query, my.key, my.value))
    out, weights = attend(tape, on, my.query, my.key, my.value)
    return on.linear(tape, out, on.hidden, "out_proj", bias=True), weights


def _final(tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """What goes in is dropped with the model's own forward."""
    states = hidden if on.model.post_norm else on.layer_norm(tape, hidden)
    width = on.model.embedding_size or on.hidden
    return states if width == on.hidden else on.linear(tape, states, width)


OPT = Family(
    model_type="opt",
    huggingface="OPTForCausalLM",
    keys=keys(
        *(12, 768, 12, HEADS, SPLIT, 3072, 50272, 2048), tied=True, names=_NAMES, embedding_size=0, post_norm=False
    ),
    gated=False,
    autotp=AutoTP(biased_rows=True),
    pinned={"enable_bias": True, "layer_norm_elementwise_affine": True, "_remove_final_layer_norm": False},
    read=_read,
    write=_write,
    layout=rows.TensorLayout(
        before=(
            rows.TensorRow("model.decoder.embed_tokens.weight", ("vocab", "embedding"), "embedding"),
            rows.TensorRow("model.decoder.embed_positions.weight", ("positions_and_2", "hidden"), "position"),
            *rows.linear("model.decoder.project_out", "embedding", "hidden", "embedding", when="projected"),
            *rows.linear("model.decoder.project_in", "hidden", "embedding", "embedding", when="projected"),
            *rows.layer_norm("model.decoder.final_layer_norm", when="final_norm"),
        ),
        block="model.decoder.layers.*",
        dense=(
            *rows.linear("self_attn.k_proj", "kv", "hidden", "attention", bias=True),
            *rows.linear("self_attn.v_proj", "kv", "hidden", "attention", bias=True),
            *rows.linear("self_attn.q_proj", "q", "hidden", "attention", bias=True),
            *rows.linear("self_attn.out_proj", "hidden", "q", "attention", bias=True),
            *rows.layer_norm("self_attn_layer_norm"),
            *rows.linear("fc1", "ffn", "hidden", "mlp", bias=True),
            *rows.linear("fc2", "hidden", "ffn", "mlp", bias=True),
            *rows.layer_norm("final_layer_norm"),
        ),
        after=(),
    ),
    forward=Forward(_before, _block, _block, functools.partial(gpts.head, final=_final)),
    order=Order(
        dense=f"self_attn_layer_norm {ATTENTION} self_attn.out_proj final_layer_norm fc1 activation_fn fc2",
        late=f"{ATTENTION} self_attn.out_proj self_attn_layer_norm fc1 activation_fn fc2 final_layer_norm",
        ahead="embed_tokens embed_positions project_in",
        asks="",
        registered="k_proj",
    ),
    older_loss=OlderLoss((4, 48), wide=False),
)
