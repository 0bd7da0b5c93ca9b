"""GPT-BigCode (StarCoder, SantaCoder): GPT-2 with one key and value for all heads."""

from __future__ import annotations

from dsgen.families import rows
from dsgen.families.config_keys import FOUR_H, GPT2_NAMES, SPLIT, keys
from dsgen.families.family import AutoTP, Facts, Family, OlderLoss
from dsgen.families.orders import GPT2 as BLOCK
from dsgen.families.orders import Order
from dsgen.families.parts import gpts
from dsgen.families.reading import Reader
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import attend
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Before, Forward
from dsgen.families.tape.tape import Names, Tape, Tensor, forward
from dsgen.shapes.profiles import Model

__all__ = ["GPT_BIGCODE"]


def _read(reader: Reader, _: Facts) -> dict[str, object]:
    reader.demand_fused("activation_function")
    return {}


def _mask(model: Model) -> int:
    """Bytes of GPTBigCodeModel.bias: one for every pair of positions."""
    return model.max_positions**2


def _before(tape: Tape, on: Execution) -> Before:
    return gpts.learned(tape, on, drop=on.model.dropout)


@forward
def _block(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """GPTBigCodeBlock: GPT-2's, with one key and value for all heads."""
    my.states = on.layer_norm(tape, hidden)
    my.attention, my.weights = _attention(tape, on, my.states)
    hidden = op.add(tape, my.attention, hidden)
    my.states = on.layer_norm(tape, hidden)
    out = _mlp(tape, on, my.states)
    return op.add(tape, hidden, out)


@forward
def _attention(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    size, drops = on.model.head_size, on.model.dropout
    width = on.heads * size
    fused = on.linear(tape, hidden, width + 2 * size, "c_attn", bias=True)
    my.query, key, value = op.split(tape, fused, width, size, size)
    if on.eager:
        my.query = op.transposed(tape, my.query)
    out, weights = attend(tape, on, my.query, key, value, drop=drops)
    out = on.linear(tape, out, on.hidden, "c_proj", bias=True)
    return op.dropout(tape, out, drops), weights


def _mlp(tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    states = on.linear(tape, hidden, on.ffn, "c_fc", bias=True)
    states = op.gelu(tape, states)
    states = on.linear(tape, states, on.hidden, "c_proj", bias=True)
    return op.dropout(tape, states, on.model.dropout)


GPT_BIGCODE = Family(
    model_type="gpt_bigcode",
    huggingface="GPTBigCodeForCausalLM",
    keys=keys(12, 768, 12, 1, SPLIT, FOUR_H, 50257, 1024, tied=True, names=GPT2_NAMES),
    gated=False,
    pinned={"multi_query": True, "add_cross_attention": False},
    dropouts={"attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1},
    read=_read,
    layout=rows.TensorLayout(
        before=(
            *rows.embedding("transformer.wte.weight"),
            rows.TensorRow("transformer.wpe.weight", ("positions", "hidden"), "position"),
        ),
        block="transformer.h.*",
        dense=(
            *rows.layer_norm("ln_1"),
            *rows.linear("attn.c_attn", "qkv", "hidden", "attention", bias=True),
            *rows.linear("attn.c_proj", "hidden", "q", "attention", bias=True),
            *rows.layer_norm("ln_2"),
            *rows.linear("mlp.c_fc", "ffn", "hidden", "mlp", bias=True),
            *rows.linear("mlp.c_proj", "hidden", "ffn", "mlp", bias=True),
        ),
        after=rows.layer_norm("transformer.ln_f"),
    ),
    forward=Forward(_before, _block, _block, gpts.head),
    order=Order(dense=BLOCK, ahead="wte wpe drop", asks="mlp.dropout"),
    buffers=_mask,
    older_loss=OlderLoss((4, 48), wide=False),
    autotp=AutoTP(refused="AutoTP of {} stops in forward: query, key and value are one matrix, cut across"),
)
