"""Mixtral: Mistral's attention, and experts in every block."""

from __future__ import annotations

import functools

from dsgen.families import peft, rows
from dsgen.families.config_keys import LOCAL_EXPERTS, SPLIT, keys
from dsgen.families.family import UNKNOWN_STYLE, Family
from dsgen.families.orders import ATTENTION, FIRST, OUT, SECOND, Order
from dsgen.families.parts.llama import llama_forward
from dsgen.families.parts.mixtures import routed, softmax_router
from dsgen.families.reading import expert_width

__all__ = ["MIXTRAL"]


_MIXTURE = routed(functools.partial(softmax_router, shared=True))


MIXTRAL = Family(
    model_type="mixtral",
    huggingface="MixtralForCausalLM",
    keys=keys(
        *(32, 4096, 32, 8, SPLIT, 14336, 32000, 131072),
        tied=False,
        names=LOCAL_EXPERTS,
        sliding_window=0,
        experts=8,
        experts_per_token=2,
    ),
    read=expert_width,
    layout=rows.llama_frame(sparse=(*rows.attention(), *rows.ROUTER, *rows.EXPERTS, *rows.TWO_NORMS)),
    forward=llama_forward(mixture=_MIXTURE),
    order=Order(sparse=f"{FIRST} {ATTENTION} {OUT} {SECOND} mlp"),
    autotp=UNKNOWN_STYLE,
    leaf=True,
    leaf_class="transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
    parts={"gate": peft.ROUTER, "w1": peft.PAIR, "w3": peft.PAIR, "w2": peft.DOWN},
)
