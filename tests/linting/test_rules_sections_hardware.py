"""The rules about sections of their own and about named hardware: what DeepSpeed 0.19.8 does decides."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dsgen
from dsgen.deepspeed import surface
from dsgen.linting import facts as lint_facts
from dsgen.linting.linter import lint_config
from dsgen.linting.rules import hardware, sections
from dsgen.linting.subjects import Facts
from dsgen.shapes.findings import Assign, Finding, Remove, Severity

BASE: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
    "zero_optimization": {"stage": 2},
}
OWN = {rule.name for rule in (*sections.RULES, *hardware.RULES)}
ON_CPU = Facts(world_size=2, accelerator="cpu", missing=frozenset({"wandb", "tensorboard", "comet_ml", "datastates"}))
CONFIGURES = Facts(calls=frozenset({"checkpointing.configure"}))


def merged(change: dict[str, Any]) -> dict[str, Any]:
    return {**copy.deepcopy(BASE), **change}


def linted(config: dict[str, Any], facts: Facts | None = None, **known: str) -> list[Finding]:
    """The findings of these two families."""
    return [finding for finding in lint_config(config, facts=facts, **known) if finding.rule in OWN]


def said(change: dict[str, Any], facts: Facts | None = None, **known: str) -> dict[str, str]:
    """Rule -> severity, for a change of the base config."""
    return {finding.rule: str(finding.severity) for finding in linted(merged(change), facts, **known)}


# Seen on DeepSpeed 0.19.8, on a CPU with two ranks: the change, and where it stopped.
REFUSED = {
    "tensorboard without its package": ({"tensorboard": {"enabled": True}}, "monitor-package"),
    "wandb without its package": ({"wandb": {"enabled": True}}, "monitor-package"),
    "comet without its package": ({"comet": {"enabled": True}}, "monitor-package"),
    "datastates, an empty map": ({"datastates_ckpt": {}}, "datastates-missing"),
    "datastates, null": ({"datastates_ckpt": None}, "datastates-missing"),
    "datastates, 0": ({"datastates_ckpt": 0}, "datastates-missing"),
    "GDS on a CPU": ({"aio": {"use_gds": True}}, "gds-without-cuda"),
    "GDS as a text": ({"aio": {"use_gds": "false"}}, "gds-without-cuda"),
    "a fast writer": ({"checkpoint": {"writer": {"type": "fast"}}}, "checkpoint-writer-fails"),
    "a writer at stage 3": (
        {"zero_optimization": {"stage": 3}, "checkpoint": {"writer": {}}},
        "checkpoint-writer-fails",
    ),
    "curriculum, sections around it off": (
        {"data_efficiency": {"data_sampling": {"curriculum_learning": {"enabled": True}}}},
        "curriculum-without-metrics",
    ),
    "curriculum, enabled as a text": (
        {"data_efficiency": {"data_sampling": {"curriculum_learning": {"enabled": "false"}}}},
        "curriculum-without-metrics",
    ),
    "dynamic batching, sections around it off": (
        {"data_efficiency": {"data_sampling": {"dynamic_batching": {"enabled": True}}}},
        "dynamic-batching-without-max-tokens",
    ),
    "random LTD, nothing": (
        {"data_efficiency": {"data_routing": {"random_ltd": {"enabled": True}}}},
        "random-ltd-incomplete",
    ),
    "random LTD, no schedule": (
        {
            "data_efficiency": {
                "data_routing": {"random_ltd": {"enabled": True, "total_layer_num": 2, "random_ltd_layer_num": 1}}
            }
        },
        "random-ltd-incomplete",
    ),
}
SCHEDULE = {
    "min_value": 1,
    "max_value": 2,
    "schedule_type": "fixed_linear",
    "schedule_config": {"require_steps": 2, "seq_per_step": 1},
}
LAYERS = {
    "random_ltd_layer_id": [1],
    "model_mask_name": None,
    "hidden_state_order": "seq_batch_dim",
    "model_type": "decoder",
}


def ltd(**keys: Any) -> dict[str, Any]:
    """Random layer-token dropping as it runs, with some keys changed; those of None are left out."""
    whole = {
        "enabled": True,
        "total_layer_num": 2,
        "random_ltd_layer_num": 1,
        "random_ltd_schedule": SCHEDULE,
        **LAYERS,
        **keys,
    }
    kept = {name: value for name, value in whole.items() if name not in keys or value is not None}
    return {"data_efficiency": {"data_routing": {"random_ltd": kept}}}


# Seen to run and to do what they say.
RIGHT: dict[str, dict[str, Any]] = {
    "nothing": {},
    "datastates off": {"datastates_ckpt": False},
    "GDS off": {"aio": {"use_gds": 0}},
    "no writer": {"checkpoint": {"writer": None}},
    "curriculum with metrics": {
        "data_efficiency": {"data_sampling": {"curriculum_learning": {"enabled": True, "curriculum_metrics": {}}}}
    },
    "dynamic batching": {
        "data_efficiency": {"data_sampling": {"dynamic_batching": {"enabled": True, "max_tokens": 10}}}
    },
    "random LTD": ltd(),
    "random LTD that keeps all from the start": ltd(
        random_ltd_schedule={**SCHEDULE, "min_value": 2, "schedule_type": "fixed_root"}
    ),
    "csv": {"csv_monitor": {"enabled": True, "output_path": "logs"}},
    "flops profiler": {"flops_profiler": {"enabled": True, "profile_step": 1}},
    "communication logger": {"comms_logger": {"enabled": True}},
    "sanity checks at stage 2": {"zero_optimization": {"stage": 2, "enable_sanity_checks": True}},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_deepspeed_refuses_is_one_error(name: str) -> None:
    change, rule = REFUSED[name]

    found = [finding for finding in linted(merged(change), ON_CPU) if finding.severity is Severity.ERROR]

    assert [finding.rule for finding in found] == [rule]


@pytest.mark.parametrize(
    ("change", "stops"),
    [
        (
            {"random_ltd_schedule": {**SCHEDULE, "schedule_type": "fixed_root"}},
            'the first step stops: it must be "fixed_linear"',
        ),
        ({"layer_token_lr_schedule": {"enabled": True}}, "deepspeed.initialize stops (NotImplementedError)"),
    ],
    ids=["schedule", "learning rate"],
)
def test_random_ltd_has_one_schedule_and_none_of_the_learning_rate(change: dict[str, Any], stops: str) -> None:
    (error,) = [one for one in linted(merged(ltd(**change)), ON_CPU) if one.severity > Severity.INFO]

    assert (error.rule, error.severity) == ("random-ltd-incomplete", Severity.ERROR)
    assert error.message.endswith(stops)


@pytest.mark.parametrize("missing", [["model_mask_name"], ["random_ltd_layer_id", "model_type"], list(LAYERS)], ids=str)
def test_random_ltd_names_what_the_layers_ask_for(missing: list[str]) -> None:
    """convert_to_random_ltd of a model with such layers stops; deepspeed.initialize alone does not."""
    (warning,) = [one for one in linted(merged(ltd(**dict.fromkeys(missing))), ON_CPU) if one.severity > Severity.INFO]

    assert (warning.rule, warning.severity) == ("random-ltd-incomplete", Severity.WARNING)
    assert f"convert_to_random_ltd stops with KeyError '{missing[0]}'" in warning.message
    assert all(name in warning.message for name in missing)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str) -> None:
    found = linted(merged(RIGHT[name]), ON_CPU)

    assert [finding for finding in found if finding.severity > Severity.INFO] == []


# Seen to run on 0.19.8 and not to do what they say.
IN_VAIN = {
    "activation-checkpointing-unused": {"activation_checkpointing": {"partition_activations": True}},
    "hybrid-engine-on": {"hybrid_engine": {"enabled": True}},
    "weight-quantization-unused": {"weight_quantization": {"enabled": True}},
    "deepcompile-not-called": {"compile": {"deepcompile": True}},
    "autotuning-ends-the-run": {"autotuning": {"enabled": True}},
}


@pytest.mark.parametrize("rule", IN_VAIN)
def test_what_runs_otherwise_than_written_is_a_warning(rule: str) -> None:
    assert said(IN_VAIN[rule]) == {rule: "warning"}


@pytest.mark.parametrize(
    ("model", "severity"), [(None, "warning"), ("llama-3.2-1b", "error"), ("gpt2", "error"), ("qwen2.5-0.5b", None)]
)
def test_the_hybrid_engine_stops_on_a_cpu_for_the_families_that_it_has_kernels_for(
    model: str | None, severity: str | None
) -> None:
    """Seen with tiny models of them; a Qwen trains on."""
    facts = Facts(world_size=2, accelerator="cpu", model=model)
    on_a_gpu = Facts(world_size=2, model=model)

    assert said(IN_VAIN["hybrid-engine-on"], facts).get("hybrid-engine-needs-gpu") == severity
    assert "hybrid-engine-needs-gpu" not in said(IN_VAIN["hybrid-engine-on"], on_a_gpu)


def test_what_the_program_calls_makes_it_right() -> None:
    calls = frozenset({"checkpointing.configure", "engine.compile", "engine.generate", "deepspeed --autotuning"})
    change = {key: value for one in IN_VAIN.values() for key, value in one.items()}

    assert set(said(change, Facts(calls=calls))) == {"weight-quantization-unused"}


def test_activation_checkpointing_is_read_by_lightning() -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "activation_checkpointing": {"partition_activations": True}}

    for target, rules in (("deepspeed", {"activation-checkpointing-unused"}), ("lightning", set())):
        heard = {item.rule for item in lint_config(config, target=target)}
        assert heard & {"activation-checkpointing-unused"} == rules


def test_activation_checkpointing_is_one_finding_and_quiet_when_it_asks_for_nothing() -> None:
    asks = {"partition_activations": True, "cpu_checkpointing": True, "number_checkpoints": 8}
    (found,) = linted(merged({"activation_checkpointing": asks}))
    assert (found.path, found.severity) == ("activation_checkpointing", Severity.WARNING)

    off = {"partition_activations": False, "cpu_checkpointing": False, "number_checkpoints": None}
    assert said({"activation_checkpointing": off}) == {"activation-checkpointing-unused": "info"}
    assert said({"activation_checkpointing": {"no_such_key": True}}) == {}


def test_removing_the_section_is_safe_where_the_program_never_reads_it() -> None:
    config = merged({"activation_checkpointing": {"partition_activations": True}})

    for target, safe in (("deepspeed", False), ("hf-trainer", True)):
        (found,) = linted(config, target=target)
        assert found.fix is not None
        assert (found.fix.safe, found.fix.edits) == (safe, (Remove("activation_checkpointing"),))


@pytest.mark.parametrize(
    "section",
    [
        {"contiguous_memory_optimization": True},
        {"contiguous_memory_optimization": True, "partition_activations": True},
    ],
)
def test_contiguous_checkpoints_need_two_more_keys(section: dict[str, Any]) -> None:
    change = {"activation_checkpointing": section}

    assert said(change, CONFIGURES) == {"contiguous-checkpoints-incomplete": "error"}
    assert said(change)["contiguous-checkpoints-incomplete"] == "warning"
    complete = {"activation_checkpointing": {**section, "partition_activations": True, "number_checkpoints": 2}}
    assert said(complete, CONFIGURES) == {}


def test_a_release_without_the_key_has_no_such_fault() -> None:
    assert "checkpoint-writer-fails" not in said({"checkpoint": {"writer": {}}}, deepspeed="0.16")
    assert "datastates-missing" not in said({"datastates_ckpt": True}, ON_CPU, deepspeed="0.17")


def test_the_step_in_which_autotuning_ends_is_said() -> None:
    (found,) = linted(merged({"autotuning": {"enabled": True, "end_profile_step": 2}}))

    assert "in step 3" in found.message


def test_a_profiler_is_a_warning_where_the_file_wants_the_opposite() -> None:
    overlapping = {"zero_optimization": {"stage": 2, "overlap_comm": True}}

    assert said({"comms_logger": {"enabled": True}, **overlapping}) == {"profiler-left-on": "warning"}
    assert said({"flops_profiler": {"enabled": True}, "wall_clock_breakdown": False}) == {"profiler-left-on": "warning"}


def test_timers_are_a_preference() -> None:
    assert said({"wall_clock_breakdown": True}) == {"timers-left-on": "info"}


def test_sanity_checks_cost_at_stage_3_alone() -> None:
    assert said({"zero_optimization": {"stage": 3, "enable_sanity_checks": True}})["timers-left-on"] == "info"
    assert "timers-left-on" not in said({"zero_optimization": {"stage": 2, "enable_sanity_checks": True}})


# Named hardware.


def on(change: dict[str, Any], **facts: Any) -> dict[str, str]:
    return said({"bf16": {"enabled": True}, **change}, Facts(**facts))


def test_without_a_name_nothing_is_said_of_hardware() -> None:
    change = {"fp16": {"enabled": True}, "zero_optimization": {"stage": 2, "reduce_bucket_size": 10**12}}

    assert {rule.name for rule in hardware.RULES} & set(said(change, Facts(world_size=64))) == set()


def test_a_dtype_that_the_gpu_lacks() -> None:
    assert said({"bf16": {"enabled": True}}, Facts(hardware="v100-16g")) == {"dtype-not-in-hardware": "warning"}
    assert said({"fp16": {"enabled": True}}, Facts(hardware="v100-16g")) == {}
    assert said({"fp16": {"enabled": True}}, Facts(hardware="a100-40g")) == {"fp16-where-bf16-is": "info"}
    assert said({}, Facts(hardware="a100-40g")) == {"fp32-on-tensor-cores": "warning"}
    assert said({}, Facts(hardware="a100-40g"), target="hf-trainer") == {}
    assert said({}, Facts(hardware="cpu")) == {}


@pytest.mark.parametrize(
    ("zero", "facts", "found"),
    [
        ({"stage": 2}, {"world_size": 8}, False),  # NVLink
        ({"stage": 2}, {"world_size": 16}, True),
        ({"stage": 2, "overlap_comm": True}, {"world_size": 16}, False),
        ({"stage": 3}, {"world_size": 16}, False),  # on by default
        ({"stage": 3, "overlap_comm": False}, {"world_size": 16}, True),
        ({"stage": 0}, {"world_size": 16}, False),
        ({"stage": 2}, {"hardware": "a100-40g-pcie", "world_size": 8}, True),
        ({"stage": 2}, {"hardware": "a100-40g-pcie", "world_size": 1}, False),
    ],
)
def test_overlap_is_missed_where_the_link_is_slow(zero: dict[str, Any], facts: dict[str, Any], found: bool) -> None:
    assert (
        "no-overlap-on-a-slow-link" in on({"zero_optimization": zero}, **{"hardware": "a100-40g", **facts})
    ) is found


def test_buckets_are_elements() -> None:
    change = {"zero_optimization": {"stage": 2, "overlap_comm": True, "reduce_bucket_size": 5e8}}
    (found,) = [
        item
        for item in linted(merged({"fp16": {"enabled": True}, **change}), Facts(hardware="t4-16g"))
        if item.rule == "bucket-takes-memory"
    ]

    assert "500,000,000 of 2 bytes" in found.message and "1.9 GiB" in found.message
    assert found.fix is not None
    (edit,) = found.fix.edits
    assert isinstance(edit, Assign) and edit.value < 5e8
    assert "bucket-takes-memory" not in on(change, hardware="a100-80g")


@pytest.mark.parametrize(
    ("model", "stage", "severity"),
    [("70b", 2, "error"), ("70b", 3, "error"), ("7b", 0, "error"), ("7b", 3, None), ("125m", 0, None)],
)
def test_what_does_not_fit(model: str, stage: int, severity: str | None) -> None:
    facts = {"hardware": "a100-40g", "model": model, "world_size": 8}

    assert on({"zero_optimization": {"stage": stage}}, **facts).get("does-not-fit") == severity


def test_a_long_sequence_that_nobody_named_is_no_error() -> None:
    config = {"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 16}
    facts = {"hardware": "a100-40g", "model": "7b", "world_size": 8}

    assert on(config, **facts)["does-not-fit"] == "warning"
    assert on(config, **facts, seq_len=32768)["does-not-fit"] == "error"


def test_the_least_is_that_of_a_loss_with_logits_or_without() -> None:
    """At stage 3 a loss that keeps no logits holds gradients of the whole head: 12 GiB of Llama 405B's."""
    zero = {
        "stage": 3,
        "reduce_bucket_size": 330_000_000,
        "offload_param": {"device": "cpu"},
        "offload_optimizer": {"device": "cpu"},
    }
    change = {"zero_optimization": zero, "train_micro_batch_size_per_gpu": 1}
    facts = {"hardware": "rtx5090-32g", "model": "405b", "world_size": 32}

    assert on(change, **facts, seq_len=4096)["does-not-fit"] == "warning"
    assert on(change, **facts, seq_len=8192)["does-not-fit"] == "error"


def test_offload_needs_the_ram_of_the_node() -> None:
    change = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}

    assert on(change, hardware="a100-40g", model="70b", world_size=8)["host-memory-too-small"] == "error"
    assert "host-memory-too-small" not in on(change, hardware="a100-40g", model="7b", world_size=8)


def test_swapping_needs_drives() -> None:
    device = {"device": "nvme", "nvme_path": "/local_nvme"}
    change = {"zero_optimization": {"stage": 3, "offload_optimizer": device}}

    assert on(change, hardware="v100-16g")["nvme-not-there"] == "warning"
    assert "nvme-not-there" not in on(change, hardware="a100-40g")
    assert "nvme-not-there" not in on(
        {"zero_optimization": {"stage": 2, "offload_optimizer": device}}, hardware="v100-16g"
    )


def test_a_threshold_above_the_matrices_keeps_them_whole() -> None:
    def with_threshold(threshold: int) -> dict[str, Any]:
        return {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": threshold}}

    assert on(with_threshold(10**9), model="7b")["nothing-is-partitioned"] == "warning"
    assert "nothing-is-partitioned" not in on(with_threshold(10**6), model="7b")


def test_stage_3_over_a_slow_network_names_what_is_faster() -> None:
    facts = {"hardware": "a100-80g", "world_size": 16, "seq_len": 2048}
    change = {"zero_optimization": {"stage": 3}}

    assert on(change, **facts, model="7b", network="ethernet-10g")["stage-3-on-a-slow-network"] == "warning"
    assert "stage-3-on-a-slow-network" not in on(change, **facts, model="7b", network="ib-ndr-3200g")
    assert "stage-3-on-a-slow-network" not in on(change, **{**facts, "world_size": 8}, model="7b")


def test_a_micro_batch_that_the_program_says_is_named_where_it_is_assumed() -> None:
    facts = Facts(hardware="a100-80g", world_size=16, seq_len=2048, model="7b", network="ethernet-10g")
    batch = {"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto"}
    offloaded = {"stage": 3, "offload_optimizer": {"device": "cpu"}}

    told = {
        item.rule: item
        for item in linted(merged({"bf16": {"enabled": True}, **batch, "zero_optimization": offloaded}), facts,
                           target="hf-trainer")
    }  # fmt: skip
    assert told["stage-3-on-a-slow-network"].severity is Severity.INFO
    assert told["stage-3-on-a-slow-network"].message.endswith("which fits with micro-batch 1")
    assert told["offload-not-needed"].message.endswith("with activation checkpointing and micro-batch 1")


def test_groups_that_leave_the_node() -> None:
    facts = {"hardware": "a100-80g", "world_size": 16}

    assert (
        on({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 16}}, **facts)["hpz-leaves-the-node"]
        == "warning"
    )
    assert "hpz-leaves-the-node" not in on({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}, **facts)
    assert on({"tensor_parallel": {"autotp_size": 16}}, **facts)["tensor-parallel-leaves-the-node"] == "warning"


OWN_PLANS = [
    (gpu, model, gpus, network)
    for gpu, model, (gpus, network) in itertools.product(
        ("a100-40g", "t4-16g", "h100-80g", "rtx4090-24g"),
        ("125m", "7b", "70b"),
        ((8, None), (16, "ethernet-10g"), (16, "ib-hdr-200g")),
    )
]


@pytest.mark.parametrize(("gpu", "model", "gpus", "network"), OWN_PLANS)
def test_what_dsgen_renders_is_right_for_its_hardware(gpu: str, model: str, gpus: int, network: str | None) -> None:
    composed = dsgen.profile(gpu) | dsgen.profile(model) | {"training": {"seq_len": 2048}, "cluster": {"gpus": gpus}}
    if network:
        composed = composed | dsgen.profile(network)
    config = dsgen.render(composed).tree
    calls = ["checkpointing.configure"]  # what the plan's reason asks of the program, where it checkpoints with AutoTP
    facts = lint_facts.facts(
        config, hardware=gpu, model=model, network=network, world_size=gpus, seq_len=2048, calls=calls
    )

    found = linted(config, facts, target="deepspeed")

    assert [item for item in found if item.severity > Severity.INFO] == []


SECTIONS = ("zero", "train_", "gradient_acc", "bf16", "fp16", "tensor_parallel", "aio", "data_eff")
PATHS = sorted(path for path in surface.load().paths if path.startswith(SECTIONS))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
JSON = st.recursive(
    LEAVES | st.sampled_from(("auto", "cpu", "nvme", 2, 3)),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.lists(st.tuples(st.sampled_from(PATHS), JSON), max_size=6),
    st.sampled_from(("deepspeed", "hf-trainer")),
    st.sampled_from(("a100-40g", "v100-16g", "cpu", None)),
    st.sampled_from((None, 1, 8, 12, 16)),
)
def test_no_value_breaks_a_rule_on_named_hardware(
    planted: list[tuple[str, Any]], target: str, gpu: str | None, world: int | None
) -> None:
    config: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1}
    for path, value in planted:
        here = config
        *parents, last = path.split(".")
        for part in parents:
            if not isinstance(here.get(part), dict):
                here[part] = {}
            here = here[part]
        here[last] = value
    facts = Facts(hardware=gpu, model="7b", network="ethernet-10g", world_size=world)

    found = lint_config(config, target=target, facts=facts)

    assert [item.message for item in found if item.rule == "rule-broke"] == []
