"""Falcon's two decoders: falcon-7b's with one key head, the new one of 40b and 180b with a key head per group."""

from __future__ import annotations

from dsgen.families import rows
from dsgen.families.config_keys import FOUR_H, HEADS, SPLIT, keys
from dsgen.families.family import AutoTP, Facts, Family, OlderLoss
from dsgen.families.orders import FIRST, MEGATRON_MLP, Order
from dsgen.families.parts import gpts
from dsgen.families.parts.rotary import rotate
from dsgen.families.reading import Reader
from dsgen.families.tape import attending
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import attend
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Before, Forward
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["FALCON"]

_NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer"),
    "attention_heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_kv_heads", "n_head_kv"),
    "head_size": (),
    "ffn_size": ("ffn_hidden_size",),
}


def _read(reader: Reader, facts: Facts) -> dict[str, object]:
    """Which of the two it is."""
    new = reader.boolean("new_decoder_architecture", False)
    reader.demand("num_ln_in_parallel_attn", 2 if new else 1)
    if not new:
        if not reader.boolean("multi_query", True):
            raise reader.unsupported("multi_query is false", "dsgen counts falcon's old decoder with one key head only")
        return {"kv_heads": 1}
    if facts["kv_heads"] == 1:
        raise reader.unsupported("num_kv_heads is 1", "dsgen counts falcon's new decoder with more key heads only")
    return {}


def _write(facts: Facts) -> dict[str, object]:
    return {"new_decoder_architecture": facts["kv_heads"] != 1, "multi_query": facts["kv_heads"] == 1}


def _before(tape: Tape, on: Execution) -> Before:
    return gpts.rotary(tape, on, on.model.head_size)


@forward
def _block(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """FalconDecoderLayer, with one norm (falcon-7b) or two (40b, 180b)."""
    my.attended = on.layer_norm(tape, hidden)
    my.fed = on.layer_norm(tape, hidden) if on.model.kv_heads > 1 else my.attended
    my.attention, my.weights = _attention(tape, on, my.attended)
    out = gpts.megatron_mlp(tape, on, my.fed, bias=False)
    out = op.in_place(tape, out, my.attention)
    return op.add(tape, hidden, out)


@forward
def _attention(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    model = on.model
    size, several = model.head_size, model.kv_heads > 1
    if on.joins:
        return _joined(tape, on, hidden)
    fused = on.linear(tape, hidden, (on.heads + 2 * on.kv_heads) * size, "query_key_value")
    my.query = op.part(tape, fused, on.heads * size)
    my.key = op.index(tape, fused, fused.rows, on.kv_heads * size)
    my.value = op.index(tape, fused, fused.rows, on.kv_heads * size)
    kv_heads = on.kv_heads
    if several:
        kv_heads = on.heads
        query = op.clone(tape, my.query)
        my.query, my.key, my.value = query, _spread(tape, on, my.key), _spread(tape, on, my.value)
    if on.eager:
        my.query, my.key, my.value = (op.transposed(tape, one) for one in (my.query, my.key, my.value))
    table = on.table(size)
    my.query, my.key = (rotate(tape, one, table, table) for one in (my.query, my.key))
    out, weights = attend(tape, on, my.query, my.key, my.value, kv_heads=kv_heads, style=attending.FALCON)
    tape.hold(fused)
    return on.linear(tape, out, on.hidden, "dense"), weights


@forward
def _joined(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """LitGPT's: keys and values of every query head."""
    size = on.model.head_size
    widths = on.heads * size, on.kv_heads * size, on.kv_heads * size
    parts = op.split(tape, on.together(tape, hidden, widths), *widths)
    my.query, my.key, my.value = (_spread(tape, on, one) for one in parts)
    table = on.table(size)
    my.query, my.key = (rotate(tape, one, table, table) for one in (my.query, my.key))
    out, weights = attend(tape, on, my.query, my.key, my.value, kv_heads=on.heads)
    return on.linear(tape, out, on.hidden, "dense"), weights


def _spread(tape: Tape, on: Execution, tensor: Tensor) -> Tensor:
    """Keys or values written out for every query head; backward sums them."""
    made = tape.make(tensor.rows, on.heads * on.model.head_size, tensor.item)
    return tape.node(made, (tensor,), None, lambda _: [tape.like(tensor)])  # type: ignore[no-any-return]


FALCON = Family(
    model_type="falcon",
    huggingface="FalconForCausalLM",
    keys=keys(32, 4544, 71, HEADS, SPLIT, FOUR_H, 65024, 2048, tied=True, names=_NAMES),
    gated=False,
    pinned={"parallel_attn": True, "bias": False},
    repeats_keys=True,
    read=_read,
    write=_write,
    layout=rows.TensorLayout(
        before=rows.embedding("transformer.word_embeddings.weight"),
        block="transformer.h.*",
        dense=(
            *rows.megatron_attention("self_attention", bias=False),
            *rows.megatron_mlp(bias=False),
            # The old decoder has one norm, the new one has two.
            *rows.layer_norm("input_layernorm", when="one_kv_head"),
            *rows.layer_norm("ln_attn", when="many_kv_heads"),
            *rows.layer_norm("ln_mlp", when="many_kv_heads"),
        ),
        after=rows.layer_norm("transformer.ln_f"),
    ),
    forward=Forward(_before, _block, _block, gpts.head, carries_weights=True),
    order=Order(
        dense=f"{FIRST} ln_attn ln_mlp self_attention self_attention.query_key_value self_attention.dense"
        f" {MEGATRON_MLP.format('mlp.act')}",
        ahead="word_embeddings rotary_emb",
        parallel=("mlp.dense_h_to_4h",),
    ),
    direct=True,  # FalconLinear multiplies by `weight.T`
    older_loss=OlderLoss((4, 48), wide=False),
    autotp=AutoTP(
        refused="AutoTP of {} stops in forward: its blocks add in place to what a split layer gives (a view)"
    ),
    packs=False,  # its linear layers are a class of their own, which transformers 5 leaves in 16 bits
)
