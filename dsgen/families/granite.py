"""IBM's Granite, which scales what each part of a block adds, and its mixture of experts."""

from __future__ import annotations

import functools

from dsgen.families import rows
from dsgen.families.config_keys import HEADS, LOCAL_EXPERTS, SPLIT, keys
from dsgen.families.family import UNKNOWN_STYLE, AutoTP, Family, OlderExperts, OlderLoss
from dsgen.families.llama import BLOCK
from dsgen.families.orders import ATTENTION, FIRST, OUT, SECOND, Order
from dsgen.families.parts import llama
from dsgen.families.parts.mixtures import kernel_of, picked, routed
from dsgen.families.reading import expert_width
from dsgen.families.rows import TensorRow
from dsgen.families.tape import operators as op
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Block, Forward
from dsgen.families.tape.norms import norm
from dsgen.families.tape.products import linear
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["GRANITE", "GRANITEMOE"]


@forward
def _block(my: Names, tape: Tape, on: Execution, hidden: Tensor, *, feeding: Block = llama.mlp) -> Tensor:
    """GraniteDecoderLayer: Llama's, with what each part adds multiplied by a number."""
    my.states = norm(tape, on, hidden)
    my.states, my.weights = llama.attention(tape, on, my.states)
    hidden = op.add(tape, hidden, op.scaled(tape, my.states))
    my.states = norm(tape, on, hidden)
    my.states = feeding(tape, on, my.states)
    return op.add(tape, hidden, op.scaled(tape, my.states))


@forward
def _router(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """GraniteMoeTopKRouter: the best of fp32 logits, and a softmax over them."""
    my.kernel = kernel_of(tape, on, on.model.experts, on.model.hidden_size, "router.weight")
    logits = op.cast(tape, linear(tape, hidden, my.kernel, on.model.experts, zero3=on.zero3), op.FP32)
    my.values, ids = op.picked(tape, logits, picked(on), 1, op.FP32)
    return op.cast(tape, op.softmax(tape, my.values), hidden.item), ids, logits


_before = functools.partial(llama.before, multiplied=True, remembered=True)
_head = functools.partial(llama.head, shaped=op.scaled)
_sparse_block = functools.partial(_block, feeding=routed(_router))


GRANITE = Family(
    model_type="granite",
    huggingface="GraniteForCausalLM",
    keys=keys(32, 4096, 32, HEADS, SPLIT, 11008, 32000, 2048, tied=False, attention_bias=False, mlp_bias=False),
    layout=rows.llama_frame(dense=BLOCK),
    forward=Forward(_before, _block, _block, _head),
    older_loss=OlderLoss((4, 48)),
    autotp=AutoTP(head=True, tied_head=True),
)
GRANITEMOE = Family(
    model_type="granitemoe",
    huggingface="GraniteMoeForCausalLM",
    keys=keys(
        *(32, 4096, 32, HEADS, SPLIT, 11008, 32000, 2048),
        tied=False,
        names=LOCAL_EXPERTS,
        attention_bias=False,
        experts=8,
        experts_per_token=2,
    ),
    read=expert_width,
    layout=rows.llama_frame(
        sparse=(
            *rows.attention(bias="attention_bias"),
            *rows.TWO_NORMS,
            TensorRow("block_sparse_moe.router.weight", ("experts", "hidden"), "router"),
            TensorRow("block_sparse_moe.experts.gate_up_proj", ("experts", "expert_ffn_pair", "hidden"), "expert"),
            TensorRow("block_sparse_moe.experts.down_proj", ("experts", "hidden", "expert_ffn"), "expert"),
        )
    ),
    forward=Forward(_before, _sparse_block, _sparse_block, _head),
    order=Order(
        sparse=f"{FIRST} {ATTENTION} {OUT} {SECOND} block_sparse_moe block_sparse_moe.router"
        " block_sparse_moe.experts block_sparse_moe.experts.act_fn"
    ),
    older_experts=OlderExperts(stacked=True, picks=False, forward=(0, 4), backward=(0, 4), weight=(2, 3)),
    older_loss=OlderLoss((4, 48), wide_until=(5, 0)),
    autotp=UNKNOWN_STYLE,
)
