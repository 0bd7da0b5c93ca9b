"""Reading Hugging Face's config.json, and the round trip with the config that facts make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from dsgen.families import FAMILIES
from dsgen.families.hf_config import model_from_hf, to_hf_config
from dsgen.families.parameters import model_types, parameter_count
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.profiles import Model, type_name

PROFILES = Path(__file__).parents[2] / "profiles" / "model"
WHERE = "config.json"
LLAMA: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "vocab_size": 32000,
}
# Defaults that a profile writes, because the one that it extends says otherwise.
AGAIN: tuple[tuple[str, object], ...] = (("dropout", False), ("q_lora_rank", 0), ("sliding_window", 0))


def facts_of(name: str) -> dict[str, Any]:
    """The `model:` part of a built-in profile, its parents' included."""
    sheet = YAML(typ="safe").load((PROFILES / f"{name}.yaml").read_text(encoding="utf-8"))
    inherited = facts_of(sheet["extends"]) if "extends" in sheet else {}
    return {**inherited, **sheet["model"]}


def read(config: dict[str, Any]) -> Model:
    facts: dict[str, Any] = model_from_hf(config, WHERE)
    return Model(**facts)


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES.glob("*.yaml")))
def test_facts_survive_the_round_trip(name: str) -> None:
    facts = facts_of(name)
    said = {fact: value for fact, value in facts.items() if (fact, value) not in AGAIN}
    assert model_from_hf(to_hf_config(facts), WHERE) == said


def test_model_types_are_those_that_can_be_counted() -> None:
    assert tuple(FAMILIES) == model_types()


@pytest.mark.parametrize("model_type", FAMILIES)
def test_class_defaults_make_a_model_that_can_be_counted(model_type: str) -> None:
    # As a nested part, a config may leave out everything.
    assert parameter_count(read({"text_config": {"model_type": model_type}})) > 0


def test_llama_defaults() -> None:
    facts = model_from_hf(LLAMA, WHERE)
    assert facts == {
        "architecture": "llama",
        "layers": 32,
        "hidden_size": 4096,
        "attention_heads": 32,
        "kv_heads": 32,
        "head_size": 128,
        "ffn_size": 11008,
        "vocab_size": 32000,
        "max_positions": 2048,
        "tied_embeddings": False,
        "gated_ffn": True,
    }
    assert all(type(value) in (int, str, bool) for value in facts.values())


@pytest.mark.parametrize(
    ("change", "fact", "value"),
    [
        ({"num_key_value_heads": 8}, "kv_heads", 8),
        ({"num_key_value_heads": None}, "kv_heads", 32),
        ({"head_dim": 64}, "head_size", 64),
        ({"head_dim": None}, "head_size", 128),
        ({"tie_word_embeddings": True}, "tied_embeddings", True),
        ({"attention_bias": True}, "attention_bias", True),
        ({"model_type": "mistral"}, "kv_heads", 8),
        ({"model_type": "mistral"}, "sliding_window", 4096),
        ({"model_type": "mistral", "sliding_window": None}, "sliding_window", 0),
        ({"model_type": "qwen3"}, "head_size", 128),
        ({"model_type": "qwen2", "sliding_window": 512}, "sliding_window", 0),
        ({"model_type": "qwen2", "sliding_window": 512, "use_sliding_window": True}, "sliding_window", 512),
        ({"model_type": "gemma2"}, "tied_embeddings", True),
        ({"model_type": "qwen3_moe", "mlp_only_layers": [0, 1]}, "dense_layers", 2),
        ({"model_type": "qwen2_moe", "mlp_only_layers": [0]}, "dense_layers", 1),
        ({"model_type": "qwen2_moe", "shared_expert_intermediate_size": 20480}, "shared_width", 20480),
        ({"model_type": "qwen2_moe", "sliding_window": 512}, "sliding_window", 0),
        ({"model_type": "gpt_oss", "num_local_experts": 32}, "expert_ffn_size", 11008),
        ({"model_type": "glm4_moe"}, "head_size", 128),
        ({"model_type": "glm4_moe", "num_attention_heads": 96}, "head_size", 42),  # the class rounds down
        ({"model_type": "glm4_moe", "use_qk_norm": True}, "qk_norm", True),
        ({"model_type": "glm4_moe", "rope_parameters": {"partial_rotary_factor": 0.5}}, "dense_layers", 1),
        ({"model_type": "granitemoe", "num_local_experts": 40}, "expert_ffn_size", 11008),
        ({"model_type": "olmoe", "clip_qkv": None}, "expert_ffn_size", 11008),
        ({"model_type": "deepseek_v2", "topk_method": "greedy", "n_group": 1}, "expert_groups", 0),
        ({"model_type": "deepseek_v2", "topk_method": "group_limited_greedy", "n_group": 8}, "expert_groups", 8),
        ({"model_type": "deepseek_v2", "q_lora_rank": None}, "q_lora_rank", 0),
        ({"model_type": "deepseek_v3", "q_lora_rank": None}, "q_lora_rank", 0),
        ({"model_type": "deepseek_v3", "qk_nope_head_dim": 64}, "head_size", 128),
        ({"model_type": "opt", "ffn_dim": 16384, "word_embed_proj_dim": 4096}, "embedding_size", 0),
        ({"model_type": "opt", "ffn_dim": 16384, "do_layer_norm_before": False}, "post_norm", True),
        ({"model_type": "falcon", "multi_query": True}, "kv_heads", 1),
        ({"model_type": "cohere"}, "tied_embeddings", True),
        ({"model_type": "glm4"}, "attention_bias", True),
        ({"model_type": "glm4", "head_dim": None, "rope_parameters": {"rope_type": "default"}}, "head_size", 128),
        ({"model_type": "gpt_bigcode"}, "kv_heads", 1),
        ({"model_type": "gpt_bigcode", "activation_function": "gelu"}, "dropout", True),
        ({"model_type": "gpt_bigcode", "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0.0}, "dropout", False),
        ({"model_type": "granite", "mlp_bias": True}, "mlp_bias", True),
        ({"model_type": "smollm3", "no_rope_layers": [1, 1, 1, 0] * 8}, "layers", 32),
        ({"model_type": "stablelm", "use_qkv_bias": True}, "attention_bias", True),
        ({"model_type": "stablelm", "num_key_value_heads": 8, "partial_rotary_factor": 0.25}, "kv_heads", 8),
        ({"model_type": "starcoder2", "use_bias": False}, "attention_bias", False),
        ({"model_type": "starcoder2"}, "attention_bias", True),
        (
            {"model_type": "starcoder2", "attention_dropout": 0.1, "embedding_dropout": 0.1, "residual_dropout": 0.1},
            "dropout",
            True,
        ),
        ({"model_type": "olmo2", "num_key_value_heads": 8}, "kv_heads", 8),
        ({"model_type": "phi", "partial_rotary_factor": 0.25, "resid_pdrop": 0.1}, "dropout", True),
        ({"model_type": "phi", "partial_rotary_factor": 0.25}, "gated_ffn", False),
        ({"model_type": "phi", "rope_parameters": {"partial_rotary_factor": 0.25}}, "kv_heads", 32),
        ({"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 8}, "kv_heads", 8),
    ],
)
def test_one_key(change: dict[str, Any], fact: str, value: object) -> None:
    model = read({**LLAMA, **change})
    assert getattr(model, fact) == value
    assert type(getattr(model, fact)) is type(value)


def test_names_of_gpt2() -> None:
    config = {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
    }
    assert parameter_count(read(config)) == 124_439_808
    assert read({**config, "n_inner": 1000}).ffn_size == 1000
    assert read({**config, "n_inner": None}).ffn_size == 3072


def test_names_of_bloom() -> None:
    config = {"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16, "vocab_size": 250880}
    assert parameter_count(read(config)) == 559_214_592


def test_a_file_of_a_model_that_sees_and_has_no_text_part_is_refused() -> None:
    with pytest.raises(DsgenError, match=r"qwen2_5_vl.*(?s:.)*the vision tower comes on top and is not counted"):
        read({**LLAMA, "model_type": "qwen2_5_vl", "vision_config": {"depth": 32}})


def test_a_multimodal_file_gives_its_text_part() -> None:
    # Gemma 3 4B: the nested part says only what differs from Gemma3TextConfig's defaults.
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    config = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 1152}}
    assert model_from_hf(config, WHERE) == facts_of("gemma-3-4b")


def test_the_text_part_of_ministral_3_is_a_family_of_its_own() -> None:
    """Ministral 3 8B: the outer model_type is that of the multimodal class."""
    rope = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1}
    text = {"model_type": "ministral3", "num_hidden_layers": 34, "sliding_window": None, "rope_parameters": rope}
    model = read({"model_type": "mistral3", "text_config": text, "vision_config": {}})

    assert model.architecture == "ministral3"
    assert (model.head_size, model.max_positions, model.tied_embeddings) == (128, 262144, False)
    assert model.sliding_window == 0
    block = 4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336 + 2 * 4096
    assert parameter_count(model) == 2 * 131072 * 4096 + 34 * block + 4096


@pytest.mark.parametrize(("outer", "inner", "tied"), [(True, None, True), (True, False, False), (None, None, False)])
def test_the_outer_tie_counts_where_the_text_part_is_silent(outer: object, inner: object, tied: bool) -> None:
    text = {"model_type": "qwen2", "tie_word_embeddings": inner}
    assert read({"model_type": "qwen2_vl", "tie_word_embeddings": outer, "text_config": text}).tied_embeddings is tied


@pytest.mark.parametrize(
    "name", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"]
)
def test_a_missing_essential_is_named(name: str) -> None:
    config = {key: value for key, value in LLAMA.items() if key != name}
    with pytest.raises(DsgenError, match=rf"^config\.json: no {name}; .*\n  Give the whole config\.json"):
        model_from_hf(config, WHERE)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_hidden_layers": 1.9}, "num_hidden_layers is 1.9; it must be a whole number of at least 1"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers is '32'; it must be a whole number"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True; it must be a whole number"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be a whole number of at least 1"),
        ({"hidden_size": -1}, "hidden_size is -1"),
        ({"hidden_size": [4096]}, "hidden_size is"),
        ({"vocab_size": 32000.0}, "vocab_size is 32000.0"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'; it must be true or false"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1; it must be true or false"),
        ({"num_attention_heads": 31}, "hidden_size 4096 is no multiple of 31 attention heads"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": [3]}, "mlp_only_layers is"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": 3}, "mlp_only_layers is 3"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": {"0": 0}}, "mlp_only_layers is"),
        ({"model_type": "qwen3_moe", "decoder_sparse_step": 2}, "decoder_sparse_step is 2"),
        ({"model_type": "qwen2_moe", "mlp_only_layers": [1]}, "mlp_only_layers is"),
        ({"model_type": "qwen2_moe", "decoder_sparse_step": 2}, "decoder_sparse_step is 2"),
        ({"model_type": "qwen2_moe", "norm_topk_prob": True}, "norm_topk_prob is True"),
        ({"model_type": "qwen2_moe", "qkv_bias": False}, "qkv_bias is False"),
        ({"model_type": "qwen2_moe", "use_sliding_window": True}, "use_sliding_window is True"),
        ({"model_type": "qwen2_moe", "shared_expert_intermediate_size": 0}, "shared_expert_intermediate_size is 0"),
        ({"model_type": "glm4_moe", "norm_topk_prob": False}, "norm_topk_prob is False"),
        ({"model_type": "glm4_moe", "partial_rotary_factor": 1.0}, "partial_rotary_factor is 1.0"),
        ({"model_type": "olmoe", "clip_qkv": 8.0}, "clip_qkv is 8.0"),
        ({"model_type": "olmoe", "norm_topk_prob": True}, "norm_topk_prob is True"),
        ({"model_type": "deepseek_v2", "mlp_bias": True}, "mlp_bias is True"),
        ({"model_type": "deepseek_v2", "topk_method": "noaux_tc"}, "topk_method is 'noaux_tc'"),
        ({"model_type": "deepseek_v2", "topk_method": "group_limited_greedy"}, "n_group is None"),
        ({"model_type": "falcon", "multi_query": False}, "multi_query is false"),
        ({"model_type": "falcon", "parallel_attn": False}, "parallel_attn is False"),
        ({"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 1}, "num_kv_heads is 1"),
        (
            {"model_type": "falcon", "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1},
            "num_ln_in_parallel",
        ),
        ({"model_type": "opt", "ffn_dim": 4, "enable_bias": False}, "enable_bias is False"),
        ({"model_type": "gpt_neox", "attention_bias": False}, "attention_bias is False"),
        ({"model_type": "cohere", "use_qk_norm": True}, "use_qk_norm is True"),
        ({"model_type": "glm4", "partial_rotary_factor": 1.0}, "partial_rotary_factor is 1.0 with heads of 128"),
        ({"model_type": "gpt_bigcode", "multi_query": False}, "multi_query is False"),
        ({"model_type": "gpt_bigcode", "activation_function": "gelu_fast"}, "activation_function is 'gelu_fast'"),
        ({"model_type": "gpt_bigcode", "resid_pdrop": 0.0}, "attn_pdrop is 0.1, embd_pdrop is 0.1, resid_pdrop is 0.0"),
        ({"model_type": "smollm3", "no_rope_layer_interval": 2}, "no_rope_layer_interval is 2"),
        ({"model_type": "smollm3", "no_rope_layers": [1] * 32}, "no_rope_layers is"),
        ({"model_type": "smollm3", "use_sliding_window": True}, "use_sliding_window is True"),
        ({"model_type": "stablelm", "use_parallel_residual": True}, "use_parallel_residual is True"),
        ({"model_type": "stablelm", "qk_layernorm": True}, "qk_layernorm is True"),
        ({"model_type": "stablelm", "hidden_dropout": 0.1}, "hidden_dropout is 0.1"),
        ({"model_type": "starcoder2", "residual_dropout": 0.1}, "attention_dropout is 0.0, embedding_dropout is 0.0, "),
        ({"model_type": "starcoder2", "hidden_act": "gelu_new"}, "hidden_act is 'gelu_new'"),
        ({"model_type": "phi", "qk_layernorm": True}, "qk_layernorm is True"),
        ({"model_type": "phi", "hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"model_type": "phi", "partial_rotary_factor": 0.25, "resid_pdrop": "no"}, "resid_pdrop is 'no'"),
        ({"model_type": "phi", "partial_rotary_factor": 0.25, "resid_pdrop": 1}, "resid_pdrop is 1"),
        ({"model_type": "phi", "embd_pdrop": 0.1}, "embd_pdrop is 0.1"),
        ({"model_type": "phi"}, "partial_rotary_factor is 0.5 with heads of 128"),
        ({"model_type": "phi", "partial_rotary_factor": True}, "partial_rotary_factor is True"),
        ({"model_type": "phi", "rope_parameters": {"partial_rotary_factor": 1.0}}, "partial_rotary_factor is 1.0"),
    ],
)
def test_a_wrong_value_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(DsgenError) as caught:
        model_from_hf({**LLAMA, **change}, WHERE)
    assert str(caught.value).startswith(f"{WHERE}: {says}")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"zero_optimization": {"stage": 3}}, "a DeepSpeed config"),
        ({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>"}, "a tokenizer's config"),
        ({"peft_type": "LORA", "r": 8}, "a PEFT adapter's config"),
        ({"metadata": {"total_size": 1}, "weight_map": {}}, "an index of checkpoint shards"),
        ({"_class_name": "UNet2DConditionModel"}, "a diffusers config"),
        ({"do_sample": True, "temperature": 0.6}, "a generation config"),
        ({}, "no model_type"),
        ({"hello": "world"}, "no model_type"),
        ({"model_type": None}, "no model_type"),
    ],
)
def test_another_kind_of_file_is_recognized(config: dict[str, Any], says: str) -> None:
    with pytest.raises(DsgenError, match=rf"^config\.json: .*{says}.*\n  Give the config\.json"):
        model_from_hf(config, WHERE)


@pytest.mark.parametrize("model_type", ["bert", "qwen4", 7, ["llama"]])
def test_an_unsupported_model_type_names_the_known_ones(model_type: object) -> None:
    with pytest.raises(DsgenError, match=r"model_type is .*(?s:.)*Known: bloom, .*llama.*qwen3_moe"):
        model_from_hf({**LLAMA, "model_type": model_type}, WHERE)


def test_facts_of_an_unknown_architecture_make_no_config() -> None:
    with pytest.raises(DsgenError, match="model_type is 'rwkv'"):
        to_hf_config({**facts_of("7b"), "architecture": "rwkv"})


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
NAMES = sorted({name for family in FAMILIES.values() for key in family.keys for name in key.names} | {"text_config"})


@given(st.sampled_from(sorted(FAMILIES)), st.dictionaries(st.sampled_from(NAMES), JUNK, max_size=6), st.booleans())
def test_any_content_is_a_model_or_a_clear_error(model_type: str, junk: dict[str, Any], nested: bool) -> None:
    part = {**LLAMA, "model_type": model_type, **junk}
    try:
        facts = model_from_hf({"text_config": part} if nested else part, WHERE)
    except DsgenError as error:
        assert str(error).startswith(f"{WHERE}: ")
    else:
        declared = attrs.fields_dict(Model)
        assert all(type(value).__name__ == type_name(declared[fact]) for fact, value in facts.items())


T5 = {
    "model_type": "t5",
    "d_model": 512,
    "d_kv": 64,
    "num_heads": 8,
    "d_ff": 2048,
    "num_layers": 6,
    "vocab_size": 32128,
}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"feed_forward_proj": "gated-silu"}, "feed_forward_proj is 'gated-silu'"),
        ({"feed_forward_proj": "gated-gelu"}, "with feed_forward_proj 'gated-gelu'"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is false with feed_forward_proj 'relu'"),
        ({"scale_decoder_outputs": False}, "scale_decoder_outputs is false with"),
        ({"scale_decoder_outputs": "x"}, "scale_decoder_outputs is x with"),
    ],
)
def test_a_t5_of_no_published_kind_is_refused(more: dict[str, object], words: str) -> None:
    """Its activations would be others: how the feed-forward part and the head begin goes together."""
    with pytest.raises(DsgenError, match=words):
        model_from_hf({**T5, **more}, "config.json")


def test_a_decoder_behind_an_encoder_has_as_many_blocks_if_nothing_is_said() -> None:
    alike, fewer = (model_from_hf({**T5, **more}, "config.json") for more in ({}, {"num_decoder_layers": 2}))

    assert (alike["layers"], alike["encoder_layers"], alike["tied_embeddings"]) == (6, 6, True)
    assert (fewer["layers"], fewer["encoder_layers"]) == (2, 6)
