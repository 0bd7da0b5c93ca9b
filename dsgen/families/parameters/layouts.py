"""The tensors of every supported model_type, in the order in which Hugging Face's class names its parameters.

Shapes are symbols ("hidden", "q", "ffn" ...) that `counts` resolves for one model. Source of a layout: the class its
field `huggingface` names, transformers 5.23, compared tensor by tensor in tests/families/test_parameters.py.
"""

from __future__ import annotations

from dsgen.families.parameters.layouts_apart import (
    GLM4,
    GLM4_MOE,
    GPT_BIGCODE,
    GRANITE_MIXTURE,
    OLMO2_ATTENTION,
    PHI,
    STABLELM,
    STARCODER2,
)
from dsgen.families.parameters.layouts_encoders import MT5, T5
from dsgen.families.parameters.rows import Layout, Tensor, attention, conv1d, gated_mlp, layer_norm, linear, norm

__all__ = ["LAYOUTS"]

# transformers 5 keeps the experts of a layer in two 3-D tensors; releases before 5 had three matrices an expert.
_EXPERTS = (
    Tensor("mlp.experts.gate_up_proj", ("experts", "expert_ffn_pair", "hidden"), "expert"),
    Tensor("mlp.experts.down_proj", ("experts", "hidden", "expert_ffn"), "expert"),
)
_ROUTER = (Tensor("mlp.gate.weight", ("experts", "hidden"), "router"),)
_TWO_NORMS = (*norm("input_layernorm"), *norm("post_attention_layernorm"))
_FOUR_NORMS = (*_TWO_NORMS, *norm("pre_feedforward_layernorm"), *norm("post_feedforward_layernorm"))
_TWO_LATE_NORMS = (*norm("post_attention_layernorm"), *norm("post_feedforward_layernorm"))
_MLA = (
    *linear("self_attn.q_proj", "q", "hidden", "attention", when="plain_query"),
    *linear("self_attn.q_a_proj", "q_rank", "hidden", "attention", bias_when="query_rank_bias", when="query_rank"),
    *norm("self_attn.q_a_layernorm", "q_rank", when="query_rank"),
    *linear("self_attn.q_b_proj", "q", "q_rank", "attention", when="query_rank"),
    *linear("self_attn.kv_a_proj_with_mqa", "kv_rank_rope", "hidden", "attention", bias_when="attention_bias"),
    *norm("self_attn.kv_a_layernorm", "kv_rank"),
    *linear("self_attn.kv_b_proj", "kv_expanded", "kv_rank", "attention"),
    *linear("self_attn.o_proj", "hidden", "v", "attention", bias_when="attention_bias"),
)


def _llama(
    huggingface: str,
    *,
    dense: tuple[Tensor, ...] = (),
    sparse: tuple[Tensor, ...] = (),
    biases: bool = False,
    mlp_biases: bool = False,
    shared: bool = False,
    split_heads: bool = False,
) -> Layout:
    """The frame that Llama's descendants share: embed_tokens, layers, norm; every one is gated."""
    return Layout(
        huggingface=huggingface,
        before=(Tensor("model.embed_tokens.weight", ("vocab", "hidden"), "embedding"),),
        block="model.layers.*",
        dense=dense,
        sparse=sparse,
        after=norm("model.norm"),
        gated=True,
        biases=biases,
        mlp_biases=mlp_biases,
        shared=shared,
        split_heads=split_heads,
    )


def _deepseek(huggingface: str) -> Layout:
    """MLA, and experts beside shared ones."""
    return _llama(
        huggingface,
        dense=(*_MLA, *gated_mlp(), *_TWO_NORMS),
        sparse=(*_MLA, *_EXPERTS, *_ROUTER, *gated_mlp("mlp.shared_experts", "shared_ffn"), *_TWO_NORMS),
        biases=True,
        shared=True,
    )


def _wte(name: str) -> tuple[Tensor, ...]:
    return (Tensor(name, ("vocab", "hidden"), "embedding"),)


def _four_h(block: str, *, bias: bool = True) -> tuple[Tensor, ...]:
    """Megatron's names of the two feed-forward matrices."""
    return (
        *linear(f"{block}.dense_h_to_4h", "ffn", "hidden", "mlp", bias=bias),
        *linear(f"{block}.dense_4h_to_h", "hidden", "ffn", "mlp", bias=bias),
    )


def _fused_attention(name: str, *, bias: bool = True) -> tuple[Tensor, ...]:
    """Megatron's fused query, key and value, and the output matrix."""
    return (
        *linear(f"{name}.query_key_value", "qkv", "hidden", "attention", bias=bias),
        *linear(f"{name}.dense", "hidden", "q", "attention", bias=bias),
    )


_GPT2 = Layout(
    huggingface="GPT2LMHeadModel",
    before=(*_wte("transformer.wte.weight"), Tensor("transformer.wpe.weight", ("positions", "hidden"), "position")),
    block="transformer.h.*",
    dense=(
        *layer_norm("ln_1"),
        *conv1d("attn.c_attn", "hidden", "qkv", "attention"),
        *conv1d("attn.c_proj", "q", "hidden", "attention"),
        *layer_norm("ln_2"),
        *conv1d("mlp.c_fc", "hidden", "ffn", "mlp"),
        *conv1d("mlp.c_proj", "ffn", "hidden", "mlp"),
    ),
    after=layer_norm("transformer.ln_f"),
    gated=False,
    same_heads=True,
    split_heads=True,
)
_GPT_NEOX = Layout(
    huggingface="GPTNeoXForCausalLM",
    before=_wte("gpt_neox.embed_in.weight"),
    block="gpt_neox.layers.*",
    dense=(
        *layer_norm("input_layernorm"),
        *layer_norm("post_attention_layernorm"),
        *_fused_attention("attention"),
        *_four_h("mlp"),
    ),
    after=layer_norm("gpt_neox.final_layer_norm"),
    gated=False,
    same_heads=True,
    split_heads=True,
)
_GPTJ = Layout(
    huggingface="GPTJForCausalLM",
    before=_wte("transformer.wte.weight"),
    block="transformer.h.*",
    dense=(
        *layer_norm("ln_1"),
        *linear("attn.k_proj", "kv", "hidden", "attention"),
        *linear("attn.v_proj", "kv", "hidden", "attention"),
        *linear("attn.q_proj", "q", "hidden", "attention"),
        *linear("attn.out_proj", "hidden", "q", "attention"),
        *linear("mlp.fc_in", "ffn", "hidden", "mlp", bias=True),
        *linear("mlp.fc_out", "hidden", "ffn", "mlp", bias=True),
    ),
    after=layer_norm("transformer.ln_f"),
    head_bias=True,
    gated=False,
    same_heads=True,
    split_heads=True,
)
_OPT = Layout(
    huggingface="OPTForCausalLM",
    before=(
        Tensor("model.decoder.embed_tokens.weight", ("vocab", "embedding"), "embedding"),
        Tensor("model.decoder.embed_positions.weight", ("positions_and_2", "hidden"), "position"),
        *linear("model.decoder.project_out", "embedding", "hidden", "embedding", when="projected"),
        *linear("model.decoder.project_in", "hidden", "embedding", "embedding", when="projected"),
        *layer_norm("model.decoder.final_layer_norm", when="final_norm"),
    ),
    block="model.decoder.layers.*",
    dense=(
        *linear("self_attn.k_proj", "kv", "hidden", "attention", bias=True),
        *linear("self_attn.v_proj", "kv", "hidden", "attention", bias=True),
        *linear("self_attn.q_proj", "q", "hidden", "attention", bias=True),
        *linear("self_attn.out_proj", "hidden", "q", "attention", bias=True),
        *layer_norm("self_attn_layer_norm"),
        *linear("fc1", "ffn", "hidden", "mlp", bias=True),
        *linear("fc2", "hidden", "ffn", "mlp", bias=True),
        *layer_norm("final_layer_norm"),
    ),
    after=(),
    gated=False,
    same_heads=True,
    split_heads=True,
)
_BLOOM = Layout(
    huggingface="BloomForCausalLM",
    before=(*_wte("transformer.word_embeddings.weight"), *layer_norm("transformer.word_embeddings_layernorm")),
    block="transformer.h.*",
    dense=(
        *layer_norm("input_layernorm"),
        *_fused_attention("self_attention"),
        *layer_norm("post_attention_layernorm"),
        *_four_h("mlp"),
    ),
    after=layer_norm("transformer.ln_f"),
    gated=False,
    same_heads=True,
    split_heads=True,
    ffn_factor=4,
)
_FALCON = Layout(
    huggingface="FalconForCausalLM",
    before=_wte("transformer.word_embeddings.weight"),
    block="transformer.h.*",
    dense=(
        *_fused_attention("self_attention", bias=False),
        *_four_h("mlp", bias=False),
        # One key head is the decoder of falcon-7b, with one norm; more is the "new decoder" of 40b and 180b, with two.
        *layer_norm("input_layernorm", when="one_kv_head"),
        *layer_norm("ln_attn", when="many_kv_heads"),
        *layer_norm("ln_mlp", when="many_kv_heads"),
    ),
    after=layer_norm("transformer.ln_f"),
    gated=False,
    split_heads=True,
)
_PHI3 = (
    *linear("self_attn.o_proj", "hidden", "q", "attention"),
    *linear("self_attn.qkv_proj", "qkv", "hidden", "attention"),
    *linear("mlp.gate_up_proj", "ffn_pair", "hidden", "mlp"),
    *linear("mlp.down_proj", "hidden", "ffn", "mlp"),
    *_TWO_NORMS,
)
_GPT_OSS = (
    Tensor("self_attn.sinks", ("heads",), "attention"),
    *attention(qkv_bias=True, o_bias=True),
    Tensor("mlp.router.weight", ("experts", "hidden"), "router"),
    Tensor("mlp.router.bias", ("experts",), "router"),
    Tensor("mlp.experts.gate_up_proj", ("experts", "hidden", "expert_ffn_pair"), "expert"),
    Tensor("mlp.experts.gate_up_proj_bias", ("experts", "expert_ffn_pair"), "expert"),
    Tensor("mlp.experts.down_proj", ("experts", "expert_ffn", "hidden"), "expert"),
    Tensor("mlp.experts.down_proj_bias", ("experts", "hidden"), "expert"),
    *_TWO_NORMS,
)
_LLAMA = (*attention(bias="attention_bias"), *gated_mlp(bias="mlp_bias"), *_TWO_NORMS)
_GEMMA = (*attention(bias="attention_bias"), *gated_mlp())
_QWEN3_ATTENTION = attention(bias="attention_bias", qk_norm=True)

LAYOUTS: dict[str, Layout] = {
    "bloom": _BLOOM,
    "cohere": _llama(
        "CohereForCausalLM",
        dense=(*attention(bias="attention_bias"), *gated_mlp(), *norm("input_layernorm")),
        biases=True,
    ),
    "deepseek_v2": _deepseek("DeepseekV2ForCausalLM"),
    "deepseek_v3": _deepseek("DeepseekV3ForCausalLM"),
    "falcon": _FALCON,
    "gemma": _llama("GemmaForCausalLM", dense=(*_GEMMA, *_TWO_NORMS), biases=True),
    "gemma2": _llama("Gemma2ForCausalLM", dense=(*_GEMMA, *_FOUR_NORMS), biases=True),
    "gemma3_text": _llama("Gemma3ForCausalLM", dense=(*_QWEN3_ATTENTION, *gated_mlp(), *_FOUR_NORMS), biases=True),
    "glm4": _llama("Glm4ForCausalLM", dense=GLM4, biases=True),
    "glm4_moe": _llama(
        "Glm4MoeForCausalLM",
        dense=(*GLM4_MOE, *gated_mlp(), *_TWO_NORMS),
        sparse=(*GLM4_MOE, *_EXPERTS, *_ROUTER, *gated_mlp("mlp.shared_experts", "shared_ffn"), *_TWO_NORMS),
        biases=True,
        shared=True,
    ),
    "gpt2": _GPT2,
    "gpt_bigcode": GPT_BIGCODE,
    "gpt_neox": _GPT_NEOX,
    "gpt_oss": _llama("GptOssForCausalLM", sparse=_GPT_OSS),
    "gptj": _GPTJ,
    "granite": _llama("GraniteForCausalLM", dense=_LLAMA, biases=True, mlp_biases=True),
    "granitemoe": _llama(
        "GraniteMoeForCausalLM", sparse=(*attention(bias="attention_bias"), *_TWO_NORMS, *GRANITE_MIXTURE), biases=True
    ),
    "llama": _llama("LlamaForCausalLM", dense=_LLAMA, biases=True, mlp_biases=True),
    "mistral": _llama("MistralForCausalLM", dense=(*attention(), *gated_mlp(), *_TWO_NORMS)),
    "mixtral": _llama("MixtralForCausalLM", sparse=(*attention(), *_ROUTER, *_EXPERTS, *_TWO_NORMS)),
    "mt5": MT5,
    "olmo2": _llama("Olmo2ForCausalLM", dense=(*OLMO2_ATTENTION, *gated_mlp(), *_TWO_LATE_NORMS), biases=True),
    "olmoe": _llama(
        "OlmoeForCausalLM", sparse=(*OLMO2_ATTENTION, *_ROUTER, *_EXPERTS, *_TWO_NORMS), biases=True, split_heads=True
    ),
    "opt": _OPT,
    "phi": PHI,
    "phi3": _llama("Phi3ForCausalLM", dense=_PHI3),
    "qwen2": _llama("Qwen2ForCausalLM", dense=(*attention(qkv_bias=True), *gated_mlp(), *_TWO_NORMS)),
    "qwen2_moe": _llama(
        "Qwen2MoeForCausalLM",
        dense=(*attention(qkv_bias=True), *gated_mlp(), *_TWO_NORMS),
        sparse=(
            *attention(qkv_bias=True),
            *_ROUTER,
            *_EXPERTS,
            *gated_mlp("mlp.shared_expert", "shared_ffn"),
            *linear("mlp.shared_expert_gate", "one", "hidden", "router"),
            *_TWO_NORMS,
        ),
        shared=True,
    ),
    "qwen3": _llama("Qwen3ForCausalLM", dense=(*_QWEN3_ATTENTION, *gated_mlp(), *_TWO_NORMS), biases=True),
    "qwen3_moe": _llama(
        "Qwen3MoeForCausalLM",
        dense=(*_QWEN3_ATTENTION, *gated_mlp(), *_TWO_NORMS),
        sparse=(*_QWEN3_ATTENTION, *_EXPERTS, *_ROUTER, *_TWO_NORMS),
        biases=True,
    ),
    "smollm3": _llama("SmolLM3ForCausalLM", dense=_LLAMA, biases=True, mlp_biases=True),
    "stablelm": STABLELM,
    "starcoder2": STARCODER2,
    "t5": T5,
}
