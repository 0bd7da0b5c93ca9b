"""Parameter counts against published figures, and tensor by tensor against Hugging Face's own classes."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from ruamel.yaml import YAML

from dsgen import catalog
from dsgen.families import FAMILIES
from dsgen.families.hf_config import model_from_hf, to_hf_config
from dsgen.families.parameters import (
    Parameter,
    active_parameter_count,
    lora_parameters,
    model_types,
    parameter_count,
    parameters,
)
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.profiles import Model

ROOT = Path(__file__).parents[2]
PROFILES = ROOT / "profiles" / "model"
KINDS = {"embedding", "position", "head", "attention", "mlp", "expert", "router", "norm", "bias"}


def facts_of(name: str) -> dict[str, Any]:
    """The `model:` part of a built-in profile, its parents' included."""
    sheet = YAML(typ="safe").load((PROFILES / f"{name}.yaml").read_text(encoding="utf-8"))
    inherited = facts_of(sheet["extends"]) if "extends" in sheet else {}
    return {**inherited, **sheet["model"]}


def model_of(name: str) -> Model:
    return Model(**facts_of(name))


TYPES: dict[str, dict[str, Any]] = {
    **runpy.run_path(str(ROOT / "benchmarks" / "memory_types.py"))["TYPES"],
    **runpy.run_path(str(ROOT / "benchmarks" / "memory_types_mixtures.py"))["MIXTURES"],
    **runpy.run_path(str(ROOT / "benchmarks" / "memory_types_encoders.py"))["ENCODERS"],
}
NAMES = sorted(path.stem for path in PROFILES.glob("*.yaml"))

LLAMA = Model(
    architecture="llama",
    layers=2,
    hidden_size=8,
    attention_heads=4,
    kv_heads=2,
    head_size=3,
    ffn_size=10,
    vocab_size=16,
    max_positions=32,
    tied_embeddings=False,
    gated_ffn=True,
)

# Totals as model cards, papers and Hugging Face's num_parameters() state them.
PUBLISHED = {
    "aya-23-8b": 8_028_033_024,
    "bloom-176b": 176_247_271_424,
    "bloom-560m": 559_214_592,
    "bloom-7b1": 7_069_016_064,
    "codellama-34b": 33_743_970_304,
    "codeqwen1.5-7b": 7_250_284_544,
    "deepseek-coder-1.3b": 1_346_471_936,
    "deepseek-coder-33b": 33_342_991_360,
    "deepseek-coder-6.7b": 6_740_512_768,
    "deepseek-llm-7b": 6_910_365_696,
    "deepseek-v2-lite": 15_706_484_224,
    # The published figure holds 256 correction biases for each of 58 routers; in Hugging Face's class they are buffers.
    "deepseek-v3": 671_026_419_200 - 58 * 256,
    "falcon-7b": 6_921_720_704,
    "falcon3-10b": 10_305_653_760,
    "falcon3-3b": 3_227_655_168,
    "falcon3-7b": 7_455_550_464,
    "gemma-2-27b": 27_227_128_320,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2b": 2_506_172_416,
    "gemma-3-1b": 999_885_952,
    "gemma-3-270m": 268_098_176,
    # The checkpoint without its SigLIP tower (416,866,032) and the projector to the text's width.
    "gemma-3-4b": 4_300_079_472 - 416_866_032 - 1152 * 2561,
    "gemma-3-12b": 12_187_325_040 - 416_866_032 - 1152 * 3841,
    "gemma-3-27b": 27_432_406_640 - 416_866_032 - 1152 * 5377,
    "gemma-7b": 8_537_680_896,
    "glm-4-9b-0414": 9_400_279_040,
    "glm-4.5-air": 106_852_245_504,
    "gpt-neox-20b": 20_554_567_680,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "gpt2": 124_439_808,
    "gpt2-large": 774_030_080,
    "gpt2-medium": 354_823_168,
    "gpt2-xl": 1_557_611_200,
    "granite-3.1-2b": 2_533_531_648,
    "granite-3.1-8b": 8_170_848_256,
    "granite-3.3-8b": 8_170_864_640,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-2-7b": 6_738_415_616,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-30b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "ministral-8b": 8_019_808_256,
    "mistral-7b": 7_241_732_096,
    "mistral-large-123b": 122_610_069_504,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "mixtral-8x22b": 140_620_634_112,
    "mixtral-8x7b": 46_702_792_704,
    "olmo-2-13b": 13_716_198_400,
    "olmo-2-32b": 32_234_279_936,
    "olmo-2-7b": 7_298_617_344,
    "olmoe-1b-7b": 6_919_161_856,
    "open-llama-3b": 3_426_473_600,
    "opt-125m": 125_239_296,
    "opt-350m": 331_196_416,
    "phi-1.5": 1_418_270_720,
    "phi-2": 2_779_683_840,
    "phi-3-medium": 13_960_238_080,
    "phi-3-mini": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "phi-4-mini": 3_836_021_760,
    "pythia-1.4b": 1_414_647_808,
    "pythia-160m": 162_322_944,
    "pythia-1b": 1_011_781_632,
    "pythia-2.8b": 2_775_208_960,
    "pythia-410m": 405_334_016,
    "pythia-6.9b": 6_857_302_016,
    "pythia-70m": 70_426_624,
    "qwen1.5-0.5b": 463_987_712,
    "qwen1.5-1.8b": 1_836_828_672,
    "qwen1.5-110b": 111_209_914_368,
    "qwen1.5-14b": 14_167_290_880,
    "qwen1.5-32b": 32_512_218_112,
    "qwen1.5-4b": 3_950_369_280,
    "qwen1.5-72b": 72_287_920_128,
    "qwen1.5-7b": 7_721_324_544,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-72b": 72_706_203_648,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-8b": 8_190_735_360,
    "smollm2-1.7b": 1_711_376_384,
    "smollm2-360m": 361_821_120,
    "smollm3-3b": 3_075_098_624,
    "solar-10.7b": 10_731_524_096,
    "stablelm-2-1.6b": 1_644_515_328,
    "starcoder2-15b": 15_957_889_024,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-7b": 7_173_923_840,
    "tinyllama-1.1b": 1_100_048_384,
    "yi-34b": 34_388_917_248,
    "yi-6b": 6_061_035_520,
    "yi-9b": 8_829_407_232,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_count_is_the_published_one(name: str) -> None:
    assert parameter_count(model_of(name)) == PUBLISHED[name]


def test_every_supported_model_type_has_a_whole_profile_or_is_among_those_without() -> None:
    with_profile = {facts_of(name)["architecture"] for name in catalog.names("model", whole=True)}
    without = {config["model_type"] for config in TYPES.values()}

    assert with_profile | without == set(model_types())
    assert with_profile & without == set()
    assert len(NAMES) >= 48


def test_names_and_aliases_are_texts_and_unique() -> None:
    sheets = {path.stem: YAML(typ="safe").load(path.read_text(encoding="utf-8")) for path in PROFILES.glob("*.yaml")}
    assert {stem: sheet["name"] for stem, sheet in sheets.items()} == {stem: stem for stem in sheets}
    every = [name for sheet in sheets.values() for name in (sheet["name"], *sheet["aliases"])]
    assert all(isinstance(name, str) and name == name.lower() for name in every)
    assert len(every) == len(set(every))


@pytest.mark.parametrize("name", [name for name in NAMES if re.fullmatch(r"[\d.]+[mbt]", name)])
def test_a_generic_size_is_near_its_name(name: str) -> None:
    said = float(name[:-1]) * {"m": 1e6, "b": 1e9, "t": 1e12}[name[-1]]
    assert abs(parameter_count(model_of(name)) / said - 1) < 0.08


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_is_well_formed(name: str) -> None:
    found = parameters(model_of(name))
    assert len({(entry.name, entry.shape) for entry in found}) == len(found)
    for entry in found:
        assert entry.kind in KINDS
        assert entry.numel > 0 and entry.total == entry.numel * entry.repeats
        assert entry.layer == ("*" in entry.name)
        assert not entry.matrix or len(entry.shape) == 2


def test_parameters_of_a_small_llama_are_these() -> None:
    block = "model.layers.*"
    assert parameters(LLAMA) == (
        Parameter("model.embed_tokens.weight", (16, 8), 1, "embedding", False, False),
        Parameter(f"{block}.self_attn.q_proj.weight", (12, 8), 2, "attention", True, True, True),
        Parameter(f"{block}.self_attn.k_proj.weight", (6, 8), 2, "attention", True, True, True),
        Parameter(f"{block}.self_attn.v_proj.weight", (6, 8), 2, "attention", True, True, True),
        Parameter(f"{block}.self_attn.o_proj.weight", (8, 12), 2, "attention", True, True, True),
        Parameter(f"{block}.mlp.gate_proj.weight", (10, 8), 2, "mlp", True, True, True),
        Parameter(f"{block}.mlp.up_proj.weight", (10, 8), 2, "mlp", True, True, True),
        Parameter(f"{block}.mlp.down_proj.weight", (8, 10), 2, "mlp", True, True, True),
        Parameter(f"{block}.input_layernorm.weight", (8,), 2, "norm", True, False),
        Parameter(f"{block}.post_attention_layernorm.weight", (8,), 2, "norm", True, False),
        Parameter("model.norm.weight", (8,), 1, "norm", False, False),
        Parameter("lm_head.weight", (16, 8), 1, "head", False, True, True),
    )


# Totals of the tensors of the published checkpoints, of T5 1.1 and mT5 without the head that their files untie.
@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({"d_ff": 16384, "d_kv": 128, "d_model": 1024, "num_heads": 32}, 2_851_598_336),  # t5-3b
        ({"d_ff": 65536, "d_kv": 128, "d_model": 1024, "num_heads": 128}, 11_307_321_344),  # t5-11b
        (
            {
                "d_ff": 10240,
                "d_kv": 64,
                "d_model": 4096,
                "num_heads": 64,
                "feed_forward_proj": "gated-gelu",
                "tie_word_embeddings": False,
            },
            11_135_332_352 - 32128 * 4096,  # flan-t5-xxl
        ),
    ],
)
def test_count_of_t5_is_the_published_one(config: dict[str, Any], count: int) -> None:
    facts: dict[str, Any] = model_from_hf({"model_type": "t5", "num_layers": 24, "vocab_size": 32128, **config}, "t5")
    assert parameter_count(Model(**facts)) == count


def test_a_tied_head_is_not_counted_twice() -> None:
    tied = attrs.evolve(LLAMA, tied_embeddings=True)
    assert parameter_count(LLAMA) - parameter_count(tied) == 16 * 8


def test_active_parameters() -> None:
    assert active_parameter_count(LLAMA) == parameter_count(LLAMA)
    mixtral = model_of("mixtral-8x7b")
    expert = 3 * mixtral.hidden_size * mixtral.expert_ffn_size * mixtral.layers
    assert parameter_count(mixtral) - active_parameter_count(mixtral) == 6 * expert
    assert active_parameter_count(model_of("gpt-oss-20b")) == 4_187_440_704
    assert round(active_parameter_count(model_of("deepseek-v3")) / 1e9, 1) == 37.6  # arXiv 2412.19437 says 37B


# The first two are what peft's print_trainable_parameters says of Llama 2 7B.
@pytest.mark.parametrize(
    ("rank", "targets", "count"),
    [
        (8, ("q_proj", "v_proj"), 4_194_304),
        (16, ("all-linear",), 39_976_960),
        (16, ("self_attn.q_proj", "q_proj"), 32 * 16 * (4096 + 4096)),
        (4, ("lm_head",), 4 * (32000 + 4096)),
    ],
)
def test_lora_adapters_of_llama_2_7b(rank: int, targets: tuple[str, ...], count: int) -> None:
    assert lora_parameters(model_of("llama-2-7b"), rank, targets) == count


def test_lora_target_by_a_name_that_two_modules_share() -> None:
    gpt2 = model_of("gpt2")
    assert lora_parameters(gpt2, 1, ["c_proj"]) == 12 * ((768 + 768) + (3072 + 768))


# What peft 0.21.2 trains of these models at two blocks (the first of DeepSeek's is dense): experts and router too.
@pytest.mark.parametrize(
    ("name", "targets", "count"),
    [
        ("mixtral-8x7b", ("all-linear",), 22_479_104),
        ("qwen3-30b-a3b", ("all-linear",), 41_521_152),
        ("gpt-oss-20b", ("all-linear",), 663_552),
        ("deepseek-v3", ("all-linear",), 133_322_752),
        ("deepseek-v3", ("gate_proj", "up_proj", "down_proj"), 130_023_424),
        ("mixtral-8x7b", ("gate", "q_proj"), 393_472),
    ],
)
def test_lora_adapters_of_experts(name: str, targets: tuple[str, ...], count: int) -> None:
    model = model_of(name)
    assert lora_parameters(attrs.evolve(model, layers=2, dense_layers=min(1, model.dense_layers)), 16, targets) == count


# What peft 0.21.2 trains of these; it takes the experts of qwen2_moe and granitemoe for no linear layers.
@pytest.mark.parametrize(
    ("name", "targets", "count"),
    [
        ("deepseek_v2", ("all-linear",), 13_928_960),
        ("deepseek_v2 grouped", ("all-linear",), 61_304_832),
        ("glm4_moe", ("all-linear",), 40_683_520),
        ("glm4_moe", ("gate", "o_proj"), 460_800),
        ("granitemoe", ("all-linear",), 245_760),
        ("olmoe", ("all-linear",), 17_745_408),
        ("olmoe", ("gate", "o_proj"), 148_992),
        ("qwen2_moe", ("all-linear",), 995_352),
        ("qwen2_moe wide", ("gate_proj", "up_proj", "down_proj", "q_proj"), 1_867_776),
    ],
)
def test_lora_adapters_of_mixtures_without_a_profile(name: str, targets: tuple[str, ...], count: int) -> None:
    facts: dict[str, Any] = model_from_hf(TYPES[name], name)
    assert lora_parameters(Model(**facts), 8, targets) == count


def test_lora_targets_that_are_one_tensor_today_are_named_together() -> None:
    with pytest.raises(DsgenError, match=r"leaves out 'up_proj'.*(?s:.)*gate_proj and up_proj together"):
        lora_parameters(model_of("qwen3-30b-a3b"), 8, ["gate_proj", "q_proj"])


@pytest.mark.parametrize("targets", [["q_prj"], ["proj"], ["q_proj", "nothing"], ["embed_tokens"], []])
def test_lora_target_that_matches_nothing_names_the_valid_ones(targets: list[str]) -> None:
    with pytest.raises(DsgenError, match=r"all-linear, q_proj, k_proj, v_proj, o_proj, gate_proj"):
        lora_parameters(LLAMA, 8, targets)


def test_lora_rank_must_be_positive() -> None:
    with pytest.raises(DsgenError, match="lora_rank is 0"):
        lora_parameters(LLAMA, 0, ["q_proj"])


def test_unknown_architecture_names_the_supported_ones() -> None:
    with pytest.raises(DsgenError, match=r"'lama'.*(?s:.)*did you mean llama.*mixtral"):
        parameters(attrs.evolve(LLAMA, architecture="lama"))


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("llama-2-7b", {"gated_ffn": False}, "gated_ffn is false"),
        ("llama-2-7b", {"kv_heads": 5}, "kv_heads is 5"),
        ("llama-2-7b", {"experts": 8, "experts_per_token": 2}, "experts is 8"),
        ("llama-2-7b", {"dense_layers": 1}, "dense_layers is 1"),
        ("llama-2-7b", {"embedding_size": 512}, "embedding_size is 512"),
        ("llama-2-7b", {"kv_lora_rank": 512}, "kv_lora_rank is 512"),
        ("gpt2", {"kv_heads": 4}, "kv_heads is 4"),
        ("gpt2", {"head_size": 32}, "head_size is 32"),
        ("gpt2", {"architecture": "gpt_bigcode"}, "kv_heads is 12"),
        ("bloom-560m", {"ffn_size": 1000}, "ffn_size is 1000"),
        ("qwen2.5-7b", {"attention_bias": True}, "attention_bias is true"),
        ("qwen2.5-7b", {"mlp_bias": True}, "mlp_bias is true"),
        ("qwen2.5-7b", {"dropout": True}, "dropout is true"),
        ("mixtral-8x7b", {"experts": 0}, "experts is 0"),
        ("mixtral-8x7b", {"experts_per_token": 9}, "experts_per_token is 9"),
        ("mixtral-8x7b", {"expert_ffn_size": 0}, "expert_ffn_size is 0"),
        ("mixtral-8x7b", {"dense_layers": 1}, "dense_layers is 1"),
        ("mixtral-8x7b", {"shared_experts": 1}, "shared_experts is 1"),
        ("mixtral-8x7b", {"shared_ffn_size": 4096}, "shared_ffn_size is 4096"),
        ("llama-2-7b", {"qk_norm": True}, "qk_norm is true"),
        ("deepseek-v3", {"expert_groups": 8}, "expert_groups is 8"),
        ("deepseek-v3", {"dense_layers": 62}, "dense_layers is 62"),
        ("deepseek-v3", {"kv_lora_rank": 0}, "kv_lora_rank is 0"),
        ("llama-2-7b", {"encoder_layers": 2}, "encoder_layers is 2"),
        ("llama-2-7b", {"relative_buckets": 32}, "relative_buckets is 32"),
        ("llama-2-7b", {"architecture": "t5"}, "encoder_layers is 0"),
    ],
)
def test_facts_that_contradict_the_architecture_are_refused(name: str, change: dict[str, Any], says: str) -> None:
    with pytest.raises(DsgenError, match=says):
        parameters(attrs.evolve(model_of(name), **change))


# Shapes that no profile has: biases by config, MLA without a query rank, dense blocks before experts, heads untied.
VARIANTS: dict[str, dict[str, Any]] = {
    "llama with biases": {**attrs.asdict(LLAMA), "attention_bias": True, "mlp_bias": True, "head_size": 2},
    "qwen3_moe with dense blocks": {
        **facts_of("qwen3-30b-a3b"),
        "layers": 4,
        "dense_layers": 2,
        "attention_bias": True,
    },
    "deepseek_v3 without a query rank": {**facts_of("deepseek-v3"), "layers": 5, "q_lora_rank": 0, "shared_experts": 2},
    "deepseek_v3 with biases": {**facts_of("deepseek-v3"), "layers": 4, "attention_bias": True, "dense_layers": 0},
    "falcon tied off": {**facts_of("falcon-7b"), "tied_embeddings": False},
    "gpt2 untied": {**facts_of("gpt2"), "tied_embeddings": False, "ffn_size": 1000},
    "phi3 tied, heads of their own size": {**facts_of("phi-4"), "tied_embeddings": True, "head_size": 96},
    "gemma2 untied": {**facts_of("gemma-2-2b"), "tied_embeddings": False, "attention_bias": True},
    "opt-350m untied": {**facts_of("opt-350m"), "tied_embeddings": False},
    "starcoder2 without biases": {**model_from_hf(TYPES["starcoder2"], ""), "attention_bias": False},
}


def folded(tensors: list[list[Any]]) -> list[tuple[str, tuple[int, ...], int]]:
    """Tensors by pattern and shape with their number, in the order of the first."""
    found: dict[tuple[str, tuple[int, ...]], int] = {}
    for name, shape, _ in tensors:
        key = re.sub(r"\.\d+\.", ".*.", name, count=1), tuple(shape)
        found[key] = found.get(key, 0) + 1
    return [(name, shape, repeats) for (name, shape), repeats in found.items()]


@pytest.mark.proof
def test_every_tensor_equals_that_of_hugging_face() -> None:
    of_types = {name: model_from_hf(config, name) for name, config in TYPES.items()}
    every: dict[str, dict[str, Any]] = {**{name: facts_of(name) for name in NAMES}, **VARIANTS, **of_types}
    configs = {name: to_hf_config(facts) for name, facts in every.items()}
    child = subprocess.run(
        [sys.executable, str(ROOT / "dsgen" / "engine" / "meta_model.py")],
        input=json.dumps(configs),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    answers = json.loads(child.stdout)
    assert list(answers) == list(every)
    for name, facts in every.items():
        model, answer = Model(**facts), answers[name]
        mine = parameters(model)
        assert answer["class"] == FAMILIES[model.architecture].huggingface
        assert [(entry.name, entry.shape, entry.repeats) for entry in mine] == folded(answer["tensors"]), name
        assert parameter_count(model) == answer["total"], name
        linear = {
            re.sub(r"\.\d+\.", ".*.", tensor, count=1)
            for tensor, _, module in answer["tensors"]
            if tensor.endswith(".weight") and (module.endswith("Linear") or module == "Conv1D")
        }
        assert {entry.name for entry in mine if entry.matrix} == linear, name
