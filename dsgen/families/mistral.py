"""Mistral: Llama without biases, with a window of local attention."""

from __future__ import annotations

from dsgen.families import rows
from dsgen.families.config_keys import SPLIT, keys
from dsgen.families.family import AutoTP, Family, OlderLoss
from dsgen.families.parts.llama import llama_forward
from dsgen.families.tape import liger

__all__ = ["MISTRAL"]

MISTRAL = Family(
    model_type="mistral",
    huggingface="MistralForCausalLM",
    keys=keys(32, 4096, 32, 8, SPLIT, 14336, 32000, 131072, tied=False, sliding_window=4096),
    layout=rows.llama_frame(dense=(*rows.attention(), *rows.gated_mlp(), *rows.TWO_NORMS)),
    forward=llama_forward(liger_norm=liger.norm),
    older_loss=OlderLoss((4, 48)),
    autotp=AutoTP(head=True, tied_head=True),
)
