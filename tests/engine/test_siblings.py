"""The tiny sibling of a model: small sizes, and every trait of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsgen.engine.proof.siblings import sibling
from dsgen.families import FAMILIES
from dsgen.jobs import model_configs

PROFILES = sorted(path.stem for path in (Path(__file__).resolve().parents[2] / "profiles" / "model").glob("*.yaml"))
OF_NO_USE_ALONE = {"deepseek_v2": {"num_experts_per_tok": 6}}  # what a family's class has no value for
MOST_ELEMENTS = 400_000  # of a tiny model: a step of it takes milliseconds
LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
    "tie_word_embeddings": False, "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
}  # fmt: skip


def test_sizes_shrink_and_traits_stay() -> None:
    small = sibling(LLAMA)

    assert small["num_hidden_layers"] == 2
    assert small["hidden_size"] == small["num_attention_heads"] * 8
    assert 1 < small["num_key_value_heads"] < small["num_attention_heads"]
    assert {key: small[key] for key in ("model_type", "tie_word_embeddings", "rope_scaling")} == {
        key: LLAMA[key] for key in ("model_type", "tie_word_embeddings", "rope_scaling")
    }
    assert LLAMA["num_hidden_layers"] == 32  # what was given stays


@pytest.mark.parametrize(("heads", "small"), [(32, 8), (8, 2), (4, 2), (1, 1)])
def test_key_value_heads_keep_their_kind(heads: int, small: int) -> None:
    """As many as there are heads, fewer, or one."""
    assert sibling({**LLAMA, "num_key_value_heads": heads})["num_key_value_heads"] == small


@pytest.mark.parametrize("tp", [2, 4, 8, 16])
def test_heads_and_vocabulary_are_shared_out_evenly(tp: int) -> None:
    small = sibling(LLAMA, tp)

    assert [small[key] % tp for key in ("num_attention_heads", "num_key_value_heads", "vocab_size")] == [0, 0, 0]
    assert small["num_attention_heads"] % small["num_key_value_heads"] == 0


def test_heads_that_are_wider_than_the_model_stay_so() -> None:
    """Gemma 7B: 16 heads of 256 on 3072."""
    small = sibling({**LLAMA, "hidden_size": 3072, "num_attention_heads": 16, "head_dim": 256})

    assert small["head_dim"] * small["num_attention_heads"] != small["hidden_size"]
    assert sibling({**LLAMA, "head_dim": 128})["head_dim"] * 8 == small["hidden_size"]


@pytest.mark.parametrize(("share", "kept"), [(0.4, 0.5), (0.5, 0.5), (0.2, 0.25), (1.0, 1.0)])
def test_rope_turns_whole_pairs_of_a_head(share: float, kept: float) -> None:
    """Phi-2 turns 32 of 80; of 8 these were 3, which no pairs are."""
    small = sibling({**LLAMA, "partial_rotary_factor": share, "rope_parameters": {"partial_rotary_factor": share}})

    assert small["partial_rotary_factor"] == kept
    assert small["rope_parameters"] == {"partial_rotary_factor": kept}


@pytest.mark.parametrize(
    ("kinds", "kept"),
    [
        (["full_attention"] * 6, ["full_attention"] * 2),
        ((["sliding_attention"] * 5 + ["full_attention"]) * 4, ["sliding_attention", "full_attention"]),
        (["a", "b", "c", "a"], ["a", "b", "c"]),
        (["a"], ["a"]),
    ],
)
def test_a_layer_of_each_kind_stays(kinds: list[str], kept: list[str]) -> None:
    small = sibling(
        {**LLAMA, "num_hidden_layers": len(kinds), "layer_types": kinds, "no_rope_layers": [1] * len(kinds)}
    )

    assert small["layer_types"] == kept
    assert small["num_hidden_layers"] == len(kept) == len(small["no_rope_layers"])


def test_experts_stay_experts() -> None:
    """DeepSeek V3: groups of experts, a dense layer before them, low ranks of attention."""
    small = sibling(
        {**LLAMA, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4,
         "n_shared_experts": 1, "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512,
         "moe_intermediate_size": 2048}
    )  # fmt: skip

    assert (small["n_routed_experts"], small["num_experts_per_tok"]) == (4, 2)
    assert (small["n_group"], small["topk_group"], small["n_shared_experts"]) == (2, 1, 1)
    assert small["first_k_dense_replace"] == 1
    assert small["q_lora_rank"] == small["kv_lora_rank"] == 16


def test_what_is_absent_or_null_stays_so() -> None:
    small = sibling({**LLAMA, "sliding_window": None, "n_inner": None})

    assert small["sliding_window"] is small["n_inner"] is None
    assert "num_local_experts" not in small
    assert "layer_types" not in small


def described() -> dict[str, dict[str, Any]]:
    """A config.json of every family, and of every built-in profile that differs from it when it is small."""
    bare = {name: {"model_type": name, **OF_NO_USE_ALONE.get(name, {})} for name in FAMILIES}
    profiles = {name: model_configs.read(name)[1] for name in PROFILES}
    distinct = {str(sorted(sibling(config).items())): name for name, config in reversed(profiles.items())}
    return {**bare, **{name: profiles[name] for name in distinct.values()}}


@pytest.mark.proof
@pytest.mark.parametrize("tp", [1, 2])
def test_every_model_that_dsgen_knows_has_a_sibling_of_its_class(tp: int) -> None:
    """transformers builds it, it computes a loss, and every weight has a gradient."""
    import torch
    from transformers import AutoConfig

    from dsgen.engine.proof import tiny_models
    from dsgen.engine.simulate import models

    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name, config in described().items():
        asked = {"kind": "sibling", "config": config}
        subject = tiny_models.load({"model": asked, "ranks": 2 * tp, "tp": tp, "wide": False})
        model = subject.take(subject.build())

        model(**subject.batch(2, 0, "cpu")).loss.backward()

        full = AutoConfig.for_model(config["model_type"])
        _, auto, _ = models.known(config)
        assert type(model) is auto._model_mapping[type(full)], name
        assert sum(parameter.numel() for parameter in model.parameters()) < MOST_ELEMENTS, name
        assert not [key for key, parameter in model.named_parameters() if parameter.grad is None], name


def test_experts_are_grouped_where_the_class_groups_them_and_the_config_is_silent() -> None:
    """DeepseekV3Config says 8 groups by itself, and four experts have no eight."""
    said = {**LLAMA, "model_type": "deepseek_v3", "n_routed_experts": 256, "num_experts_per_tok": 8}

    small = sibling(said)

    assert (small["n_routed_experts"], small["n_group"], small["topk_group"]) == (4, 2, 1)
    assert "n_group" not in sibling({**said, "model_type": "qwen3_moe"})
    assert sibling({**said, "n_group": 1})["n_group"] == 1
