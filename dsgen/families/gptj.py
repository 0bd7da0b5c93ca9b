"""GPT-J: attention and feed-forward part side by side behind one norm, a head with a bias."""

from __future__ import annotations

from dsgen.families import rows
from dsgen.families.family import Family
from dsgen.families.keys import FOUR_H, GPT2_NAMES, HEADS, SPLIT, keys
from dsgen.families.orders import Order
from dsgen.shapes.profiles import Model

__all__ = ["GPTJ", "ROTARY"]

ROTARY = 64  # elements of a head that are rotated (rotary_dim of its config)
_FP32 = 4  # bytes


def _tables(model: Model) -> int:
    """Bytes of GPTJAttention.embed_positions: sines and cosines, which every block has of its own."""
    return _FP32 * model.layers * model.max_positions * min(ROTARY, model.head_size)


GPTJ = Family(
    model_type="gptj",
    huggingface="GPTJForCausalLM",
    keys=keys(28, 4096, 16, HEADS, SPLIT, FOUR_H, 50400, 2048, tied=False, names=GPT2_NAMES),
    gated=False,
    layout=rows.Layout(
        before=rows.embedding("transformer.wte.weight"),
        block="transformer.h.*",
        dense=(
            *rows.layer_norm("ln_1"),
            *rows.linear("attn.k_proj", "kv", "hidden", "attention"),
            *rows.linear("attn.v_proj", "kv", "hidden", "attention"),
            *rows.linear("attn.q_proj", "q", "hidden", "attention"),
            *rows.linear("attn.out_proj", "hidden", "q", "attention"),
            *rows.linear("mlp.fc_in", "ffn", "hidden", "mlp", bias=True),
            *rows.linear("mlp.fc_out", "hidden", "ffn", "mlp", bias=True),
        ),
        after=rows.layer_norm("transformer.ln_f"),
        head_bias=True,
    ),
    order=Order(
        dense="ln_1 attn attn.q_proj attn.k_proj attn.v_proj attn.out_proj attn.resid_dropout"
        " mlp mlp.fc_in mlp.act mlp.fc_out mlp.dropout",
        ahead="wte drop",
        registered="q_proj",
        parallel=("mlp.fc_in",),
    ),
    kernels=("flash",),
    wide_queries=True,
    buffers=_tables,
)
