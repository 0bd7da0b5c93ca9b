"""Configs at which the linter and DeepSpeed once disagreed, each with DeepSpeed's verdict; found by random ones."""

from __future__ import annotations

import functools
from typing import Any

import attrs

from dsgen.shapes.findings import Severity

__all__ = ["CASES", "ONE", "Case"]

ADAM = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}
FUSED = {"type": "AdamW", "params": {"lr": 1e-3}}
BF16 = {"enabled": True}
ZENFLOW = {"select_strategy": "step", "select_interval": 4, "update_interval": 2}


@attrs.frozen
class Case:
    """A config with what must be said of it, and what was wrong.

    `path` is the key that must be pointed at. `severity` is the worst that may be said: ERROR where DeepSpeed stops,
    WARNING where it does otherwise than written, None where it does what is written.
    """

    name: str
    wrong: str
    severity: Severity | None
    path: str
    config: dict[str, Any]
    world: int = 1
    deepspeed: str = "0.19"
    target: str = "deepspeed"


def case(severity: Severity | None, name: str, wrong: str, path: str = "", **config: Any) -> Case:
    """A config in which a micro-batch and an optimizer stand unless it says otherwise; with the run's own facts."""
    if "zero" in config:
        config["zero_optimization"] = config.pop("zero")
    run = {field: config.pop(field) for field in ("world", "deepspeed", "target") if field in config}
    return Case(name, wrong, severity, path, {**ONE, **config}, **run)


error = functools.partial(case, Severity.ERROR)
warning = functools.partial(case, Severity.WARNING)
good = functools.partial(case, None)

ONE: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1, "optimizer": ADAM}


def schedule(name: str, **params: Any) -> dict[str, Any]:
    return {"type": name, "params": params}


def stage(number: int, **keys: Any) -> dict[str, Any]:
    return {"stage": number, **keys}


CASES = (
    # Values that count as true, and texts in another case of letters
    error(
        "prescale-as-a-number", "1 was not taken for true", "prescale_gradients", prescale_gradients=1, zero=stage(2)
    ),
    error(
        "unmanaged-as-null",
        "null was not taken for false",
        "managed_gradient_accumulation",
        managed_gradient_accumulation=None,
        zero=stage(1, overlap_comm=True),
    ),
    error(
        "sum-in-capitals",
        "the value was called unknown",
        "gradient_allreduce_op",
        gradient_allreduce_op="SUM",
        zero=stage(3),
    ),
    good("mean-in-capitals", "an error was found", gradient_allreduce_op="Mean", zero=stage(3)),
    good("log-level-in-capitals", "an error was found", log_level="INFO"),
    good("communication-in-capitals", "an error was found", communication_data_type="BF16", bf16=BF16, zero=stage(2)),
    warning(
        "untested-optimizer-auto",
        '"auto" counts as true',
        "zero_allow_untested_optimizer",
        optimizer={"type": "SGD", "params": {"lr": 0.1}},
        zero_allow_untested_optimizer="auto",
        zero=stage(2),
    ),
    # "auto" goes before the names of a strict section are looked at
    warning(
        "unknown-key-auto",
        "called an error",
        "zero_optimization.reduce_bucket_isze",
        zero=stage(2, reduce_bucket_isze="auto"),
    ),
    warning(
        "two-names-one-auto",
        "called an error",
        "zero_optimization.prefetch_bucket_size",
        zero=stage(3, prefetch_bucket_size="auto", stage3_prefetch_bucket_size=5),
    ),
    # The old section beside the new one is not read
    warning("old-bf16-beside", "its value was judged", "bfloat16", bf16=BF16, bfloat16={"enabled": 3}),
    # Sections that hold something else
    error(
        "params-as-a-number", "only a warning was found", "optimizer.params", optimizer={"type": "AdamW", "params": 0}
    ),
    error("type-as-a-list", "only a warning was found", "optimizer.type", optimizer={"type": [], "params": {}}),
    error("schedule-type-as-true", "only a warning was found", "scheduler.type", scheduler={"type": True}),
    error(
        "schedule-params-as-a-list",
        "only a warning was found",
        "scheduler.params",
        scheduler={"type": "WarmupLR", "params": []},
    ),
    good("empty-experts", "an error was found", expert_parallel=False),
    error("timers-null", "taken for nothing", "timers", timers=None),
    error(
        "curriculum-as-a-number",
        "was passed over while data_efficiency is off",
        "data_efficiency.data_sampling.curriculum_learning",
        data_efficiency={"data_sampling": {"enabled": False, "curriculum_learning": 2}, "enabled": False},
    ),
    good(
        "random-ltd-off",
        "a part of a feature that is off was judged",
        data_efficiency={
            "enabled": True,
            "data_routing": {"enabled": True, "random_ltd": {"enabled": False, "layer_token_lr_schedule": True}},
        },
    ),
    # Values that the parse reads although the switch is off
    error(
        "autocast-off-with-a-wrong-dtype",
        "was passed over",
        "torch_autocast.dtype",
        torch_autocast={"enabled": False, "dtype": "fp8"},
    ),
    error(
        "autocast-dtype-null",
        "null was taken for nothing",
        "torch_autocast.dtype",
        torch_autocast={"enabled": True, "dtype": None},
    ),
    error(
        "largest-batch-of-no-batching",
        "was passed over",
        "data_efficiency.data_sampling.dynamic_batching.max_batch_size",
        data_efficiency={
            "enabled": True,
            "data_sampling": {"enabled": True, "dynamic_batching": {"max_batch_size": []}},
        },
    ),
    # Two things that do not go together
    error(
        "fp16-autocast-over-bf16-without-zero",
        "only a warning was found",
        "torch_autocast.enabled",
        torch_autocast={"enabled": True, "dtype": "float16"},
        bf16=BF16,
    ),
    error(
        "hpz-with-nvme",
        "nothing was found",
        "zero_optimization.zero_hpz_partition_size",
        world=2,
        zero=stage(3, zero_hpz_partition_size=2, offload_param={"device": "nvme", "nvme_path": "/nvme"}),
    ),
    error(
        "zenflow-with-momentum",
        "only Adam's own arguments were known",
        "optimizer.params.momentum",
        optimizer={"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}},
        zero_allow_untested_optimizer=True,
        gradient_accumulation_steps=2,
        zero=stage(2, offload_optimizer={"device": "cpu"}, zenflow=ZENFLOW),
    ),
    error(
        "zenflow-with-lion",
        "nothing was found",
        "optimizer.type",
        optimizer={"type": "Lion", "params": {"lr": 1e-4}},
        zero=stage(2, offload_optimizer={"device": "cpu"}, zenflow=ZENFLOW),
    ),
    error(
        "zenflow-without-scattering",
        "nothing was found",
        "zero_optimization.reduce_scatter",
        optimizer=FUSED,
        zero=stage(1, reduce_scatter=False, offload_optimizer={"device": "cpu"}, zenflow=ZENFLOW),
    ),
    # Batch sizes that are no whole numbers
    warning(
        "fractions-that-fit",
        "an error was found",
        "train_batch_size",
        train_batch_size=1.5,
        train_micro_batch_size_per_gpu=1.5,
    ),
    error(
        "accumulation-as-a-fraction",
        "the sum was not worked out",
        "train_batch_size",
        world=2,
        train_batch_size=2,
        gradient_accumulation_steps=2.5,
    ),
    warning("batch-as-a-whole-float", "an error was found", "train_batch_size", world=2, train_batch_size=16.0),
    error("accumulation-false", "false is 0", "gradient_accumulation_steps", gradient_accumulation_steps=False),
    # Arguments of schedules and optimizers
    error(
        "steps-as-a-list",
        "nothing was found",
        "scheduler.params.total_num_steps",
        scheduler=schedule("WarmupDecayLR", total_num_steps=[100], warmup_max_lr=0.1, warmup_num_steps=2),
    ),
    error(
        "second-half-as-a-list",
        "nothing was found",
        "scheduler.params.cycle_second_step_size",
        scheduler=schedule("OneCycle", cycle_min_lr=1e-4, cycle_max_lr=1e-3, cycle_second_step_size=[]),
    ),
    warning(
        "late-ratio-as-a-text",
        "an error was found, and the first steps run",
        "scheduler.params.cos_min_ratio",
        scheduler=schedule("WarmupCosineLR", total_num_steps=100, warmup_num_steps=10, cos_min_ratio="0.01"),
    ),
    good(
        "momentum-that-nothing-cycles",
        "an error was found",
        scheduler=schedule(
            "OneCycle", cycle_min_lr=1e-4, cycle_max_lr=1e-3, cycle_momentum=False, cycle_max_mom="0.99"
        ),
        optimizer={"type": "AdamW", "params": {"torch_adam": True}},
    ),
    error(
        "torch-schedule-with-a-text",
        "torch's schedules were not looked at",
        "scheduler.params.T_max",
        scheduler=schedule("CosineAnnealingLR", T_max="10"),
    ),
    error(
        "torch-schedule-auto",
        "only a warning was found",
        "scheduler.params.step_size",
        scheduler=schedule("StepLR", step_size="auto"),
    ),
    warning(
        "rate-that-a-schedule-replaces",
        "an error was found",
        "optimizer.params.lr",
        optimizer={"type": "AdamW", "params": {"lr": "1e-3"}},
        zero=stage(2),
        scheduler=schedule("WarmupLR", warmup_max_lr=1e-3, warmup_num_steps=10),
    ),
    error(
        "muon-rate-null",
        "null was taken for nothing",
        "optimizer.params.muon_lr",
        optimizer={"type": "Muon", "params": {"lr": 1e-3, "muon_lr": None}},
        bf16=BF16,
        zero=stage(2),
    ),
    # Other releases and other programs
    error(
        "sequence-parallel-before-0.17",
        "the batch was divided by it",
        "train_batch_size",
        world=2,
        deepspeed="0.16",
        train_batch_size=1,
        sequence_parallel_size=2,
    ),
    error(
        "loose-fp16-as-a-text",
        "the text was not taken for true",
        "fp16.enabled",
        deepspeed="0.16",
        fp16={"enabled": "true"},
        bf16=BF16,
        optimizer=FUSED,
    ),
    good(
        "steps-per-print-that-is-overwritten",
        "an error was found",
        target="accelerate",
        steps_per_print="inf",
        bf16=BF16,
        zero=stage(2),
    ),
    good(
        "offload-to-none-with-details",
        "the details were called useless",
        bf16=BF16,
        zero=stage(3, offload_optimizer={"device": "none", "pin_memory": True}),
    ),
)
