"""What AutoTP does not train is what DeepSpeed refuses, or stops with: a tiny model of each type on one of 4 ranks."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import simulations

from dsgen.families import FAMILIES
from dsgen.families.hf_config import model_from_hf
from dsgen.families.parameters import model_types, parameter_count
from dsgen.shapes.profiles import Model

pytestmark = pytest.mark.proof

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512}
SIZES |= {"max_position_embeddings": 64, "pad_token_id": 0}
LLAMA = {**SIZES, "intermediate_size": 128, "num_key_value_heads": 2}
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 512, "n_positions": 64}
WIDE = {"head_dim": 16}
MIXTURE = {**LLAMA, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
ROUTED = {**LLAMA, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
LATENT = {**ROUTED, "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8}
LATENT |= {"qk_nope_head_dim": 8, "v_head_dim": 16, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
OTHERS = {
    "bloom": {"hidden_size": 64, "n_head": 4, "n_layer": 2, "vocab_size": 512},
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "falcon": {**SIZES, "num_kv_heads": 2, "new_decoder_architecture": True},
    "gemma": {**LLAMA, **WIDE},
    "gemma2": {**LLAMA, **WIDE},
    "gemma3_text": {**LLAMA, **WIDE},
    "glm4": {**LLAMA, **WIDE},
    "glm4_moe": {**ROUTED, **WIDE},
    "gpt2": GPT2,
    "gpt_bigcode": GPT2,
    "gpt_neox": {**SIZES, "intermediate_size": 128},
    "gpt_oss": {**LLAMA, **WIDE, "num_local_experts": 4},
    "gptj": {**GPT2, "rotary_dim": 8},
    "granitemoe": {**LLAMA, "num_local_experts": 4},
    "ministral3": {**LLAMA, **WIDE},
    "mixtral": {**LLAMA, "num_local_experts": 4},
    "olmoe": MIXTURE,
    "opt": {**SIZES, "ffn_dim": 128, "word_embed_proj_dim": 64},
    "phi": {**LLAMA, "hidden_size": 256},  # dsgen counts heads that turn 32 elements
    "qwen2_moe": {**MIXTURE, "shared_expert_intermediate_size": 64},
    "qwen3": {**LLAMA, **WIDE},
    "qwen3_moe": {**MIXTURE, **WIDE},
}
UNSPLIT = [name for name, family in FAMILIES.items() if family.autotp.refused]
TYPES = [name for name in model_types() if name not in ("t5", "mt5")]  # AutoTP of encoders is refused apart


def described(name: str) -> dict[str, Any]:
    """The config.json of a tiny model of a type."""
    return {"model_type": name, **OTHERS.get(name, LLAMA)}


@cache
def answers() -> dict[tuple[str, int], Any]:
    """(type, AutoTP degree) -> what the simulation says of a step on the second of 4 ranks."""
    cases = [(name, 2) for name in TYPES] + [(name, 1) for name in UNSPLIT]
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}, "bf16": {"enabled": True}}
    config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-3}}
    asked = {
        (name, tp): {
            "config": {**config, **({"tensor_parallel": {"autotp_size": tp}} if tp > 1 else {})},
            "model": described(name),
            "world_size": 4,
            "rank": 1,
            "seq_len": 32,
            "attention": "eager",
            "steps": 1,
        }
        for name, tp in cases
    }
    return {case: simulations.simulate(request) for case, request in asked.items()}


def weights(answer: dict[str, Any]) -> int:
    """Bytes of weights after the step."""
    found: int = answer["phases"][-1]["gpu"]["end_parts"]["weights"]
    return found


@pytest.mark.parametrize("name", UNSPLIT)
def test_what_is_refused_runs_without_autotp(name: str) -> None:
    """Whatever stops beside it is not the model's own doing."""
    assert "error" not in answers()[name, 1], answers()[name, 1]["error"]


@pytest.mark.parametrize("name", [name for name in TYPES if name not in UNSPLIT])
def test_what_is_not_refused_is_split(name: str) -> None:
    assert "error" not in answers()[name, 2], answers()[name, 2]["error"]
    facts: dict[str, Any] = model_from_hf(described(name), name)
    assert weights(answers()[name, 2]) < 0.8 * 2 * parameter_count(Model(**facts))  # bytes in bf16


@pytest.mark.parametrize("name", [name for name in UNSPLIT if name != "gpt_oss"])
def test_what_is_refused_stops(name: str) -> None:
    assert answers()[name, 2]["error"]["type"] in ("AssertionError", "RuntimeError", "ValueError")


def test_of_gpt_oss_the_head_alone_is_split() -> None:
    whole, split = (weights(answers()["gpt_oss", tp]) for tp in (1, 2))
    head = 2 * LLAMA["vocab_size"] * LLAMA["hidden_size"]  # bytes

    assert whole - split == pytest.approx(head / 2, rel=0.05)
