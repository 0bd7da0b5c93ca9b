"""The pure parts of a proof: what is changed for it, what is expected of the engine, how it is judged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dsgen.proving import expectations as proof_expectations
from dsgen.proving import worlds
from dsgen.proving.adaptation import adapt, rank_count, resolve_batch
from dsgen.proving.checks import checks
from dsgen.proving.schedule import learning_rate
from dsgen.shapes.errors import DsgenError

ADAMW = {"type": "AdamW", "params": {"lr": 1e-4}}
NEWEST = "0.19.8"
CONFIG: dict[str, Any] = {
    "train_batch_size": 256,
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 4,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "optimizer": ADAMW,
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
}
OBSERVED: dict[str, Any] = {
    "rank": 0, "stage": 2, "data_parallel": 2, "micro_batch": 4, "accumulation": 2, "train_batch": 16,
    "gradient_clipping": 1.0, "optimizer_clipping": 1.0, "parameter_dtypes": ["bfloat16"],
    "optimizer": "DeepSpeedCPUAdam", "wrapper": "DeepSpeedZeroOptimizer", "scheduler": None,
    "model_elements": 101, "linear_elements": 80, "head_elements": 30,
    "parameter_sizes": [80, 21], "parameters_held": 0,
    "parameter_place": "accelerator", "master_dtypes": ["float32"], "master_groups": 1, "master_held": 52,
    "optimizer_place": "cpu", "moment_held": 52, "learning_rate_start": 1e-4, "learning_rate": 1e-4,
    "losses": [5.5, 5.4, 5.3], "loss_after": 5.2, "gradient_norm": 1.5, "global_steps": 3, "skipped_steps": 0,
    "moved": True, "finite": True, "weights_sha256": "a", "checkpoint_loaded": True, "checkpoint_differences": [],
    "unread": ["zero_optimization.stage"], "held_config": {"zero_optimization": {"stage": 2}},
}  # fmt: skip


def failing(config: dict[str, Any] = CONFIG, second: dict[str, Any] | None = None, **changed: Any) -> list[str]:
    """The names of the checks that do not hold when two ranks observe this."""
    used, _ = adapt(config, 2, "/proof")
    ranks = [{**OBSERVED, **changed}, {**OBSERVED, "rank": 1, **changed, **(second or {})}]
    return [check.name for check in checks(used, 2, 1, 3, ranks, "0.19.8") if not check.ok]


def test_batch_fields_shrink_to_the_ranks_and_say_so() -> None:
    """Micro-batch and accumulation shrink, the train batch follows, nothing else moves, the caller's dict stays."""
    before = json.dumps(CONFIG)

    used, changes = adapt(CONFIG, 2, "/proof")

    assert before == json.dumps(CONFIG)
    assert [(c.key, c.written, c.used) for c in changes] == [
        ("train_micro_batch_size_per_gpu", 8, 4),
        ("gradient_accumulation_steps", 4, 2),
        ("train_batch_size", 256, 16),
    ]
    assert {key for key in CONFIG if used[key] != CONFIG[key]} == {change.key for change in changes}


@pytest.mark.parametrize(
    "batch",
    [
        {"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4},  # at no number of ranks
        {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 4},
        {"train_micro_batch_size_per_gpu": 64.0},
        {"gradient_accumulation_steps": True, "train_batch_size": 64},
        {"train_batch_size": 0},
    ],
)
def test_a_wrong_batch_is_left_for_deepspeed_to_refuse(batch: dict[str, Any]) -> None:
    """Rescaling must not mend what is wrong."""
    assert adapt(batch, 2, "/proof") == (batch, ())


@pytest.mark.parametrize(
    ("batch", "resolved"),
    [
        ({"train_micro_batch_size_per_gpu": 4}, (8, 4, 1)),
        ({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}, (16, 4, 2)),
        ({"train_batch_size": 16}, (16, 8, 1)),
        ({"train_batch_size": 16, "gradient_accumulation_steps": 2}, (16, 4, 2)),
        ({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4}, (16, 4, 2)),
        ({"train_batch_size": 12, "train_micro_batch_size_per_gpu": 4}, None),
        ({"gradient_accumulation_steps": 2}, None),
    ],
)
def test_the_batch_resolves_as_deepspeed_does(batch: dict[str, Any], resolved: tuple[int, int, int] | None) -> None:
    """The rule of runtime/config.py, for two ranks."""
    assert resolve_batch(batch, 2) == resolved


def test_sections_that_are_one_object_are_adapted_apart() -> None:
    drive = {"device": "nvme", "nvme_path": "/drive"}
    config = {"zero_optimization": {"stage": 3, "offload_optimizer": drive, "offload_param": drive}}

    used, _ = adapt(config, 2, "/proof")

    assert used["zero_optimization"]["offload_optimizer"] == {"device": "nvme", "nvme_path": "/proof"}
    assert used["zero_optimization"]["offload_param"]["max_in_cpu"] == 0
    assert drive == {"device": "nvme", "nvme_path": "/drive"}


def test_paths_lead_into_the_proofs_own_folder() -> None:
    """Whatever DeepSpeed writes, it writes into the temporary folder, and the proof says so."""
    config = {
        "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/nvme"}},
        "csv_monitor": {"enabled": True},
        "tensorboard": {"enabled": False, "output_path": "/logs"},
        "flops_profiler": {"enabled": True, "output_file": "/logs/flops"},
    }

    used, changes = adapt(config, 2, "/proof")

    assert used["zero_optimization"]["offload_param"]["nvme_path"] == "/proof"
    assert used["zero_optimization"]["offload_param"]["max_in_cpu"] == 0  # else nothing of a tiny model is swapped
    assert {c.key: c.used for c in changes} == {
        "zero_optimization.offload_param.nvme_path": "/proof",
        "zero_optimization.stage3_max_reuse_distance": 0,
        "zero_optimization.offload_param.max_in_cpu": 0,
        "zero_optimization.offload_param.buffer_size": 10_000_000,
        "csv_monitor.output_path": "/proof",
        "flops_profiler.output_file": "/proof/output",
    }


@pytest.mark.parametrize("universal", [True, "maybe", "false", 1])
def test_a_proof_loads_no_universal_checkpoint(universal: object) -> None:
    """Whatever counts as true asks for one, and what the proof has saved is none; "auto" is left to be seen."""
    used, (change,) = adapt({"checkpoint": {"load_universal": universal}}, 2, "/proof")

    assert used == {"checkpoint": {"load_universal": False}}
    assert (change.key, change.written, change.used) == ("checkpoint.load_universal", universal, False)
    for kept in (False, None, "auto"):
        assert adapt({"checkpoint": {"load_universal": kept}}, 2, "/proof")[1] == ()


def test_ranks_follow_the_tensor_parallel_degree() -> None:
    """Two ranks, or as many as AutoTP needs; a number that AutoTP cannot divide is an error."""
    four = {"tensor_parallel": {"autotp_size": 4}}
    assert [rank_count({}, None), rank_count(four, None), rank_count(four, 8), rank_count({}, 1)] == [2, 4, 8, 1]
    with pytest.raises(DsgenError, match=r"ranks is 6 and tensor_parallel\.autotp_size is 4; the ranks must be"):
        rank_count(four, 6)
    with pytest.raises(DsgenError, match="ranks is 0; it must be a whole number"):
        rank_count({}, 0)


@pytest.mark.parametrize(
    ("changes", "optimizer", "wrapper", "operators"),
    [
        ({}, "DeepSpeedCPUAdam", "DeepSpeedZeroOptimizer", ("CPUAdamBuilder",)),
        ({"zero_optimization": {"stage": 3}}, "FusedAdam", "DeepSpeedZeroOptimizer_Stage3", ("FusedAdamBuilder",)),
        ({"zero_optimization": {}}, "FusedAdam", "FP16_Optimizer", ("FusedAdamBuilder",)),
        ({"zero_optimization": {}, "bf16": {}}, "FusedAdam", "FusedAdam", ("FusedAdamBuilder",)),
        (
            {"zero_optimization": {}, "optimizer": {"type": "AdamW", "params": {"torch_adam": True}}},
            "AdamW", "FP16_UnfusedOptimizer", (),
        ),
        (
            {"zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "fp32"}},
            "FusedAdam", "BF16_Optimizer", ("FusedAdamBuilder",),
        ),
        (
            {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}},
            "DeepSpeedCPUAdam", "DeepSpeedZeroOptimizer_Stage3", ("CPUAdamBuilder", "AsyncIOBuilder"),
        ),
        ({"optimizer": {"type": "Lion"}}, "DeepSpeedCPULion", "DeepSpeedZeroOptimizer", ("CPULionBuilder",)),
        ({"optimizer": {"type": "SGD"}}, "SGD", "DeepSpeedZeroOptimizer", ()),
    ],
)  # fmt: skip
def test_classes_are_foretold(
    changes: dict[str, Any], optimizer: str, wrapper: str, operators: tuple[str, ...]
) -> None:
    """Which classes DeepSpeed makes of a config, and which operators it compiles for them."""
    config = {**CONFIG, **changes}
    assert proof_expectations.optimizer_class(config) == optimizer
    assert proof_expectations.wrapper_class(config, optimizer, "0.19.8") == wrapper
    assert proof_expectations.operators(config) == operators


def test_the_default_clipping_depends_on_the_release() -> None:
    """0.19.3 made it 1.0."""
    assert [proof_expectations.gradient_clipping({}, v) for v in ("0.18.9", "0.19.2", "0.19.3", "0.19.8+x")] == [
        0.0, 0.0, 1.0, 1.0,
    ]  # fmt: skip
    assert proof_expectations.gradient_clipping({"gradient_clipping": 0.5}, "0.19.8") == 0.5


def test_learning_rates_follow_the_schedules() -> None:
    """Worked by hand: linear warm-up of 10 steps to 1e-4, decay to 0 at step 100; cosine from the optimizer's rate."""
    decay = {
        "type": "WarmupDecayLR",
        "params": {
            "total_num_steps": 100, "warmup_num_steps": 10, "warmup_max_lr": 1e-4, "warmup_type": "linear",
        },
    }  # fmt: skip
    cosine = {"type": "WarmupCosineLR", "params": {"total_num_steps": 12, "warmup_num_steps": 2}}
    assert [learning_rate(decay, 1.0, n, NEWEST) for n in (0, 1, 3, 56, 101)] == pytest.approx([0, 0, 2e-5, 5e-5, 0])
    warmup = {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}
    assert learning_rate(warmup, 2e-4, 10, NEWEST) == pytest.approx(1e-4)
    assert learning_rate(cosine, 1e-4, 7, NEWEST) == pytest.approx(1e-4 * (1e-4 + 0.9999 / 2))
    assert learning_rate(cosine, 1e-4, 99, NEWEST) == pytest.approx(1e-8)
    assert learning_rate(None, 3e-4, 5, NEWEST) == 3e-4
    assert learning_rate({"type": "OneCycle", "params": {}}, 3e-4, 5, NEWEST) is None
    assert learning_rate({"type": "WarmupDecayLR", "params": {}}, 3e-4, 5, NEWEST) is None


@pytest.mark.parametrize(
    ("zero", "least", "most"),
    [({"stage": 0}, 101, 101), ({"stage": 1}, 51, 52), ({"stage": 2}, 51, 52), ({"stage": 3}, 51, 51)],
)
def test_master_elements_are_shared_out(zero: dict[str, Any], least: int, most: int) -> None:
    """101 weights on two ranks: whole at stage 0, padded to four at stages 1 and 2, each parameter padded at 3."""
    assert proof_expectations.master_elements({"zero_optimization": zero}, [80, 21], 2, 1, NEWEST) == (least, most)


def test_releases_before_0_15_3_take_the_first_step_at_the_optimizers_rate() -> None:
    """Their schedules set no rate when they are made; and before 0.17.2 WarmupLR climbs to 0.001, whatever that is."""
    warmup = {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}
    rates = [[learning_rate(warmup, 2e-4, n, release) for n in (0, 101)] for release in ("0.15.2", "0.15.3", "0.17.2")]
    assert rates == [[2e-4, 1e-3], [0.0, 1e-3], [0.0, 2e-4]]


def test_stage_0_in_bf16_shares_masters_out_before_0_17_6() -> None:
    """BF16_Optimizer did it; since then the wrapper of fp16, which keeps them whole."""
    config = {"bf16": {"enabled": True}, "optimizer": {"type": "AdamW"}}
    wrappers = [proof_expectations.wrapper_class(config, "FusedAdam", release) for release in ("0.17.5", "0.17.6")]
    masters = [proof_expectations.master_elements(config, [80, 21], 2, 1, release) for release in ("0.17.5", "0.17.6")]
    assert wrappers == ["BF16_Optimizer", "FP16_Optimizer"]
    assert masters == [(51, 52), (101, 101)]


def test_what_agrees_passes() -> None:
    """The record that the negative cases below change in one place."""
    assert failing() == []


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"stage": 1}, "ZeRO stage"),
        ({"parameter_dtypes": ["float32"]}, "parameter type"),
        ({"master_dtypes": ["bfloat16"]}, "master weight type"),
        ({"gradient_clipping": 0.0}, "gradient clipping, engine"),
        ({"optimizer_clipping": 0.5}, "gradient clipping, optimizer"),
        ({"optimizer": "AdamW"}, "optimizer class"),
        ({"wrapper": "BF16_Optimizer"}, "optimizer wrapper"),
        ({"scheduler": "WarmupLR"}, "scheduler class"),
        ({"optimizer_place": "accelerator"}, "optimizer state place"),
        ({"parameter_place": "cpu"}, "parameter place"),
        ({"micro_batch": 8}, "micro-batch per rank"),
        ({"accumulation": 1}, "accumulation steps"),
        ({"train_batch": 32}, "train batch"),
        ({"global_steps": 2}, "optimizer steps"),
        ({"learning_rate": 2e-4}, "learning rate after 3 applied steps"),
        ({"moved": False}, "weights moved by the optimizer"),
        ({"data_parallel": 1}, "data-parallel ranks"),
        ({"master_held": 101}, "master weight elements per rank"),
        ({"moment_held": 101}, "optimizer moment elements per rank"),
        ({"finite": False}, "losses and weights are finite"),
        ({"loss_after": float("nan")}, "losses and weights are finite"),
        ({"checkpoint_differences": ["1 of 2 weights"]}, "lost by checkpoint save and load"),
        ({"checkpoint_loaded": False}, "lost by checkpoint save and load"),
        ({"unread": ["zero_optimisation"]}, "written keys DeepSpeed never reads"),
        ({"held_config": {"gradient_clipping": 0.5}}, "written values the engine lacks"),
    ],
)
def test_each_check_fails_when_the_engine_differs(changed: dict[str, Any], name: str) -> None:
    """One wrong observation, the check of that name."""
    assert name in failing(**changed)


FP16 = {**{key: value for key, value in CONFIG.items() if key != "bf16"}, "fp16": {"enabled": True}}
SURVIVED = {
    "forced": 2, "skipped": 2, "kept": True, "scales": [65536.0, 32768.0], "rate": 2e-5, "moved": True, "finite": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({}, None),
        ({"skipped": 1}, "forced overflows that were skipped"),
        ({"kept": False}, "weights after them"),
        ({"scales": [65536.0, 65536.0]}, "loss scale after them"),
        ({"moved": False}, "the step after them"),
        ({"finite": False}, "the step after them"),
        ({"rate": 0.0, "moved": False}, None),
        ({"rate": 0.0, "moved": False, "finite": False}, "the step after them"),
    ],
)
def test_the_loss_scaler_of_fp16_survives_an_overflow(changed: dict[str, Any], name: str | None) -> None:
    told = failing(FP16, parameter_dtypes=["float16"], overflow={**SURVIVED, **changed})
    assert told == ([] if name is None else [name])


def test_a_loss_scale_that_is_fixed_stays() -> None:
    fixed = {**FP16, "fp16": {"enabled": True, "loss_scale": 128}}
    assert failing(fixed, parameter_dtypes=["float16"], overflow={**SURVIVED, "scales": [128.0, 128.0]}) == []
    assert failing(fixed, parameter_dtypes=["float16"], overflow=SURVIVED) == ["loss scale after them"]


def test_a_scaler_that_lets_no_step_through_proves_nothing() -> None:
    stuck = {"parameter_dtypes": ["float16"], "skipped_steps": 3, "overflow": SURVIVED}
    assert "steps that the loss scaler let through" in failing(FP16, **stuck)


@pytest.mark.parametrize("name", [None, "world", "tensor_parallel", "optimizer"])
def test_a_start_in_groups_of_another_size_fails(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    """Of its declared world; what the engine checks besides is left out."""
    monkeypatch.setattr(worlds, "engine_checks", lambda *_, **__: ())
    groups = {"world": 16, "tensor_parallel": 2, "optimizer": 8}
    observed = {"steps": 3, "groups": groups if name is None else {**groups, name: groups[name] // 2}}

    (check,) = worlds.start_checks({"zero_optimization": {"stage": 3}}, 16, 2, observed, "0.19.8")

    assert (check.name, check.ok) == ("ranks of each group", name is None)


def test_ranks_are_compared() -> None:
    """A rank with other facts or other weights is seen."""
    assert failing(second={"learning_rate": 2e-4}) == ["facts that differ between ranks"]
    assert failing(second={"weights_sha256": "b"}) == ["weights on data-parallel ranks"]
    assert failing(second={"master_held": 7}) == ["master weight elements per rank"]


def test_a_placeholder_that_deepspeed_drops_fails() -> None:
    """DeepSpeed drops "auto" from its sections without a word."""
    config = {**CONFIG, "zero_optimization": {**CONFIG["zero_optimization"], "reduce_bucket_size": "auto"}}
    assert failing(config) == ["keys left to 'auto'"]
