"""StarCoder2: Llama's attention between LayerNorms, and a feed-forward part without a gate."""

from __future__ import annotations

from dsgen.families import rows
from dsgen.families.config_keys import SPLIT, keys
from dsgen.families.family import AutoTP, Family, OlderLoss
from dsgen.families.orders import ATTENTION, FIRST, OUT, SECOND, Order
from dsgen.families.parts.llama import llama_forward
from dsgen.families.tape import operators as op
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.norms import layer_norm
from dsgen.families.tape.tape import Tape, Tensor

__all__ = ["STARCODER2"]


def _mlp(tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """Starcoder2MLP."""
    bias = on.model.attention_bias
    states = on.linear(tape, hidden, on.ffn, "c_fc", bias=bias)
    states = op.gelu(tape, states)
    states = on.linear(tape, states, on.hidden, "c_proj", bias=bias)
    return op.dropout(tape, states, on.model.dropout)


STARCODER2 = Family(
    model_type="starcoder2",
    huggingface="Starcoder2ForCausalLM",
    keys=keys(
        *(30, 3072, 24, 2, SPLIT, 12288, 49152, 4096),
        tied=True,
        names={"attention_bias": ("use_bias",)},
        attention_bias=True,
        sliding_window=0,
    ),
    gated=False,
    pinned={"hidden_act": "gelu_pytorch_tanh"},
    dropouts={"attention_dropout": 0.0, "embedding_dropout": 0.0, "residual_dropout": 0.0},
    layout=rows.llama_frame(
        dense=(
            *rows.attention(bias="attention_bias"),
            *rows.linear("mlp.c_fc", "ffn", "hidden", "mlp", bias_when="attention_bias"),  # one key is for all biases
            *rows.linear("mlp.c_proj", "hidden", "ffn", "mlp", bias_when="attention_bias"),
            *rows.layer_norm("input_layernorm"),
            *rows.layer_norm("post_attention_layernorm"),
        ),
        after=rows.layer_norm("model.norm"),
    ),
    forward=llama_forward(feeding=_mlp, norm=layer_norm),
    order=Order(dense=f"{FIRST} {ATTENTION} {OUT} {SECOND} mlp mlp.c_fc mlp.act mlp.c_proj", asks="mlp"),
    older_loss=OlderLoss((4, 47)),
    autotp=AutoTP(head=True, tied_head=True, biased_rows=True),
)
