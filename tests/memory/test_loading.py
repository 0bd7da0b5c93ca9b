"""How a model comes in: what the ranks of a node read into its RAM and onto their GPUs, by hand and by program."""

from __future__ import annotations

import json
from typing import Any

import pytest
from command_line import run

import dsgen
from dsgen.api import memory
from dsgen.families.parameters import parameter_count
from dsgen.memory import Verdict
from dsgen.memory.loading import LOADINGS_OF

GIB = 2**30
RANKS = 8
SEVEN = {"hw": "a100-80g", "model": "7b", "nodes": 1, "tp": 1, "offload": "none", "micro_batch": 1}
SEVENTY = SEVEN | {"model": "70b", "checkpointing": "full"}


def phases(target: str | None = None, **said: Any) -> dict[str, tuple[int, int]]:
    """Phase -> bytes of a GPU, and of a node's RAM."""
    taken = memory({**SEVEN, **said}, target=target).memory
    return {phase.phase: (phase.gpu_bytes, phase.host_bytes) for phase in taken.phases}


def elements(**said: Any) -> int:
    return parameter_count(dsgen.job({**SEVEN, **said}).model)


@pytest.mark.parametrize(("way", "each"), [("auto", 2), ("copied", 2), ("fp32", 4), ("mapped", 0), ("gpu", 0)])
def test_each_rank_of_a_node_has_its_own_copy_but_of_what_is_mapped(way: str, each: int) -> None:
    found = phases(zero_stage=2, loading=way)

    assert found["load"][1] == RANKS * each * elements()
    assert found["load"][0] == (2 * elements() if way == "gpu" else 0)


def test_mapped_files_lie_in_the_page_cache_once() -> None:
    taken = memory({**SEVEN, "zero_stage": 2, "loading": "mapped"}).memory

    assert taken.mapped_bytes == 2 * elements()
    assert taken.host.peak_bytes == 0


def test_under_zero_init_only_rank_0_reads() -> None:
    assert phases(zero_stage=3, loading="fp32")["load"][1] == 0
    assert phases(zero_stage=3, loading="fp32", zero_init=False)["load"][1] == RANKS * 4 * elements()


@pytest.mark.parametrize(("said", "each"), [({}, 2), ({"precision": "fp32"}, 4), ({"offload": "all"}, 0)])
def test_stage_3_makes_its_shares_one_tensor_in_ram(said: dict[str, Any], each: int) -> None:
    """All ranks of a node do; parameters on the CPU are one tensor there from the start."""
    assert phases("hf-trainer", zero_stage=3, **said)["init"][1] == RANKS * each * elements() // RANKS


def test_init_takes_what_was_read_or_the_shares_whichever_is_more() -> None:
    seven, seventy = phases(zero_stage=3), phases(zero_stage=3, model="70b", offload="optimizer")

    assert seven["init"][1] == seven["load"][1] > 2 * elements()
    assert seventy["init"][1] == 2 * elements(model="70b") > seventy["load"][1]


def test_of_adapters_stage_3_makes_the_trained_shares_one_tensor_in_ram() -> None:
    wide, narrow = (phases("hf-trainer", zero_stage=3, method="lora", lora_fp32=switch) for switch in (True, False))
    adapters = 16 * 32 * (4 * (4096 + 4096) + 3 * (4096 + 11008))

    assert wide["init"][1] == 4 * adapters
    assert narrow["init"][1] == 2 * adapters


def test_without_zero_init_each_rank_moves_the_whole_model_to_its_gpu() -> None:
    """Then DeepSpeed cuts it tensor by tensor, each beside this rank's share of it."""
    under, without = (phases(zero_stage=3, zero_init=switch)["init"][0] for switch in (True, False))

    largest = 32000 * 4096
    assert without == pytest.approx(2 * elements() + 2 * largest / RANKS, rel=1e-3)
    assert under < without / 1.5


def test_without_zero_init_adapters_are_16_bit() -> None:
    """DeepSpeed casts all that no zero.Init made; TRL tells peft not to upcast, which does the same."""
    asked = {"zero_stage": 3, "method": "lora", "lora_rank": 64, "checkpointing": "full"}
    wide, cast, told = (
        memory({**SEVEN, **asked, **more}).memory.phases[-1].gpu_bytes
        for more in ({}, {"zero_init": False}, {"lora_fp32": False})
    )

    assert cast == told < wide


def test_transformers_5_joins_a_mixtures_experts_in_the_ram_of_each_rank() -> None:
    """Those of transformers 4 are as the files have them, and so mapped."""
    asked = {"model": "mixtral-8x7b", "zero_stage": 2, "loading": "mapped"}
    experts = 32 * 8 * 3 * 4096 * 14336

    assert phases(**asked)["load"][1] == RANKS * 2 * experts
    assert phases(**asked, transformers="4.57")["load"][1] == 0
    assert phases(**{**asked, "zero_stage": 3})["load"][1] == 2 * experts // 32  # rank 0, a layer at a time


def test_llama_factory_makes_fp32_of_what_it_trains_on_the_gpu() -> None:
    """The last tensor, the head, is there in both types; and the first, the embedding, when DeepSpeed casts it back."""
    found = phases("llama-factory", zero_stage=2)
    table = 32000 * 4096

    assert found["load"][0] == 4 * elements() + 2 * table
    assert found["init"][0] == pytest.approx(4 * elements() + 2 * table, rel=1e-3)


def test_every_program_has_a_way_and_what_a_person_says_wins() -> None:
    from dsgen.frameworks.names import NAMES

    assert set(LOADINGS_OF) == set(NAMES)
    assert phases("ms-swift", zero_stage=2)["load"] == (2 * elements(), 0)
    assert phases("ms-swift", zero_stage=2, loading="fp32")["load"] == (0, RANKS * 4 * elements())
    assert phases("hf-trainer", zero_stage=2)["load"] == (0, 0)


def test_loading_that_fails_first_is_said() -> None:
    """70B on eight ranks without zero.Init: 8 x 129 GiB of RAM, and 129 GiB on a GPU of 79."""
    copies = memory({**SEVENTY, "zero_stage": 3, "zero_init": False, "host_memory": "900GiB"})
    assert copies.memory.host.verdict is Verdict.DOES_NOT_FIT

    shown = run("memory", *options(SEVENTY), "--zero-stage", "3", "--no-zero-init", "--host-memory", "900GiB")
    told = " ".join(shown.out.split())

    assert "load fails first: 8 ranks x 128 GiB of weights in the RAM of a node" in told
    assert "--zero-init" in told
    assert "init fails too: without zero.Init each rank moves the whole model to its GPU" in told


def test_the_same_words_stand_in_the_json() -> None:
    shown = run("memory", *options(SEVEN), "--zero-stage", "2", "--target", "hf-trainer", "--format", "json")
    told = json.loads(shown.out)["loading"]

    assert told["way"] == "mapped"
    assert told["zero_init"] is None
    assert told["page_cache_bytes"] == 2 * elements()
    assert told["notes"][0].startswith("load: 12.6 GiB of the checkpoint's files lie in a node's page cache")


def test_a_program_that_there_is_not_is_refused() -> None:
    shown = run("memory", *options(SEVEN), "--target", "ms-swif")

    assert shown.code == 2
    assert "ms-swift" in shown.err


@pytest.mark.parametrize(("release", "copies"), [("0.14", 4), ("0.17", 4), ("0.18.6", 4), ("0.18", 2), ("0.19", 2)])
def test_releases_before_0_18_7_flatten_weights_in_ram(release: str, copies: int) -> None:
    """Each rank has its weights there twice by then, and its GPU has them once."""
    taken = dsgen.memory({**SEVEN, "zero_stage": 2}, deepspeed=release).memory
    init = {phase.phase: phase for phase in taken.phases}["init"]

    assert init.host_bytes == pytest.approx(RANKS * copies * elements(), rel=1e-3)
    assert (init.gpu_bytes < 3.5 * elements()) is (copies == 4)


@pytest.mark.parametrize(("release", "back"), [("0.14", 4), ("0.16", 4), ("0.17", 0), ("0.19", 0)])
def test_releases_before_0_17_send_stepped_weights_back_in_fp32(release: str, back: int) -> None:
    """This rank's part; from 0.17 on 16 bits of it wait in RAM instead."""
    asked = SEVEN | {"zero_stage": 2, "offload": "optimizer", "seq_len": 128}
    step = dsgen.memory(asked, deepspeed=release).memory.phases[-1]
    newest = dsgen.memory(asked).memory.phases[-1]
    own = elements() / RANKS

    assert step.gpu_bytes - newest.gpu_bytes == pytest.approx(back * own, rel=1e-3)
    assert newest.host_bytes - step.host_bytes == pytest.approx(RANKS * 2 * own * bool(back), rel=1e-3)


def test_releases_before_0_17_6_share_out_bf16_at_stage_0_and_the_interval_says_so() -> None:
    """With BF16_Optimizer 2 bytes a weight, 4 a gradient, and a rank's eighth of 12 lie on a GPU between two steps."""
    asked = {**SEVEN, "model": "1b", "zero_stage": 0, "seq_len": 128}
    old, new = (dsgen.memory(asked, deepspeed=release) for release in ("0.16", "0.19"))
    count = elements(model="1b")

    assert old.memory.gpu.low_bytes < (2 + 4 + 12 / 8) * count < new.memory.gpu.low_bytes
    assert any("shares out master weights" in note for note in old.question.notes)
    assert not any("shares out master weights" in note for note in new.question.notes)


def options(said: dict[str, Any]) -> list[str]:
    return [word for name, value in said.items() for word in (f"--{name.replace('_', '-')}", str(value))]
