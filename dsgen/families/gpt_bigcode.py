"""GPT-BigCode (StarCoder, SantaCoder): GPT-2 with one key and value for all heads."""

from __future__ import annotations

from dsgen.families import rows
from dsgen.families.family import AutoTP, Facts, Family
from dsgen.families.keys import FOUR_H, GPT2_NAMES, SPLIT, keys
from dsgen.families.orders import GPT2 as BLOCK
from dsgen.families.orders import Order
from dsgen.families.reading import Reader
from dsgen.shapes.profiles import Model

__all__ = ["GPT_BIGCODE"]


def _read(reader: Reader, _: Facts) -> dict[str, object]:
    reader.demand_fused("activation_function")
    return {}


def _mask(model: Model) -> int:
    """Bytes of GPTBigCodeModel.bias: one for every pair of positions."""
    return model.max_positions**2


GPT_BIGCODE = Family(
    model_type="gpt_bigcode",
    huggingface="GPTBigCodeForCausalLM",
    keys=keys(12, 768, 12, 1, SPLIT, FOUR_H, 50257, 1024, tied=True, names=GPT2_NAMES),
    gated=False,
    pinned={"multi_query": True, "add_cross_attention": False},
    dropouts={"attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1},
    read=_read,
    layout=rows.Layout(
        before=(
            *rows.embedding("transformer.wte.weight"),
            rows.Row("transformer.wpe.weight", ("positions", "hidden"), "position"),
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
    order=Order(dense=BLOCK, ahead="wte wpe drop", asks="mlp.dropout"),
    buffers=_mask,
    autotp=AutoTP(refused="AutoTP of {} stops in forward: query, key and value are one matrix, cut across"),
)
