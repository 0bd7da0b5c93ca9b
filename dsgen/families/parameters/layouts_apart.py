"""Layouts of models whose attention and feed-forward part have names of their own.

Source: as in layouts.py.
"""

from __future__ import annotations

from dsgen.families.parameters.rows import Layout, Tensor, attention, gated_mlp, layer_norm, linear, norm

__all__ = ["GLM4", "GLM4_MOE", "GPT_BIGCODE", "GRANITE_MIXTURE", "OLMO2_ATTENTION", "PHI", "STABLELM", "STARCODER2"]

_EMBEDDING = (Tensor("model.embed_tokens.weight", ("vocab", "hidden"), "embedding"),)

_BIASED_QKV = (
    *linear("self_attn.q_proj", "q", "hidden", "attention", bias_when="attention_bias"),
    *linear("self_attn.k_proj", "kv", "hidden", "attention", bias_when="attention_bias"),
    *linear("self_attn.v_proj", "kv", "hidden", "attention", bias_when="attention_bias"),
    *linear("self_attn.o_proj", "hidden", "q", "attention"),
)
GLM4_MOE = (
    *_BIASED_QKV,
    *norm("self_attn.q_norm", "head", when="qk_norm"),
    *norm("self_attn.k_norm", "head", when="qk_norm"),
)
GRANITE_MIXTURE = (
    Tensor("block_sparse_moe.router.weight", ("experts", "hidden"), "router"),
    Tensor("block_sparse_moe.experts.gate_up_proj", ("experts", "expert_ffn_pair", "hidden"), "expert"),
    Tensor("block_sparse_moe.experts.down_proj", ("experts", "hidden", "expert_ffn"), "expert"),
)
GLM4 = (
    *_BIASED_QKV,
    *linear("mlp.gate_up_proj", "ffn_pair", "hidden", "mlp"),
    *linear("mlp.down_proj", "hidden", "ffn", "mlp"),
    *norm("input_layernorm"),
    *norm("post_attention_layernorm"),
    *norm("post_self_attn_layernorm"),
    *norm("post_mlp_layernorm"),
)
GPT_BIGCODE = Layout(
    huggingface="GPTBigCodeForCausalLM",
    before=(
        Tensor("transformer.wte.weight", ("vocab", "hidden"), "embedding"),
        Tensor("transformer.wpe.weight", ("positions", "hidden"), "position"),
    ),
    block="transformer.h.*",
    dense=(
        *layer_norm("ln_1"),
        *linear("attn.c_attn", "qkv", "hidden", "attention", bias=True),
        *linear("attn.c_proj", "hidden", "q", "attention", bias=True),
        *layer_norm("ln_2"),
        *linear("mlp.c_fc", "ffn", "hidden", "mlp", bias=True),
        *linear("mlp.c_proj", "hidden", "ffn", "mlp", bias=True),
    ),
    after=layer_norm("transformer.ln_f"),
    gated=False,
    one_key_head=True,
    split_heads=True,
    dropouts=True,
)
OLMO2_ATTENTION = (
    *attention(bias="attention_bias"),
    *norm("self_attn.q_norm", "q"),  # over all heads together
    *norm("self_attn.k_norm", "kv"),
)
PHI = Layout(
    huggingface="PhiForCausalLM",
    before=_EMBEDDING,
    block="model.layers.*",
    dense=(
        *linear("self_attn.q_proj", "q", "hidden", "attention", bias=True),
        *linear("self_attn.k_proj", "kv", "hidden", "attention", bias=True),
        *linear("self_attn.v_proj", "kv", "hidden", "attention", bias=True),
        *linear("self_attn.dense", "hidden", "q", "attention", bias=True),
        *linear("mlp.fc1", "ffn", "hidden", "mlp", bias=True),
        *linear("mlp.fc2", "hidden", "ffn", "mlp", bias=True),
        *layer_norm("input_layernorm"),
    ),
    after=layer_norm("model.final_layernorm"),
    head_bias=True,
    gated=False,
    dropouts=True,
)
STABLELM = Layout(
    huggingface="StableLmForCausalLM",
    before=_EMBEDDING,
    block="model.layers.*",
    dense=(
        *_BIASED_QKV,
        *gated_mlp(),
        *layer_norm("input_layernorm"),
        *layer_norm("post_attention_layernorm"),
    ),
    after=layer_norm("model.norm"),
    gated=True,
    split_heads=True,
    biases=True,
)
STARCODER2 = Layout(
    huggingface="Starcoder2ForCausalLM",
    before=_EMBEDDING,
    block="model.layers.*",
    dense=(
        *attention(bias="attention_bias"),
        *linear("mlp.c_fc", "ffn", "hidden", "mlp", bias_when="attention_bias"),  # one key is for all biases
        *linear("mlp.c_proj", "hidden", "ffn", "mlp", bias_when="attention_bias"),
        *layer_norm("input_layernorm"),
        *layer_norm("post_attention_layernorm"),
    ),
    after=layer_norm("model.norm"),
    gated=False,
    biases=True,
    dropouts=True,
)
