"""Values at which real starts failed before a rule said so: numbers too large, lists of rates, depths, fractions."""

from __future__ import annotations

from typing import Any

import pytest

from dsgen.linting.linter import lint_config
from dsgen.linting.subjects import Facts

TRAIN, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
CLIPPING, BUCKET = "gradient_clipping", "zero_optimization.reduce_bucket_size"
PIPELINE, LR = "checkpoint.parallel_write.pipeline_stage", "optimizer.params.lr"
WARMUP_MIN, SECOND = "scheduler.params.warmup_min_lr", "scheduler.params.cycle_second_step_size"


def z(stage: int, **keys: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **keys}}


def top(modules: float, enabled: bool = True) -> dict[str, Any]:
    return {"flops_profiler": {"enabled": enabled, "top_modules": modules}}


def written(pipeline: float) -> dict[str, Any]:
    return {"checkpoint": {"parallel_write": {"pipeline_stage": pipeline}}}


def sgd(lr: float, kind: str = "SGD") -> dict[str, Any]:
    return {"optimizer": {"type": kind, "params": {"lr": lr}}}


def profiled(depth: int, *, enabled: bool = True) -> dict[str, Any]:
    return {"flops_profiler": {"enabled": enabled, "module_depth": depth}}


def scheduled(kind: str, **arguments: Any) -> dict[str, Any]:
    return {"scheduler": {"type": kind, "params": arguments}}


def warmed(rates: list[Any]) -> dict[str, Any]:
    return scheduled("WarmupLR", warmup_min_lr=rates)


# Rule, config, and what is said: key -> severity. An empty map: the rule is silent.
SAID: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    # A profile that is not made has any depth
    ("profiler-deeper-than-model", profiled(7), {"flops_profiler.module_depth": "warning"}),
    ("profiler-deeper-than-model", profiled(10**19), {"flops_profiler.module_depth": "warning"}),
    ("profiler-deeper-than-model", profiled(6), {}),
    ("profiler-deeper-than-model", profiled(7, enabled=False), {}),
    # As many modules as it prints are a slice of a list
    ("rejected-value", top(1.5), {"flops_profiler.top_modules": "error"}),
    ("rejected-value", top(2.0), {"flops_profiler.top_modules": "error"}),
    ("rejected-value", top(2), {}),
    ("rejected-value", top(1.5, enabled=False), {}),
    # A switch that is compared with true and false, which 0, 1 and 1.0 equal
    *(("rejected-value", written(stage), {PIPELINE: "error"}) for stage in (3, -1, 0.5)),
    *(("rejected-value", written(stage), {}) for stage in (True, 0, 1, 1.0)),
    # Rates that no weight survives; torch adds them as a whole number of 64 bits where they are written as one
    *(("optimizer-argument-range", sgd(lr), {LR: "warning"}) for lr in (65504, 1e19, 2**63, 1e30)),
    *(("optimizer-argument-range", sgd(lr), {LR: "error"}) for lr in (2**63 + 1, 10**19, 10**30)),
    ("optimizer-argument-range", sgd(10**19, "AdamW"), {LR: "warning"}),
    ("optimizer-argument-range", sgd(100.0), {}),
    # Whole numbers of more than 64 bits: where torch sees them
    ("number-beyond-64-bits", {**z(2), CLIPPING: 2**64}, {CLIPPING: "error"}),
    ("number-beyond-64-bits", {**z(2), CLIPPING: 2**64 - 1}, {}),
    ("number-beyond-64-bits", {**z(2), CLIPPING: 1e20}, {}),
    ("number-beyond-64-bits", {**z(0), CLIPPING: 2**64}, {}),
    ("number-beyond-64-bits", z(1, reduce_bucket_size=10**19), {BUCKET: "error"}),
    ("number-beyond-64-bits", z(3, reduce_bucket_size=str(10**19)), {BUCKET: "error"}),
    ("number-beyond-64-bits", z(3, reduce_bucket_size=2**61 - 1), {}),
    ("number-beyond-64-bits", z(3, reduce_bucket_size=10**19, contiguous_gradients=False), {}),
    ("number-beyond-64-bits", z(0, reduce_bucket_size=10**19), {}),
    ("rejected-value", z(3, reduce_bucket_size=1e19), {BUCKET: "error"}),  # the parse takes no float of that size
    ("rejected-value", z(3, sub_group_size=9e18), {}),
    ("batch-never-adds-up", {TRAIN: 8, STEPS: 10**19}, {TRAIN: "error"}),
    # Lists of a schedule: one number for each group
    ("scheduler-argument-type", warmed([]), {WARMUP_MIN: "error"}),
    ("scheduler-argument-type", warmed(["0"]), {WARMUP_MIN: "error"}),
    ("scheduler-argument-type", warmed([None]), {WARMUP_MIN: "error"}),
    ("scheduler-argument-type", warmed([0.0]), {}),
    ("scheduler-argument-type", warmed([0.0, 1e-5]), {}),
    ("cycle-second-half-negative", scheduled("OneCycle", cycle_second_step_size="x"), {SECOND: "error"}),
    ("cycle-second-half-negative", scheduled("OneCycle", cycle_second_step_size="-3"), {SECOND: "error"}),
    ("cycle-second-half-negative", scheduled("OneCycle", cycle_second_step_size="10"), {}),
    # An accumulation that no micro-batch ends
    ("accumulation-fraction", {STEPS: 1.5}, {STEPS: "warning"}),
    ("accumulation-fraction", {STEPS: 0.5}, {STEPS: "warning"}),
    ("accumulation-fraction", {STEPS: 2.0}, {}),
    ("accumulation-fraction", {STEPS: -1.5}, {}),
    ("coerced-value", {STEPS: 1.5}, {}),  # it gives way
]


@pytest.mark.parametrize(("rule", "config", "said"), SAID)
def test_the_rule_says_what_deepspeed_does(rule: str, config: dict[str, Any], said: dict[str, str]) -> None:
    findings = lint_config({MICRO: 2, **config}, target="deepspeed", facts=Facts())

    assert [item.message for item in findings if item.rule == "rule-broke"] == []
    assert {item.path: item.severity.name.lower() for item in findings if item.rule == rule} == said
