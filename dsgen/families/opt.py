"""OPT: learned positions and LayerNorms, before each part of a block or, in opt-350m, behind it."""

from __future__ import annotations

from dsgen.families import rows
from dsgen.families.family import Facts, Family
from dsgen.families.keys import HEADS, PLAIN_HEADS, SPLIT, keys
from dsgen.families.orders import ATTENTION, Order
from dsgen.families.reading import Reader

__all__ = ["OPT"]

_NAMES: dict[str, tuple[str, ...]] = {**PLAIN_HEADS, "ffn_size": ("ffn_dim",), "post_norm": ()}


def _read(reader: Reader, facts: Facts) -> dict[str, object]:
    projected = facts["embedding_size"] != facts["hidden_size"]
    return {
        "post_norm": not reader.boolean("do_layer_norm_before", True),
        "embedding_size": facts["embedding_size"] if projected else 0,
    }


def _write(facts: Facts) -> dict[str, object]:
    return {
        "do_layer_norm_before": not facts["post_norm"],
        "word_embed_proj_dim": facts["embedding_size"] or facts["hidden_size"],
    }


OPT = Family(
    model_type="opt",
    huggingface="OPTForCausalLM",
    keys=keys(
        *(12, 768, 12, HEADS, SPLIT, 3072, 50272, 2048), tied=True, names=_NAMES, embedding_size=0, post_norm=False
    ),
    gated=False,
    pinned={"enable_bias": True, "layer_norm_elementwise_affine": True, "_remove_final_layer_norm": False},
    read=_read,
    write=_write,
    layout=rows.Layout(
        before=(
            rows.Row("model.decoder.embed_tokens.weight", ("vocab", "embedding"), "embedding"),
            rows.Row("model.decoder.embed_positions.weight", ("positions_and_2", "hidden"), "position"),
            *rows.linear("model.decoder.project_out", "embedding", "hidden", "embedding", when="projected"),
            *rows.linear("model.decoder.project_in", "hidden", "embedding", "embedding", when="projected"),
            *rows.layer_norm("model.decoder.final_layer_norm", when="final_norm"),
        ),
        block="model.decoder.layers.*",
        dense=(
            *rows.linear("self_attn.k_proj", "kv", "hidden", "attention", bias=True),
            *rows.linear("self_attn.v_proj", "kv", "hidden", "attention", bias=True),
            *rows.linear("self_attn.q_proj", "q", "hidden", "attention", bias=True),
            *rows.linear("self_attn.out_proj", "hidden", "q", "attention", bias=True),
            *rows.layer_norm("self_attn_layer_norm"),
            *rows.linear("fc1", "ffn", "hidden", "mlp", bias=True),
            *rows.linear("fc2", "hidden", "ffn", "mlp", bias=True),
            *rows.layer_norm("final_layer_norm"),
        ),
        after=(),
    ),
    order=Order(
        dense=f"self_attn_layer_norm {ATTENTION} self_attn.out_proj final_layer_norm fc1 activation_fn fc2",
        late=f"{ATTENTION} self_attn.out_proj self_attn_layer_norm fc1 activation_fn fc2 final_layer_norm",
        ahead="embed_tokens embed_positions project_in",
        asks="",
        registered="k_proj",
    ),
)
