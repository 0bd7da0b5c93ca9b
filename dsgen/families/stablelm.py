"""StableLM 2: Llama with LayerNorms, a quarter of every head rotated."""

from __future__ import annotations

import functools

from dsgen.families import rows
from dsgen.families.config_keys import SPLIT, keys
from dsgen.families.family import Family, OlderLoss
from dsgen.families.orders import LLAMA, Order
from dsgen.families.parts import llama
from dsgen.families.parts.partial import partial_attention
from dsgen.families.reading import Rotated
from dsgen.families.tape import operators as op
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Forward
from dsgen.families.tape.norms import layer_norm
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["STABLELM"]

_SHARE = 4  # a quarter of a head is rotated


@forward
def _block(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """StableLmDecoderLayer, whose attention is not parallel; its names for what it has added last until its end."""
    model = on.model
    my.states = on.layer_norm(tape, hidden)
    my.attention, my.weights = partial_attention(
        tape, on, my.states, model.head_size // _SHARE, "o_proj", bias=model.attention_bias
    )
    residual = op.add(tape, hidden, my.attention)
    out = llama.mlp(tape, on, on.layer_norm(tape, residual))
    return op.add(tape, residual, out)


STABLELM = Family(
    model_type="stablelm",
    huggingface="StableLmForCausalLM",
    keys=keys(
        *(32, 2560, 32, 32, SPLIT, 6912, 50304, 4096),
        tied=False,
        names={"head_size": (), "attention_bias": ("use_qkv_bias",)},
        attention_bias=False,
    ),
    pinned={
        "qk_layernorm": False,
        "use_parallel_residual": False,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    },
    rotated=Rotated(0.25),
    layout=rows.llama_frame(
        dense=(
            *rows.BIASED_QKV,
            *rows.gated_mlp(),
            *rows.layer_norm("input_layernorm"),
            *rows.layer_norm("post_attention_layernorm"),
        ),
        after=rows.layer_norm("model.norm"),
    ),
    forward=Forward(functools.partial(llama.before, part=_SHARE), _block, _block, llama.head, layer_norm),
    order=Order(dense=f"{LLAMA} dropout"),
    older_loss=OlderLoss((4, 48), wide=False),
)
