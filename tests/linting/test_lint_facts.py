"""The facts of a run: profiles by name, what hardware and model imply, and what cannot be known."""

from __future__ import annotations

import pytest

import dsgen
from dsgen import targets
from dsgen.deepspeed import surface
from dsgen.documents.document import unwritten
from dsgen.linting import facts as lint_facts
from dsgen.linting.rules.described import Described, described, least
from dsgen.linting.subjects import Facts, Subject
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.profiles import Hardware, Model, Network

Config = dict[str, object]
ZERO_2: Config = {
    "train_micro_batch_size_per_gpu": 2,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW"},
    "zero_optimization": {"stage": 2},
}


def subject(config: Config, target: str = "deepspeed", **said: object) -> Subject:
    """A config on named hardware with a named model, as the rules get it."""
    facts = lint_facts.facts(config, **{"hardware": "a100-40g", "model": "7b", **said})  # type: ignore[arg-type]
    return Subject(
        config=config,
        surface=surface.load(),
        target=targets.find(target),
        document=unwritten(config),
        facts=facts,
    )


def asked(config: Config, target: str = "deepspeed", **said: object) -> Described | None:
    """What the rules see of it."""
    return described(subject(config, target, **said))


def test_names_become_profiles() -> None:
    found = lint_facts.facts({}, hardware="a100-40g", model="7b", network="ethernet-10g")

    assert isinstance(found.hardware, Hardware) and found.hardware.gpus_per_node == 8
    assert isinstance(found.model, Model) and found.model.layers == 32
    assert isinstance(found.network, Network) and found.network.fabric == "ethernet"


def test_facts_take_names_as_well() -> None:
    assert Facts(hardware="a100-40g") == Facts(hardware=lint_facts.facts(hardware="a100-40g").hardware)


@pytest.mark.parametrize("kind", ["hardware", "model", "network"])
def test_an_unknown_name_is_the_users_mistake(kind: str) -> None:
    with pytest.raises(DsgenError, match=f"no {kind} profile"):
        lint_facts.facts({}, **{kind: "no-such-thing"})  # type: ignore[arg-type]


def test_a_cpu_implies_its_accelerator() -> None:
    assert lint_facts.facts({}, hardware="cpu").accelerator == "cpu"
    assert lint_facts.facts({}, hardware="cpu", accelerator="cuda").accelerator == "cuda"
    assert lint_facts.facts({}, hardware="a100-40g").accelerator is None


def test_a_model_implies_the_names_of_its_parameters() -> None:
    names = lint_facts.facts({}, model="llama-2-7b").parameters

    assert names is not None
    assert "model.layers.31.self_attn.q_proj.weight" in names
    assert "lm_head.weight" in names
    assert not any("*" in name for name in names)
    assert lint_facts.facts({}, model="llama-2-7b", parameters=("a",)).parameters == ("a",)


def test_lists_become_sets() -> None:
    found = lint_facts.facts({}, missing=["wandb", "wandb"], calls=("engine.compile",))

    assert (found.missing, found.calls) == (frozenset({"wandb"}), frozenset({"engine.compile"}))


def test_a_config_is_the_strategy_it_describes() -> None:
    found = asked({**ZERO_2, "train_batch_size": 32}, world_size=8)

    assert found is not None
    chosen = found.strategy
    assert (chosen.stage, chosen.precision, chosen.micro_batch, chosen.accumulation) == (2, "bf16", 2, 2)
    assert (chosen.offload_optimizer, chosen.offload_param, chosen.tp) == ("none", "none", 1)
    assert chosen.buffers.reduce_bucket == 500_000_000
    assert chosen.buffers.overlap_comm is False


@pytest.mark.parametrize(
    ("zero", "places"),
    [
        ({"stage": 2, "offload_optimizer": {"device": "nvme"}}, ("cpu", "none")),  # below stage 3 it is the CPU
        ({"stage": 2, "offload_param": {"device": "cpu"}}, ("none", "none")),
        ({"stage": 0, "offload_optimizer": {"device": "cpu"}}, ("none", "none")),
        ({"stage": 3, "offload_optimizer": {"device": "nvme"}, "offload_param": {"device": "cpu"}}, ("nvme", "cpu")),
    ],
)
def test_what_is_offloaded_is_what_deepspeed_offloads(zero: Config, places: tuple[str, str]) -> None:
    found = asked({**ZERO_2, "zero_optimization": zero})

    assert found is not None
    assert (found.strategy.offload_optimizer, found.strategy.offload_param) == places


def test_the_memory_is_that_of_the_plan_that_renders_the_config() -> None:
    composed = dsgen.profile("a100-40g") | dsgen.profile("7b") | {"training": {"seq_len": 2048}}
    plan = dsgen.plan(composed | {"training": {"checkpointing": "full"}})
    config = dsgen.render(plan).tree

    found = asked(config, world_size=8, seq_len=2048)

    assert found is not None
    assert found.strategy.buffers.reduce_bucket == plan.chosen.strategy.buffers.reduce_bucket
    assert found.memory.gpu.peak_bytes == pytest.approx(plan.chosen.memory.gpu.peak_bytes, rel=0.02)


def test_the_least_is_less() -> None:
    asked_about = subject({**ZERO_2, "optimizer": {"type": "Lamb"}})
    found = described(asked_about)
    assert found is not None
    lean = least(asked_about, found)

    assert lean is not None and lean.gpu.peak_bytes < found.memory.gpu.peak_bytes
    assert "optimizer states" in found.memory.gpu.parts


def test_hugging_face_fills_in_buffers_and_batch() -> None:
    config: Config = {
        "train_micro_batch_size_per_gpu": "auto",
        "bf16": {"enabled": "auto"},
        "zero_optimization": {
            "stage": 3,
            "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto",
        },
    }

    found = asked(config, "hf-trainer")

    assert found is not None
    assert found.strategy.micro_batch == 1
    assert found.strategy.buffers.reduce_bucket == 4096**2
    assert found.strategy.buffers.persistence == 10 * 4096


@pytest.mark.parametrize(
    "change",
    [
        {"tensor_parallel": {"autotp_size": 3}},
        {"expert_parallel": {"enabled": True}},
        {"sequence_parallel_size": 2},
        {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}},
        {"bf16": {"enabled": False}, "torch_autocast": {"enabled": True, "dtype": "bfloat16"}},
    ],
)
def test_what_the_memory_model_does_not_know_has_no_estimate(change: Config) -> None:
    assert asked({**ZERO_2, **change}, world_size=8) is None


def test_master_weights_in_16_bits_are_in_the_estimate() -> None:
    keys = {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    adam = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
    wide = asked({**ZERO_2, **adam}, world_size=8)
    narrow = asked({**ZERO_2, **adam, "bf16": keys}, world_size=8)

    assert wide is not None
    assert narrow is not None
    assert narrow.memory.gpu.peak_bytes < wide.memory.gpu.peak_bytes


def test_without_hardware_or_model_there_is_no_estimate() -> None:
    assert asked(ZERO_2, hardware=None) is None
    assert asked(ZERO_2, model=None) is None
    assert asked(ZERO_2, world_size=12) is not None  # two nodes of six
    assert asked(ZERO_2, world_size=13) is None
    assert asked(ZERO_2, hardware="cpu") is None
