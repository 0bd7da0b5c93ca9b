"""What the surface says of one key: what was meant, whether it does anything, which values and arguments it takes."""

from __future__ import annotations

from typing import Any

import pytest

from dsgen.deepspeed import surface


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("memory_efficient_linear", "zero_optimization.memory_efficient_linear"),
        ("tensor_parallel.tp_size", "tensor_parallel.autotp_size"),
        ("stage", "zero_optimization.stage"),
        ("zero_optimizaton", "zero_optimization"),
        ("zero_optimizaton.stage", "zero_optimization.stage"),
        ("zero_optimization.overlap_com", "zero_optimization.overlap_comm"),
        ("zero_optimization.gradient_clipping", "gradient_clipping"),
        ("prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size"),
        ("activation_checkpointing.partition_activation", "activation_checkpointing.partition_activations"),
        ("optimiser", "optimizer"),
        ("lr", "optimizer.params.lr"),
        ("optimizer.lr", "optimizer.params.lr"),
        ("scheduler.params.warmup_steps", "scheduler.params.warmup_num_steps"),
        ("fp16.enable", "fp16.enabled"),
    ],
)
def test_a_near_miss_finds_what_was_meant(written: str, meant: str) -> None:
    assert surface.load("0.19").nearest(written)[0] == meant


def test_nothing_without_effect_is_suggested() -> None:
    known = surface.load("0.19")
    for path in ("allgather_partitions", "zero_optimization.allgather_partition", "nebul", "cpu_offload"):
        for other in known.nearest(path):
            key = known.key(other)
            assert key is not None and not (key.removed or key.deprecated or key.effect.never)


STAGE2 = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
STAGE3 = {
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}, "offload_param": {"device": "cpu"}}
}


@pytest.mark.parametrize(
    ("path", "config", "why"),
    [
        ("zero_optimization.stage3_max_live_parameters", STAGE2, "unless zero_optimization.stage is 3; it is 2."),
        ("zero_optimization.max_live_parameters", STAGE2, "unless zero_optimization.stage is 3; it is 2."),
        ("zero_optimization.offload_param.device", STAGE2, "unless zero_optimization.stage is 3; it is 2."),
        ("zero_optimization.offload_optimizer.nvme_path", STAGE2, "unless zero_optimization.stage is 3; it is 2."),
        ("zero_optimization.reduce_scatter", {}, "unless zero_optimization.stage is 1, 2 or 3; it is 0."),
        ("zero_optimization.reduce_scatter", {"zero_optimization": True}, None),
        ("zero_optimization.allgather_bucket_size", STAGE3, "unless zero_optimization.stage is 1 or 2; it is 3."),
        ("zero_optimization.allgather_partitions", STAGE2, ": nothing reads it after the parse."),
        ("zero_optimization.stage3_max_live_parameters", STAGE3, None),
        ("zero_optimization.offload_optimizer.nvme_path", STAGE3, None),
        ("zero_optimization.offload_param.nvme_path", STAGE3, "unless zero_optimization.offload_param.device is"),
        ("zero_optimization.stage3_max_live_parameters", {"zero_optimization": {"stage": "3"}}, None),
        ("fp16.loss_scale", {}, "while fp16.enabled is false."),
        ("fp16.loss_scale", {"fp16": {"enabled": "auto"}}, None),
        ("fp16.initial_scale_power", {"fp16": {"enabled": True, "loss_scale": 128}}, "unless fp16.loss_scale is 0;"),
        ("fp16.initial_scale_power", {"fp16": {"enabled": True}}, None),
        ("bf16.check_grad_overflow", {"bfloat16": {"enabled": True}, **STAGE2}, None),
        ("flops_profiler.profile_step", {"flops_profiler": {"enabled": False}}, "while flops_profiler.enabled"),
        ("tensorboard.enabled", {"tensorboard": {"enabled": False}}, None),
        ("aio.block_size", STAGE3, None),
        ("aio.block_size", STAGE2, "unless zero_optimization.stage is 3; it is 2."),
        ("aio.block_size", {"checkpoint": {"writer": {"type": "FAST"}}}, None),
        ("activation_checkpointing.cpu_checkpointing", {}, None),
        ("gradient_predivide_factor", {"prescale_gradients": True}, "unless prescale_gradients is false; it is true."),
        ("tensor_parallel.preset_model", {"tensor_parallel": {"autotp_size": 1}}, "is neither 0 nor 1; it is 1."),
        ("no_such_key", {}, ": DeepSpeed 0.19.8 does not read it."),
    ],
)
def test_effects(path: str, config: dict[str, Any], why: str | None) -> None:
    said = surface.load("0.19").has_effect(path, config)
    if why is None:
        assert said is None
    else:
        assert said is not None and said.startswith(f"{path} has no effect") and why in said


@pytest.mark.parametrize(
    ("path", "value", "must"),
    [
        ("zero_optimization.reduce_bucket_size", 5e8, None),
        ("zero_optimization.reduce_bucket_size", 5.5, "it must be a whole number above 0"),
        ("zero_optimization.reduce_bucket_size", 0, "it must be a whole number above 0"),
        ("zero_optimization.reduce_bucket_size", "5e8", "it must be a whole number above 0"),
        ("zero_optimization.reduce_bucket_size", "auto", None),
        ("zero_optimization.overlap_comm", "no", "it must be true or false or null"),
        ("zero_optimization.overlap_comm", 1, "it must be true or false or null"),
        ("zero_optimization.overlap_comm", None, None),
        ("zero_optimization.stage", 4, "it must be one of 0, 1, 2, 3"),
        ("zero_optimization.stage", True, "it must be one of 0, 1, 2, 3"),
        ("zero_optimization.offload_optimizer.device", "gpu", 'it must be one of "none", "cpu", "nvme"'),
        ("zero_optimization.offload_optimizer.ratio", 1.5, "it must be a number of at least 0.0 and of at most 1.0"),
        ("zero_optimization.leaf_module.names", "mlp", None),
        ("train_micro_batch_size_per_gpu", 1.9, "it must be a whole number above 0"),
        ("train_micro_batch_size_per_gpu", True, "it must be a whole number above 0"),
        ("steps_per_print", 0, "it must be a whole number other than 0 or null"),
        ("gradient_clipping", float("nan"), "it must be a number of at least 0"),
        ("gradient_clipping", 1, None),
        ("wall_clock_breakdown", "auto", "it must be true or false"),
        ("checkpoint.tag_validation", "warn", None),
        ("checkpoint.tag_validation", "maybe", 'it must be one of "WARN", "IGNORE", "FAIL"'),
        ("compile.passes", ["z9"], 'it must be a list of "z1", "z3", "autosp", "autotp"'),
        ("optimizer.params.lr", "1e-3", "it must be a number of at least 0"),
        ("optimizer.params.betas", [0.9, 0.95], None),
        ("amp", {"enabled": False}, "it must be left out: DeepSpeed 0.19.8 removed it"),
    ],
)
def test_values(path: str, value: object, must: str | None) -> None:
    known = surface.load("0.19")
    key = known.key(path)
    assert key is not None and known.check_value(key, value) == must


def test_the_default_of_every_key_is_a_value_it_takes() -> None:
    for line in surface.known_versions():
        known = surface.load(line)
        for path in known.paths:
            key = known.key(path)
            # What no JSON value can say: an unset marker, a torch dtype, and null where nothing is written.
            if key is None or key.removed or key.default in (None, "unset", "torch.float16"):
                continue
            assert known.check_value(key, key.default) is None, (line, path)


def test_arguments_follow_the_type() -> None:
    known = surface.load("0.19")
    adam, sgd = {"optimizer": {"type": "adamw"}}, {"optimizer": {"type": "SGD"}}
    decay = {"scheduler": {"type": "WarmupDecayLR"}}
    assert known.key("optimizer.params.torch_adam", adam) and not known.key("optimizer.params.torch_adam", sgd)
    assert known.key("optimizer.params.nesterov", sgd) and not known.key("optimizer.params.nesterov", adam)
    assert known.key("optimizer.params.anything", {"optimizer": {"type": "MuAdam"}})
    assert known.key("scheduler.params.total_num_steps", decay)
    assert not known.key("scheduler.params.cos_min_ratio", decay)
    warmup = known.key("scheduler.params.warmup_max_lr", decay)
    assert warmup is not None and warmup.default == 0.001
    assert known.key("optimizer.params.no_such_argument") is None
    assert known.key("optimizer.params") is not None


def test_free_names_and_list_items_resolve() -> None:
    known = surface.load("0.19")
    metrics = "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics"
    for path in (
        f"{metrics}.seqlen.min_difficulty",
        "tensor_parallel.partition_config.layer_specs.0.shape",
        "tensor_parallel.partition_config.layer_specs[1].patterns",
        "datastates_ckpt.anything",
    ):
        assert known.key(path) is not None
    assert known.key("tensor_parallel.partition_config.no_such_key") is None
    assert known.key("zero_optimization.leaf_module.no_such_key") is None


def test_counts_of_elements_are_marked() -> None:
    known = surface.load("0.19")
    counted = {path for path in known.paths if (key := known.key(path)) and key.elements}
    assert {"zero_optimization.reduce_bucket_size", "zero_optimization.offload_param.buffer_size"} <= counted
    assert not counted & {"aio.block_size", "checkpoint.writer.io_buffer_size", "compile.free_activation_threshold"}


@pytest.mark.parametrize("count", [5e298, 10**101, -(10**200)])
def test_a_count_that_no_machine_holds_is_refused(count: float) -> None:
    known = surface.load("0.19")
    key = known.key("zero_optimization.offload_optimizer.buffer_count")
    assert key is not None

    assert known.check_value(key, count) is not None
    assert known.check_value(key, 5) is None
