"""From layers to a Job: known paths, exact types, and sections that agree with each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

import dsgen
from dsgen import catalog
from dsgen.jobs.assembly import assemble, canonical
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.layers import Layer, Origin, Override, Rank
from dsgen.shapes.profiles import SECTIONS, yaml_name

BASE = dsgen.profile("a100-40g") | dsgen.profile("7b")


def error_of(overrides: dict[str, Any]) -> str:
    with pytest.raises(DsgenError) as caught:
        dsgen.job(BASE | overrides)
    return str(caught.value)


def layer_of(rank: Rank, origin: Origin, **cluster: int) -> Layer:
    return Layer(origin.source, rank, tuple(Override(f"cluster.{k}", v, origin, rank) for k, v in cluster.items()))


def canonical_path(path: str, value: Any = 1) -> tuple[str, Any]:
    (layer,) = canonical([Layer("x", Rank.USER, (Override(path, value, Origin("x"), Rank.USER),))])
    return layer.overrides[0].path, layer.overrides[0].value


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("zero_optimization.stage", "deepspeed.zero_optimization.stage"),
        ("deepspeed.zero_optimization.stage", "deepspeed.zero_optimization.stage"),
        ("training.seq_len", "training.seq_len"),
        ("zero_optimization.prefetch_bucket_size", "deepspeed.zero_optimization.stage3_prefetch_bucket_size"),
        ("deepspeed.zero_optimization.max_live_parameters", "deepspeed.zero_optimization.stage3_max_live_parameters"),
        ("optimizer.params.lr", "deepspeed.optimizer.params.lr"),
    ],
)
def test_a_deepspeed_key_may_be_written_without_its_section(written: str, path: str) -> None:
    assert canonical_path(written)[0] == path


def test_the_old_name_of_bf16_is_the_new_one() -> None:
    assert canonical_path("bfloat16.enabled", True) == ("deepspeed.bf16.enabled", True)
    assert canonical_path("bfloat16", None) == ("deepspeed.bf16", None)


def test_a_whole_float_of_a_whole_key_is_the_number_it_means() -> None:
    _, value = canonical_path("zero_optimization.reduce_bucket_size", 5e8)

    assert (type(value), value) == (int, 500_000_000)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"training.micro_batch": 1.9}, "python: training.micro_batch is 1.9; it must be a whole number of at least 1"),
        (
            {"training.micro_batch": 4.0},
            "python: training.micro_batch is 4.0; it must be a whole number of at least 1\n  Write 4.",
        ),
        (
            {"training.micro_batch": "32"},
            'python: training.micro_batch is "32"; it must be a whole number of at least 1',
        ),
        (
            {"training.micro_batch": True},
            "python: training.micro_batch is true; it must be a whole number of at least 1",
        ),
        ({"training.micro_batch": [1]}, "python: training.micro_batch is [1]; it must be a whole number of at least 1"),
        ({"training.micro_batch": -1}, "python: training.micro_batch is -1; it must be a whole number of at least 1"),
        ({"training.seq_len": 10**10}, "python: training.seq_len is 10000000000; it must be at most 1,000,000,000"),
        ({"training.lr": "1e-5"}, 'python: training.lr is "1e-5"; it must be a finite number'),
        ({"training.lr": 0}, "python: training.lr is 0; it must be above 0"),
        ({"training.lr": float("nan")}, "python: training.lr is nan; it must be a finite number"),
        ({"training.save_16bit": "no"}, "python: training.save_16bit is no; it must be true or false"),
        ({"training.save_16bit": 1}, "python: training.save_16bit is 1; it must be true or false"),
        ({"training.nvme_path": 3}, "python: training.nvme_path is 3; it must be text\n  Put it in quotes."),
        (
            {"training.nvme_path": "a\0b"},
            'python: training.nvme_path is "a\\u0000b"; it must be text that UTF-8 can hold, without a null character',
        ),
        (
            {"training.lora_targets": "q_proj"},
            'python: training.lora_targets is q_proj; it must be a list of names, such as ["q_proj", "v_proj"]',
        ),
        (
            {"training.precision": "bf17"},
            "python: training.precision is bf17; it must be one of auto, bf16, fp16, fp32; did you mean bf16?",
        ),
        (
            {"hardware.gpu_memory": 40},
            "python: hardware.gpu_memory is 40; it must be a number with a unit, such as 40 GiB",
        ),
        (
            {"hardware.gpu_memory": "40 GBs"},
            "python: hardware.gpu_memory is 40 GBs; 'GBs' is not one of its units "
            "(B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB); write 40 GiB",
        ),
        (
            {"hardware.gpu_memory": "1e30 GiB"},
            "python: hardware.gpu_memory is 1e30 GiB; it must be below 65,536 GiB",
        ),
        (
            {"hardware.host_memory": "64 TiB"},
            "python: hardware.host_memory is 64 TiB; it must be below 65,536 GiB",
        ),
        ({"hardware.gpu_memory": "0 GiB"}, "python: hardware.gpu_memory is 0 GiB; it must be above 0"),
        (
            {"hardware.gpu_memory": None},
            "python: hardware.gpu_memory is deleted by hardware.gpu_memory: null; it must be given",
        ),
        (
            {"hardware": None},
            "python: hardware is null; a section cannot be deleted; delete a key such as hardware.vendor",
        ),
        ({"training": 3}, "python: training is 3; it must be a map"),
        ({"deepspeed": 3}, "python: deepspeed is 3; it must be a map of DeepSpeed keys"),
        (
            {"training.seqlen": 3},
            "python: unknown path training.seqlen; neither dsgen nor DeepSpeed reads it\n"
            "  did you mean training.seq_len?",
        ),
        (
            {"training.gpus": 3},
            "python: unknown path training.gpus; neither dsgen nor DeepSpeed reads it\n  did you mean cluster.gpus?",
        ),
        (
            {"seq_len": 3},
            "python: unknown path seq_len; neither dsgen nor DeepSpeed reads it\n  did you mean training.seq_len?",
        ),
        (
            {"zero_optimization.stge": 3},
            "python: unknown path zero_optimization.stge; neither dsgen nor DeepSpeed reads it"
            "\n  did you mean zero_optimization.stage?",
        ),
        (
            {"qqqq.wwww": 3},
            "python: unknown path qqqq.wwww; neither dsgen nor DeepSpeed reads it\n"
            "  Sections: hardware, model, network, cluster, training, deepspeed.",
        ),
        (
            {"training.micro_batch.size": 3},
            "python: training.micro_batch is a map; it holds one value, and no size\n"
            "  Write a value, such as --set training.micro_batch=VALUE.",
        ),
        (
            {"zero_optimization.stage.level": 3},
            "python: zero_optimization.stage is a map; it holds one value, and no level"
            "\n  Write a value, such as --set zero_optimization.stage=VALUE.",
        ),
        ({"zero_optimization.stage": "2"}, 'python: zero_optimization.stage is "2"; it must be one of 0, 1, 2, 3'),
        (
            {"zero_optimization": True},
            "python: zero_optimization is true; it is a short form that dsgen does not plan with"
            "\n  Write zero_optimization.stage=1 instead.",
        ),
        (
            {"zero_optimization.cpu_offload": True},
            "python: zero_optimization.cpu_offload is true; it is a short form that dsgen does not plan with\n"
            "  Write zero_optimization.offload_optimizer.device=cpu instead.",
        ),
        ({"compression_training.x": float("inf")}, "python: compression_training.x is inf; it must be a finite number"),
        (
            {"compression_training.x": [["\ud800"]]},
            'python: compression_training.x is "\\ud800"; '
            "it must be text that UTF-8 can hold, without a null character",
        ),
        (
            {"cluster.gpus": 7, "cluster.nodes": 2},
            "python: 7 GPUs do not share evenly among 2 nodes; gpus must be a multiple of nodes, such as 8",
        ),
        (
            {"cluster.gpus": 16, "cluster.nodes": 1},
            "python: 16 GPUs in a node; a node of it has 8\n  Use --nodes 2, or set hardware.gpus_per_node.",
        ),
    ],
)
def test_a_mistake_says_what_where_and_what_to_do(overrides: dict[str, Any], message: str) -> None:
    assert error_of(overrides) == message


def test_all_mistakes_of_a_section_come_at_once_in_the_order_of_lines(tmp_path: Any) -> None:
    from dsgen.catalog.lookup import override_layer

    file = tmp_path / "site.yaml"
    file.write_text("training:\n  micro_batch: 1.9\n  lr: x\n  seq_len: -1\n  precision: bf17\n")

    with pytest.raises(DsgenError) as caught:
        dsgen.job(BASE | dsgen.Layers((override_layer(str(file)),)))

    lines = str(caught.value).removeprefix("error: ").split("\nerror: ")
    assert [line.split(" is ")[0] for line in lines] == [
        f"{file}:2: training.micro_batch",
        f"{file}:3: training.lr",
        f"{file}:4: training.seq_len",
        f"{file}:5: training.precision",
    ]


def test_more_mistakes_than_a_screen_holds_are_counted() -> None:
    wrong = {
        f"training.{yaml_name(field.name)}": {"not": "plain"} and [[]] for field in attrs.fields(SECTIONS["training"])
    }

    assert error_of(wrong).endswith(f"\n  and {len(wrong) - 10} more")


@pytest.mark.parametrize(
    ("gpus", "nodes", "shape"),
    [
        (None, None, (1, 8)),
        (None, 3, (3, 8)),
        (4, None, (1, 4)),
        (16, None, (2, 8)),
        (12, None, (2, 6)),
        (9, None, (3, 3)),
        (11, None, (11, 1)),
        (6, 3, (3, 2)),
        (999_983, None, (999_983, 1)),
    ],
)
def test_gpus_and_nodes_say_the_shape_of_the_cluster(
    gpus: int | None, nodes: int | None, shape: tuple[int, int]
) -> None:
    job = dsgen.job(BASE | {"cluster.gpus": gpus, "cluster.nodes": nodes})

    assert (job.nodes, job.gpus_per_node) == shape


def test_several_nodes_without_a_network_are_assumed_on_a_slow_one_and_it_is_said() -> None:
    job = dsgen.job(BASE | {"cluster.nodes": 2})

    assert job.network.fabric == "ethernet"
    assert job.warnings == ("no network named for 2 nodes: assumed ethernet-25g; name yours with --network",)


def test_a_later_word_about_gpus_that_thins_out_nodes_is_said() -> None:
    """A scenario of 8 full nodes, and fewer GPUs in a stronger layer: 4 in each of 8 are hardly what was meant."""
    profiles = {"hardware": "a100-40g", "model": "1b", "network": "ib-hdr-200g"}
    base = [catalog.find(kind, name).layer for kind, name in profiles.items()]
    base.append(layer_of(Rank.SITE, Origin("wide.scenario.yaml", 4), nodes=8))

    def said(**words: int) -> list[str]:
        job = assemble([*base, layer_of(Rank.USER, Origin("--set"), **words)])
        return [text for text in job.warnings if "in each" in text]

    assert said(gpus=32) == [
        "wide.scenario.yaml:4 says 8 nodes, so 32 GPUs are 4 in each, where one has 8; --nodes 4 for whole ones"
    ]
    assert said() == said(gpus=64) == said(gpus=32, nodes=8) == []


def test_nodes_that_nobody_counted_are_named() -> None:
    """Four GPUs of a node are those that a card is rented in, and eight of them two nodes."""
    base = dsgen.profile("t4-16g") | dsgen.profile("1b")
    said = [text for text in dsgen.job(base | {"cluster.gpus": 8}).warnings if "are taken as" in text]

    assert [text.partition(",")[0] for text in said] == ["8 GPUs are taken as 2 nodes of 4"]
    for counted in ({"cluster.nodes": 2}, {"cluster.nodes": 2, "cluster.gpus": 8}, {"cluster.gpus": 4}):
        assert not [text for text in dsgen.job(base | counted).warnings if "are taken as" in text]
    one = dsgen.job(base | {"cluster.gpus": 8, "hardware.gpus_per_node": 8})
    assert (one.nodes, [text for text in one.warnings if "are taken as" in text]) == (1, [])
    assert not [text for text in dsgen.job(base | {"cluster.gpus": 16}).warnings if "are taken as" in text]


@pytest.mark.parametrize("said", [{}, {"training.attention": "flash"}])
def test_what_runs_in_place_of_flash_is_known_by_its_reason(said: dict[str, str]) -> None:
    """A T4 has no FlashAttention, and transformers no sdpa for Gemma 2, whose scores are capped."""
    job = dsgen.job(dsgen.profile("t4-16g") | dsgen.profile("gemma-2-2b") | said)
    winner = job.provenance.winner("training.attention")
    assert winner is not None
    assert job.training.attention == winner.value == "eager"
    assert winner.reason == "flash attention has no kernel before Ampere, and transformers refuses sdpa for gemma2"
    others = (dsgen.profile("t4-16g") | dsgen.profile("1b"), dsgen.profile("a100-40g") | dsgen.profile("gemma-2-2b"))
    assert all(dsgen.job(other | said).training.attention == "flash" for other in others)


@pytest.mark.parametrize(("card", "runs"), [("a100-80g", "eager"), ("l40s-48g", "eager"), ("h100-80g", "flash")])
def test_sinks_have_a_fused_kernel_from_hopper_on(card: str, runs: str) -> None:
    """gpt-oss takes vLLM's FlashAttention 3 or FlashAttention 4 (transformers 5.23), and no sdpa."""
    job = dsgen.job(dsgen.profile(card) | dsgen.profile("gpt-oss-20b"))
    winner = job.provenance.winner("training.attention")
    assert job.training.attention == runs
    if runs == "eager":
        assert winner is not None
        assert winner.reason is not None
        assert winner.reason.startswith("flash attention has no kernel before Hopper for its sinks")


def test_a_network_for_one_node_is_a_mistake() -> None:
    with pytest.raises(DsgenError) as caught:
        dsgen.job(BASE | dsgen.profile("ib-hdr-200g"))

    assert str(caught.value) == (
        "network ib-hdr-200g is named for one node; a network joins nodes\n"
        "  Drop it, or say how many nodes there are: --nodes 2."
    )


@pytest.mark.parametrize("overrides", [{}, {"network.fabric": "infiniband"}, {"network.bandwidth": "0 Gb/s"}])
def test_a_network_that_joins_nothing_for_two_nodes_is_a_mistake(overrides: dict[str, Any]) -> None:
    with pytest.raises(DsgenError, match=r"network single-node joins nothing, and there are 2 nodes; it must join"):
        dsgen.job(BASE | dsgen.profile("single-node") | {"cluster.nodes": 2, **overrides})


@pytest.mark.parametrize(("missing", "option"), [("hardware", "--hw"), ("model", "--model")])
def test_a_job_needs_hardware_and_a_model(missing: str, option: str) -> None:
    other = dsgen.profile("7b" if missing == "hardware" else "a100-40g")

    with pytest.raises(
        DsgenError, match=f"no {missing} is named; a plan needs hardware and a model\n  Name it with {option}"
    ):
        dsgen.job(other)


def test_one_file_that_says_a_key_under_two_names_is_refused() -> None:
    with pytest.raises(DsgenError) as caught:
        dsgen.job(BASE | dsgen.site({"zero_optimization.stage": 1, "deepspeed": {"zero_optimization": {"stage": 2}}}))

    assert str(caught.value) == (
        "deepspeed.zero_optimization.stage = 1 (python (site)) and 2 (python (site)); "
        "it can have one value\n  Drop one of the two."
    )


def test_an_empty_section_says_nothing() -> None:
    job = dsgen.job(BASE | {"training": {}, "deepspeed": {}})

    assert attrs.evolve(job, warnings=()) == dsgen.job(BASE)
    assert job.warnings == ("python: training = {} changes nothing; it is a map already",)


def test_a_path_has_an_end() -> None:
    assert "a path has at most 40 levels and 1000 letters" in error_of({".".join(["a"] * 50): 1})
    assert "a path has at most 40 levels and 1000 letters" in error_of({"a" * 1001: 1})
    assert "a path has at most 40 levels and 1000 letters" in error_of(
        {"compression_training." + ".".join("x" * 45): 1}
    )


def test_a_release_decides_which_keys_there_are() -> None:
    with pytest.raises(DsgenError, match=r"DeepSpeed 0\.99 is not known; the known releases are 0\.14"):
        dsgen.job(BASE, "0.99")
    with pytest.raises(DsgenError, match="unknown path tensor_parallel"):
        dsgen.job(BASE | {"tensor_parallel.autotp_size": 2}, "0.14")


def test_a_choice_may_be_written_in_other_letters(make_job: Any) -> None:
    job = make_job(training={"method": "QLoRA", "precision": "BF16", "scheduler": "warmuplr"})

    assert (job.training.method, job.training.precision, job.training.scheduler) == ("qlora", "bf16", "WarmupLR")
    assert [pin.allowed for pin in job.pins if pin.field == "precision"] == [("bf16",)]
    scenario = {"hw": "a100-40g", "model": "7b"}
    one, other = (dsgen.job({**scenario, "method": method}).training for method in ("QLoRA", "qlora"))
    assert one == other  # with the profile of its method


@pytest.mark.parametrize(
    ("name", "doubt"),
    [
        ("RTX 4060 Ti", "RTX 4060 Ti is taken for rtx4060ti-16g; of one with 8 GB say --gpu-memory 8GiB"),
        ("3060", "3060 is taken for rtx3060-12g; of one with 8 GB say --gpu-memory 8GiB"),
        ("3080", "3080 is taken for rtx3080-10g; of one with 12 GB say --gpu-memory 12GiB"),
        ("rtx3060-12g", None),
        ("RTX 3060 12 GB", None),
        ("3090", None),
    ],
)
def test_a_card_whose_name_another_memory_has_too_is_warned_of(name: str, doubt: str | None) -> None:
    said = {"hw": name, "model": "qwen2.5-0.5b"}

    assert [text for text in dsgen.job(said).warnings if "is taken for" in text] == ([doubt] if doubt else [])
    told = dsgen.job(said | {"gpu_memory": "8GiB"}).warnings
    assert not [text for text in told if "is taken for" in text]


@pytest.mark.parametrize("model", ["gemma-3-4b", "google/gemma-3-12b-it", "gemma-3-27b"])
@pytest.mark.parametrize("more", [{}, {"gpu_memory": "80GiB"}])
def test_a_vision_tower_that_is_loaded_too_is_warned_of(model: str, more: dict[str, str]) -> None:
    (said,) = (text for text in dsgen.job({"hw": "a100-80g", "model": model, **more}).warnings if "vision" in text)

    assert said.startswith(f"{model} has a vision tower of 0.42 B weights: the text part alone is counted")


@pytest.mark.parametrize("model", ["gemma-3-1b", "gemma-2-9b"])
def test_of_a_model_that_only_reads_nothing_of_the_kind_is_said(model: str) -> None:
    assert not [text for text in dsgen.job({"hw": "a100-80g", "model": model}).warnings if "vision" in text]


@pytest.mark.parametrize("tower", [{"vision_config": {"hidden_size": 1152}}, {}])
def test_a_config_json_with_a_vision_tower_is_warned_of(tmp_path: Path, tower: dict[str, Any]) -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 640, "num_hidden_layers": 2, "num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text, **tower}))

    warned = dsgen.job({"hw": "a100-80g", "model": str(tmp_path)}).warnings
    assert any("has a vision tower: the text part alone is counted" in said for said in warned) == bool(tower)
