"""The order in which the modules of every model type run, as names: a block's, and what is around the blocks.

Source: the classes of transformers 5.23 (models/*/modeling_*.py).
"""

from __future__ import annotations

__all__ = ["AHEAD", "BEHIND", "BEHIND_DECODER", "BLOCKS", "EMBEDDING", "HEAD", "SPARSE"]

_ATTENTION = "self_attn self_attn.q_proj self_attn.k_proj self_attn.v_proj"
_OUT = "self_attn.o_proj"
_HEAD_NORMS = "self_attn.q_norm self_attn.k_norm"
_NORMED = "self_attn self_attn.q_proj self_attn.q_norm self_attn.k_proj self_attn.k_norm self_attn.v_proj"
_GATED = "mlp mlp.gate_proj mlp.act_fn mlp.up_proj mlp.down_proj"
_FIRST, _SECOND = "input_layernorm", "post_attention_layernorm"
_SANDWICH = f"{_SECOND} pre_feedforward_layernorm {_GATED} post_feedforward_layernorm"
_LATENT = (
    "self_attn self_attn.q_proj self_attn.q_a_proj self_attn.q_a_layernorm self_attn.q_b_proj"
    " self_attn.kv_a_proj_with_mqa self_attn.kv_a_layernorm self_attn.kv_b_proj self_attn.o_proj"
)
_SHARED = "mlp mlp.gate mlp.experts mlp.experts.act_fn mlp.shared_experts " + " ".join(
    f"mlp.shared_experts.{name}" for name in ("gate_proj", "act_fn", "up_proj", "down_proj")
)
_DEEPSEEK = f"{_FIRST} {_LATENT} {_SECOND} {_GATED}", f"{_FIRST} {_LATENT} {_SECOND} {_SHARED}"
_GPT2 = "ln_1 attn attn.c_attn attn.c_proj attn.resid_dropout ln_2 mlp mlp.c_fc mlp.act mlp.c_proj mlp.dropout"
_DENSE_4H = "mlp mlp.dense_h_to_4h {} mlp.dense_4h_to_h"

_T5_PROJECTED = "layer.{0}.{1} layer.{0}.{1}.q layer.{0}.{1}.k layer.{0}.{1}.v"
_T5_SELF = f"layer.0 layer.0.layer_norm {_T5_PROJECTED.format(0, 'SelfAttention')}" + (
    " layer.0.SelfAttention.relative_attention_bias layer.0.SelfAttention.o layer.0.dropout"
)
_T5_CROSS = f"layer.1 layer.1.layer_norm {_T5_PROJECTED.format(1, 'EncDecAttention')}" + (
    " layer.1.EncDecAttention.o layer.1.dropout"
)
_T5_FEEDING = "layer.{0} layer.{0}.layer_norm layer.{0}.DenseReluDense " + (
    " ".join(f"layer.{{0}}.DenseReluDense.{name}" for name in ("wi", "wi_0", "act", "wi_1", "dropout", "wo"))
    + " layer.{0}.dropout"
)

# Modules of a block with a plain feed-forward part; what contains others comes before them.
BLOCKS = {
    "bloom": f"{_FIRST} self_attention self_attention.query_key_value self_attention.attention_dropout"
    f" self_attention.dense {_SECOND} {_DENSE_4H.format('mlp.gelu_impl')}",
    "cohere": f"{_FIRST} {_ATTENTION} {_OUT} {_GATED}",
    "deepseek_v2": _DEEPSEEK[0],
    "deepseek_v3": _DEEPSEEK[0],
    "falcon": f"{_FIRST} ln_attn ln_mlp self_attention self_attention.query_key_value self_attention.dense"
    f" {_DENSE_4H.format('mlp.act')}",
    "gemma2": f"{_FIRST} {_ATTENTION} {_OUT} {_SANDWICH}",
    "gemma3_text": f"{_FIRST} {_ATTENTION} {_HEAD_NORMS} {_OUT} {_SANDWICH}",
    "glm4": f"{_FIRST} {_ATTENTION} {_OUT} post_self_attn_layernorm {_SECOND}"
    " mlp mlp.gate_up_proj mlp.activation_fn mlp.down_proj post_mlp_layernorm",
    "glm4_moe": f"{_FIRST} {_ATTENTION} {_HEAD_NORMS} {_OUT} {_SECOND} {_GATED}",
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gpt_neox": f"{_FIRST} attention attention.query_key_value attention.dense post_attention_dropout {_SECOND}"
    f" {_DENSE_4H.format('mlp.act')} post_mlp_dropout",
    "gptj": "ln_1 attn attn.q_proj attn.k_proj attn.v_proj attn.out_proj attn.resid_dropout"
    " mlp mlp.fc_in mlp.act mlp.fc_out mlp.dropout",
    "llama": f"{_FIRST} {_ATTENTION} {_OUT} {_SECOND} {_GATED}",
    "olmo2": f"{_NORMED} {_OUT} {_SECOND} {_GATED} post_feedforward_layernorm",
    "opt": f"self_attn_layer_norm {_ATTENTION} self_attn.out_proj final_layer_norm fc1 activation_fn fc2",
    "opt post_norm": f"{_ATTENTION} self_attn.out_proj self_attn_layer_norm fc1 activation_fn fc2 final_layer_norm",
    "phi": f"{_FIRST} {_ATTENTION} self_attn.dense mlp mlp.fc1 mlp.activation_fn mlp.fc2 resid_dropout",
    "phi3": f"{_FIRST} self_attn self_attn.qkv_proj {_OUT} resid_attn_dropout {_SECOND}"
    " mlp mlp.gate_up_proj mlp.activation_fn mlp.down_proj resid_mlp_dropout",
    "qwen3": f"{_FIRST} {_NORMED} {_OUT} {_SECOND} {_GATED}",
    "qwen3_moe": f"{_FIRST} {_NORMED} {_OUT} {_SECOND} {_GATED}",
    "t5 between": "encoder.final_layer_norm encoder.dropout decoder decoder.embed_tokens decoder.dropout",
    "t5 decoder": f"{_T5_SELF} {_T5_CROSS} {_T5_FEEDING.format(2)}",
    "t5 encoder": f"{_T5_SELF} {_T5_FEEDING.format(1)}",
    "stablelm": f"{_FIRST} {_ATTENTION} {_OUT} {_SECOND} {_GATED} dropout",
    "starcoder2": f"{_FIRST} {_ATTENTION} {_OUT} {_SECOND} mlp mlp.c_fc mlp.act mlp.c_proj",
}
# Modules of a block with experts.
SPARSE = {
    "deepseek_v2": _DEEPSEEK[1],
    "deepseek_v3": _DEEPSEEK[1],
    "glm4_moe": f"{_FIRST} {_ATTENTION} {_HEAD_NORMS} {_OUT} {_SECOND} {_SHARED}",
    "granitemoe": f"{_FIRST} {_ATTENTION} {_OUT} {_SECOND} block_sparse_moe block_sparse_moe.router"
    " block_sparse_moe.experts block_sparse_moe.experts.act_fn",
    "olmoe": f"{_FIRST} {_NORMED} {_OUT} {_SECOND} mlp mlp.gate mlp.experts mlp.experts.act_fn",
    "gpt_oss": f"{_FIRST} {_ATTENTION} {_OUT} {_SECOND} mlp mlp.router mlp.experts",
    "mixtral": f"{_FIRST} {_ATTENTION} {_OUT} {_SECOND} mlp",
    "qwen2_moe": f"{_FIRST} {_ATTENTION} {_OUT} {_SECOND} mlp",
    "qwen3_moe": f"{_FIRST} {_NORMED} {_OUT} {_SECOND} mlp",
}
# What runs before the blocks besides the embedding, and what follows the norm before the head.
AHEAD = {
    "bloom": "word_embeddings word_embeddings_layernorm",
    "falcon": "word_embeddings rotary_emb",
    "gpt2": "wte wpe drop",
    "gpt_bigcode": "wte wpe drop",
    "gpt_neox": "embed_in emb_dropout rotary_emb",
    "gptj": "wte drop",
    "opt": "embed_tokens embed_positions project_in",
    "mt5": "shared dropout",
    "phi": "embed_tokens embed_dropout rotary_emb",
    "t5": "shared dropout",
}
EMBEDDING = "embed_tokens rotary_emb"
HEAD = "lm_head"
BEHIND_DECODER = f"final_layer_norm dropout {HEAD}"  # behind one that has an encoder
BEHIND = f"norm ln_f final_layer_norm final_layernorm project_out {HEAD}"
