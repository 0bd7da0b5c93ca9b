"""A pin steers the search: whatever way a strategy's key is written, the rest of the config follows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.jobs.scenarios import parse_set
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.layers import Fold, Layer, Origin, Override, Provenance, Rank, fold
from dsgen.shapes.pins import LARGEST_COUNT, collect, deciders

BASE = dsgen.profile("a100-80g") | dsgen.profile("1b")


def by_set(tmp_path: Path, key: str, value: str) -> dsgen.Layers:
    path, setting = parse_set(f"{key}={value}")
    return BASE | {path: setting.value}


def by_prefixed_set(tmp_path: Path, key: str, value: str) -> dsgen.Layers:
    return by_set(tmp_path, f"deepspeed.{key}", value)


def by_file(tmp_path: Path, key: str, value: str) -> dsgen.Layers:
    file = tmp_path / "site.yaml"
    file.write_text(f"{key}: {value}  # because\n")
    from dsgen.catalog.lookup import override_layer

    return BASE | dsgen.Layers((override_layer(str(file)),))


def by_profile(tmp_path: Path, key: str, value: str) -> dsgen.Layers:
    file = tmp_path / "mine.yaml"
    file.write_text(f"kind: training\nextends: standard\ndeepspeed:\n  {key}: {value}  # because\n")
    return BASE | dsgen.profile(str(file))


WAYS = [by_set, by_prefixed_set, by_file, by_profile]


def at(config: dict[str, Any], path: str) -> Any:
    node: Any = config
    for part in path.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        *(("zero_optimization.stage", str(stage), {"zero_optimization.stage": stage}) for stage in (1, 2, 3)),
        ("zero_optimization.stage", "0", {"zero_optimization.stage": 0, "zero_optimization.offload_optimizer": None}),
        ("zero_optimization.stage", "null", {"zero_optimization": None}),
        ("zero_optimization", "null", {"zero_optimization": None}),
        (
            "zero_optimization.offload_optimizer.device",
            "cpu",
            {
                "zero_optimization.offload_optimizer.device": "cpu",
                "zero_optimization.offload_optimizer.pin_memory": True,
            },
        ),
        (
            "zero_optimization.offload_optimizer.device",
            "nvme",
            {
                "zero_optimization.stage": 3,
                "aio.single_submit": False,
                "zero_optimization.offload_optimizer.nvme_path": "/local_nvme",
            },
        ),
        ("zero_optimization.offload_optimizer.device", "none", {"aio": None}),
        ("zero_optimization.offload_optimizer", "null", {"zero_optimization.offload_optimizer": None}),
        (
            "zero_optimization.offload_param.device",
            "cpu",
            {"zero_optimization.stage": 3, "zero_optimization.offload_param.device": "cpu"},
        ),
        (
            "zero_optimization.offload_param.device",
            "nvme",
            {"zero_optimization.stage": 3, "zero_optimization.offload_param.nvme_path": "/local_nvme"},
        ),
        ("zero_optimization.offload_param", "null", {"zero_optimization.offload_param": None}),
        ("tensor_parallel.autotp_size", "4", {"tensor_parallel.autotp_size": 4}),
        ("tensor_parallel.autotp_size", "null", {"tensor_parallel": None}),
        ("tensor_parallel", "null", {"tensor_parallel": None}),
        ("train_micro_batch_size_per_gpu", "3", {"train_micro_batch_size_per_gpu": 3}),
        ("train_micro_batch_size_per_gpu", "3.0", {"train_micro_batch_size_per_gpu": 3}),
        ("gradient_accumulation_steps", "5", {"gradient_accumulation_steps": 5}),
        ("train_batch_size", "48", {"train_batch_size": 48}),
        ("bf16.enabled", "true", {"bf16.enabled": True, "fp16": None}),
        ("bf16.enabled", "false", {"fp16.enabled": True, "fp16.initial_scale_power": 16}),
        ("bf16", "null", {"bf16": None, "fp16.enabled": True}),
        ("bfloat16.enabled", "true", {"bf16.enabled": True, "bfloat16": None}),
        ("fp16.enabled", "true", {"fp16.enabled": True, "fp16.min_loss_scale": 1, "bf16": None}),
        ("fp16.enabled", "false", {"bf16.enabled": True}),
    ],
)
def test_a_key_pins_the_strategy_whatever_way_it_is_written(
    tmp_path: Path, way: Any, key: str, value: str, expected: dict[str, Any]
) -> None:
    layers = way(tmp_path, key, value)

    config = dsgen.render(layers)

    values = config.to_dict()
    assert {path: at(values, path) for path in expected} == expected
    chosen = config.plan.chosen.strategy
    if chosen.tp == 1:
        assert values["train_batch_size"] == chosen.micro_batch * chosen.accumulation * config.plan.job.world
    assert values["train_micro_batch_size_per_gpu"] == chosen.micro_batch
    assert (at(values, "zero_optimization.stage") or 0) == chosen.stage
    assert (at(values, "bf16.enabled") or False) == (chosen.precision == "bf16")


@pytest.mark.parametrize(
    ("overrides", "first", "second"),
    [
        (
            {"training.zero_stage": 1, "zero_optimization.stage": 2},
            "training.zero_stage = 1 (python)",
            "deepspeed.zero_optimization.stage = 2 (python)",
        ),
        (
            {"zero_optimization.stage": 1, "zero_optimization.offload_param.device": "cpu"},
            "deepspeed.zero_optimization.stage = 1 (python)",
            "deepspeed.zero_optimization.offload_param.device = cpu (python)",
        ),
        (
            {"zero_optimization.stage": 0, "zero_optimization.offload_optimizer.device": "cpu"},
            "deepspeed.zero_optimization.stage = 0 (python)",
            "deepspeed.zero_optimization.offload_optimizer.device = cpu (python)",
        ),
        (
            {"zero_optimization": None, "training.zero_stage": 2},
            "training.zero_stage = 2 (python)",
            "deepspeed.zero_optimization = null (python)",
        ),
        (
            {"fp16.enabled": True, "bf16.enabled": True},
            "deepspeed.bf16.enabled = true (python)",
            "deepspeed.fp16.enabled = true (python)",
        ),
        (
            {"training.precision": "bf16", "fp16.enabled": True},
            "training.precision = bf16 (python)",
            "deepspeed.fp16.enabled = true (python)",
        ),
        (
            {"training.offload": "none", "zero_optimization.offload_optimizer.device": "cpu"},
            "training.offload = none (python)",
            "deepspeed.zero_optimization.offload_optimizer.device = cpu (python)",
        ),
        (
            {"training.tp": 2, "tensor_parallel.autotp_size": 4},
            "training.tp = 2 (python)",
            "deepspeed.tensor_parallel.autotp_size = 4 (python)",
        ),
        (
            {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 3},
            "deepspeed.train_micro_batch_size_per_gpu = 3 (python)",
            "deepspeed.train_batch_size = 64 (python)",
        ),
        (
            {"training.micro_batch": 2, "train_micro_batch_size_per_gpu": 4},
            "training.micro_batch = 2 (python)",
            "deepspeed.train_micro_batch_size_per_gpu = 4 (python)",
        ),
    ],
)
def test_pins_that_contradict_each_other_are_both_named(overrides: dict[str, Any], first: str, second: str) -> None:
    with pytest.raises(DsgenError) as caught:
        dsgen.plan(BASE | overrides)

    assert first in str(caught.value)
    assert second in str(caught.value)
    assert "exclude each other" in str(caught.value)


def test_a_pin_of_a_higher_rank_beats_one_of_a_lower() -> None:
    layers = BASE | dsgen.site({"zero_optimization.stage": 3}) | {"training.zero_stage": 1}

    plan = dsgen.plan(layers)

    assert plan.chosen.strategy.stage == 1
    assert [str(pin) for pin in plan.job.pins if pin.field == "stage"] == ["training.zero_stage = 1 (python)"]


@pytest.mark.parametrize(
    ("path", "value", "must"),
    [
        ("training.zero_stage", 4, "it must be 0, 1, 2 or 3"),
        ("tensor_parallel.autotp_size", -1, "it must be a whole number from 1 to 1,000,000,000"),
        ("train_batch_size", LARGEST_COUNT + 1, "it must be a whole number from 1 to 1,000,000,000"),
        ("gradient_accumulation_steps", 10**40, "it must be a whole number from 1 to 1,000,000,000"),
    ],
)
def test_a_value_that_no_strategy_has_is_refused(path: str, value: object, must: str) -> None:
    full = path if path.startswith("training") else f"deepspeed.{path}"

    with pytest.raises(DsgenError) as caught:
        dsgen.job(BASE | {path: value})

    assert str(caught.value) == f"python: {full} is {value}; {must}"


@pytest.mark.parametrize("key", ["train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"])
@pytest.mark.parametrize("value", ["auto", None])
def test_auto_and_null_of_a_batch_key_leave_the_choice_to_the_plan(key: str, value: object) -> None:
    free, config = dsgen.render(BASE), dsgen.render(BASE | {key: value})

    assert config.plan.chosen.strategy == free.plan.chosen.strategy
    assert config.to_dict().get(key) == (free.to_dict()[key] if value == "auto" else None)


def provenance(*overrides: Override) -> Provenance:
    folded: Fold = fold([Layer(str(index), override.rank, (override,)) for index, override in enumerate(overrides)])
    return folded.provenance


def test_a_plan_s_own_keys_pin_nothing() -> None:
    assert collect(provenance(Override("deepspeed.zero_optimization.stage", 2, Origin("planner"), Rank.PLAN))) == ()


def test_a_section_deleted_above_a_pin_of_it_pins_its_absence() -> None:
    pins = collect(
        provenance(
            Override("deepspeed.zero_optimization.stage", 2, Origin("a.yaml", 1), Rank.TRAINING),
            Override("deepspeed.zero_optimization", None, Origin("--set"), Rank.USER),
        )
    )

    assert {(pin.field, pin.allowed) for pin in pins} == {("stage", (0,))}
    assert {str(pin) for pin in pins} == {"deepspeed.zero_optimization = null (--set)"}


def test_the_deciders_of_a_path_are_all_that_pin_its_field() -> None:
    assert set(deciders("training.micro_batch")) == {"training.micro_batch", "deepspeed.train_micro_batch_size_per_gpu"}
    assert deciders("training.lr") == ("training.lr",)
