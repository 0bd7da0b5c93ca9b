"""Mixtral: Mistral's attention, and experts in every block."""

from __future__ import annotations

from dsgen.families import experts, rows
from dsgen.families.family import UNKNOWN_STYLE, Family
from dsgen.families.keys import LOCAL_EXPERTS, SPLIT, keys
from dsgen.families.orders import ATTENTION, FIRST, OUT, SECOND, Order

__all__ = ["MIXTRAL"]


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
    read=experts.width,
    layout=rows.llama_frame(sparse=(*rows.attention(), *rows.ROUTER, *rows.EXPERTS, *rows.TWO_NORMS)),
    order=Order(sparse=f"{FIRST} {ATTENTION} {OUT} {SECOND} mlp"),
    autotp=UNKNOWN_STYLE,
    leaf=True,
    parts={"gate": experts.ROUTER, "w1": experts.PAIR, "w3": experts.PAIR, "w2": experts.DOWN},
)
