"""The rules about optimizer, schedule and precision: what DeepSpeed 0.19.8 did with each config, and what they say.

Every refusal was seen: as a probe on two CPU ranks, or in one process with a fake process group.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgen.deepspeed import surface
from dsgen.linting.linter import lint_config
from dsgen.linting.rules import optimizer, precision, scheduler
from dsgen.linting.rules.arguments import number, number_fix
from dsgen.linting.rules.dtypes import DTYPES
from dsgen.linting.rules.torch_modules import TORCH_NN
from dsgen.linting.subjects import Facts
from dsgen.shapes.findings import Assign, Finding, Move, Remove, Severity

NAMED = {rule.name for family in (optimizer, scheduler, precision) for rule in family.RULES}
OFFLOAD: dict[str, Any] = {"offload_optimizer": {"device": "cpu"}}
BF16: dict[str, Any] = {"bf16": {"enabled": True}}
ALL_BF16: dict[str, Any] = {
    "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
}
ALLOW: dict[str, Any] = {"zero_allow_untested_optimizer": True}


def z(stage: int, **keys: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **keys}}


def opt(kind: str = "AdamW", **params: Any) -> dict[str, Any]:
    return {"optimizer": {"type": kind, "params": params}}


def torch(**params: Any) -> dict[str, Any]:
    return opt(torch_adam=True, **{"lr": 1e-3, **params})


def sched(kind: str, **params: Any) -> dict[str, Any]:
    return {**torch(), **z(1), "scheduler": {"type": kind, "params": params}}


def cycle(**params: Any) -> dict[str, Any]:
    return sched("OneCycle", cycle_min_lr=1e-4, cycle_max_lr=1e-3, **params)


def fp16(**keys: Any) -> dict[str, Any]:
    return {"fp16": {"enabled": True, **keys}}


def autocast(**keys: Any) -> dict[str, Any]:
    return {"torch_autocast": {"enabled": True, **keys}}


def found(
    config: dict[str, Any], *, target: str = "deepspeed", deepspeed: str | None = None, **facts: Any
) -> list[Finding]:
    """The findings of these three families, without those that are only worth knowing."""
    seen = lint_config(
        {"train_micro_batch_size_per_gpu": 2, **config}, target=target, deepspeed=deepspeed, facts=Facts(**facts)
    )
    assert [item.message for item in seen if item.rule == "rule-broke"] == []
    return [item for item in seen if item.rule in NAMED and item.severity is not Severity.INFO]


# What stops DeepSpeed: the rule that says so, the config, and what has to be known besides.
REFUSED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("optimizer-missing", z(0), {"client_optimizer": "none"}),
    ("optimizer-missing", z(1), {"client_optimizer": "none"}),
    ("optimizer-type-missing", {"optimizer": {"params": {"lr": 1e-3}}, **z(0)}, {}),
    ("optimizer-type-missing", {"optimizer": {"name": "AdamW"}, **z(2)}, {}),
    ("optimizer-type-missing", {"optimizer": {"type": None}, **z(2)}, {}),
    ("unknown-optimizer", {**opt("AdamX", lr=1e-3), **z(2)}, {}),
    ("unknown-optimizer", {**opt("sgd", lr=1e-3), **z(0)}, {}),
    ("unknown-optimizer", {**opt("lr_scheduler", lr=1e-3), **z(0)}, {}),
    ("unknown-optimizer", {**opt("auto", lr=1e-3), **z(0)}, {}),
    ("removed-optimizer", {**opt("OneBitAdam", lr=1e-3), **z(0)}, {}),
    ("unknown-optimizer-argument", {**opt(lr=1e-3, adamw_mode=True), **z(2, **OFFLOAD)}, {}),
    ("unknown-optimizer-argument", {**opt(lr=1e-3, set_grad_none=True), **z(2, **OFFLOAD)}, {}),
    ("unknown-optimizer-argument", {**torch(bias_correction=True), **z(1)}, {}),
    ("unknown-optimizer-argument", {**torch(decoupled_weight_decay=True, adam_w_mode=False), **z(1)}, {}),
    ("unknown-optimizer-argument", {**opt("Adagrad", lr=1e-3, betas=[0.9, 0.99]), **z(1)}, {}),
    ("unknown-optimizer-argument", {**opt("Adagrad", lr=1e-3, fp32_optimizer_states=False), **z(1)}, {}),
    ("unknown-optimizer-argument", {**opt("Lion", lr=1e-3, eps=1e-8), **z(2, **OFFLOAD)}, {}),
    ("max-grad-norm-in-optimizer", {**opt("Lamb", lr=1e-3, max_grad_norm=1.0), **z(0)}, {}),
    ("optimizer-argument-type", {**opt(lr="1e-3"), **z(2)}, {}),
    ("optimizer-argument-type", {**opt(lr=None), **z(2)}, {}),
    ("optimizer-argument-type", {**torch(lr=[1e-3]), **z(2)}, {}),
    ("optimizer-argument-type", {**opt(lr=1e-3, weight_decay="0.1"), **z(2, **OFFLOAD)}, {}),
    ("optimizer-argument-type", {**opt(lr=1e-3, betas=[0.9]), **z(2)}, {}),
    ("optimizer-argument-type", {**opt(lr=1e-3, betas=[0.9, 0.99, 0.999]), **z(2, **OFFLOAD)}, {}),
    ("optimizer-argument-type", {**opt("Muon", lr="1e-3"), **z(1), **BF16}, {}),
    ("optimizer-argument-range", {**torch(lr=-1e-3), **z(1)}, {}),
    ("optimizer-argument-range", {**torch(eps=-1), **z(1)}, {}),
    ("optimizer-argument-range", {**torch(weight_decay=-1), **z(1)}, {}),
    ("optimizer-argument-range", {**torch(betas=[0.9, 1.0]), **z(1)}, {}),
    ("optimizer-arguments-conflict", {**torch(fused=True, foreach=True), **z(2)}, {}),
    ("optimizer-arguments-conflict", {**torch(fused=True, differentiable=True), **z(0)}, {}),
    ("optimizer-arguments-conflict", {**opt("SGD", lr=1e-3, nesterov=True), **z(0)}, {}),
    ("amsgrad-unsupported", {**opt(lr=1e-3, amsgrad=True), **z(2)}, {}),
    ("amsgrad-unsupported", {**opt(lr=1e-3, amsgrad=True), **z(2, **OFFLOAD)}, {}),
    ("untested-zero-optimizer", {**opt("SGD", lr=1e-3), **z(3)}, {}),
    ("untested-zero-optimizer", {**opt("RMSprop", lr=1e-3), **z(1)}, {}),
    ("optimizer-needs-closure", {**opt("LBFGS", lr=1e-3), **z(0)}, {}),
    ("optimizer-needs-closure", {**opt("LBFGS", lr=1e-3), **z(2), **ALLOW}, {}),
    ("sparse-adam", {**opt("SparseAdam", lr=1e-3), **z(2), **ALLOW}, {}),
    ("optimizer-package-missing", {**opt("MuAdam", lr=1e-3), **z(0)}, {"missing": frozenset({"mup"})}),
    ("lamb-needs-dynamic-loss-scale", {**opt("Lamb", lr=1e-3), **z(0), "fp16": {"loss_scale": 128}}, {}),
    ("fused-optimizer-needs-gpu", {**opt("Lamb", lr=1e-3), **z(0)}, {"accelerator": "cpu"}),
    ("fused-optimizer-needs-gpu", {**opt("Lion", lr=1e-3), **z(2)}, {"accelerator": "cpu"}),
    ("muon-at-stage-3", {**opt("Muon", lr=1e-3), **z(3), **BF16}, {}),
    (
        "per-head-muon-without-attention",
        {**opt("Muon", lr=1e-3, per_head_muon=True), **z(2), **BF16},
        {"parameters": ("layers.0.qkv_proj.weight", "layers.0.up_proj.weight")},
    ),
    ("unknown-ns-method", {**opt("Muon", lr=1e-3, ns_method="newton"), **z(1), **BF16}, {}),
    ("client-optimizer-under-offload", z(0, **OFFLOAD), {"client_optimizer": "torch"}),
    ("client-optimizer-under-offload", z(2, **OFFLOAD), {"client_optimizer": "torch"}),
    ("legacy-fusion", {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}, "legacy_fusion": True}, **BF16}, {}),
    ("unknown-scheduler", sched("WarmupX"), {}),
    ("unknown-scheduler", sched("WARMUP_LR"), {}),
    ("scheduler-params-missing", {**torch(), **z(1), "scheduler": {"type": "WarmupLR", "params": None}}, {}),
    ("unknown-scheduler-argument", sched("WarmupLR", foo=1), {}),
    ("scheduler-argument-missing", sched("WarmupDecayLR", warmup_max_lr=1e-3), {}),
    ("scheduler-argument-missing", sched("OneCycle", cycle_min_lr=1e-4), {}),
    ("scheduler-argument-type", sched("WarmupLR", warmup_min_lr="0"), {}),
    ("scheduler-argument-type", sched("WarmupDecayLR", total_num_steps="10", warmup_num_steps=2), {}),
    ("scheduler-argument-type", sched("WarmupCosineLR", total_num_steps=None, warmup_num_steps=2), {}),
    ("scheduler-argument-type", cycle(decay_lr_rate="0.1"), {}),
    ("scheduler-argument-type", sched("LRRangeTest", lr_range_test_step_rate="1.0"), {}),
    ("steps-not-positive", sched("WarmupLR", warmup_num_steps=0.1), {}),
    ("steps-not-positive", sched("WarmupLR", warmup_num_steps=None), {}),
    ("steps-not-positive", sched("LRRangeTest", lr_range_test_step_size=0), {}),
    ("steps-not-positive", cycle(cycle_first_step_size=0), {}),
    ("cycle-second-half-negative", cycle(cycle_second_step_size=-1), {}),
    ("unknown-warmup-type", sched("WarmupLR", warmup_type=[]), {}),
    ("torch-scheduler-with-wrapper", {**sched("CosineAnnealingLR", T_max=10), **z(3)}, {}),
    ("torch-scheduler-with-wrapper", {**sched("StepLR", step_size=10), **z(0), **BF16}, {}),
    ("fp16-and-bf16", {**torch(), **z(2), "fp16": {"enabled": "true"}, "bf16": {"enabled": 1}}, {}),
    ("loss-scale-in-bf16", {**torch(), **z(2), "bf16": {"enabled": True, "loss_scale": 0}}, {}),
    ("fp16-on-cpu", {**torch(), **z(0), **fp16()}, {"accelerator": "cpu"}),
    ("initial-loss-scale-too-high", {**torch(), **z(2), **fp16(initial_scale_power=64)}, {}),
    ("loss-scale-bound-not-positive", {**torch(), **z(2), **fp16(min_loss_scale=0)}, {}),
    ("loss-scale-bound-not-positive", {**torch(), **z(2), **fp16(loss_scale_window=0)}, {}),
    ("grad-accum-dtype-without-zero", {**torch(), **z(0), **fp16(), "data_types": {"grad_accum_dtype": "fp32"}}, {}),
    ("grad-accum-dtype-without-zero", {**torch(), **z(0), "data_types": {"grad_accum_dtype": "bf16"}}, {}),
    ("grad-accum-dtype-lossy", {**torch(), **z(1), **BF16, "data_types": {"grad_accum_dtype": "int8"}}, {}),
    ("param-dtype-conflict", {**torch(), **z(2), **fp16(), "data_types": {"param_dtype": "bf16"}}, {}),
    ("keep-in-fp32-not-a-list", {**torch(), **z(2), "data_types": {"keep_in_fp32_modules": [1]}}, {}),
    ("keep-in-fp32-not-a-list", {**torch(), **z(2), "data_types": {"keep_in_fp32_modules": None}}, {}),
    (
        "autocast-unknown-module",
        {**torch(), **autocast(dtype="bf16", lower_precision_safe_modules=["torch.nn.Foo"])},
        {},
    ),
    ("autocast-unknown-module", {**torch(), **autocast(dtype="bf16", lower_precision_safe_modules=[3])}, {}),
    ("autocast-unknown-module", {**torch(), **autocast(dtype="bf16", lower_precision_safe_modules=["nn.Linear"])}, {}),
    ("autocast-with-quantized-weights", {**torch(), **z(0, zero_quantized_weights=True), **autocast(dtype="bf16")}, {}),
    ("master-weights-without-zero", {**torch(), **z(0), "fp16": {"fp16_master_weights_and_grads": True}}, {}),
    ("master-weights-need-cpu-adam", {**torch(), **z(2), "fp16": {"fp16_master_weights_and_grads": True}}, {}),
    (
        "master-weights-need-cpu-adam",
        {**torch(), **z(2, **OFFLOAD), "bf16": {"enabled": True, "bf16_master_weights_and_grads": True}},
        {},
    ),
    (
        "master-weights-need-cpu-adam",
        {**torch(), **z(3), "bf16": {"enabled": True, "bf16_master_weights_and_grads": True}},
        {},
    ),
    (
        "optimizer-states-without-master",
        {**torch(), **z(2), "bf16": {"enabled": True, "bf16_optimizer_states": True}},
        {},
    ),
    (
        "two-kinds-of-master-weights",
        {
            **opt(lr=1e-3),
            **z(2, **OFFLOAD),
            "fp16": {"fp16_master_weights_and_grads": True},
            "bf16": {"enabled": True, "bf16_master_weights_and_grads": True},
        },
        {},
    ),
]


@pytest.mark.parametrize(("rule", "config", "facts"), REFUSED, ids=lambda part: part if isinstance(part, str) else "")
def test_what_stops_deepspeed_is_one_error(rule: str, config: dict[str, Any], facts: dict[str, Any]) -> None:
    errors = [item.rule for item in found(config, **facts) if item.severity is Severity.ERROR]

    assert errors == [rule]


# What runs and does otherwise than written, or is fragile or slow.
DOUBTFUL: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("optimizer-missing", z(3), {"client_optimizer": "none"}),
    ("optimizer-type-missing", {"optimizer": {"params": {}}, **z(2)}, {"client_optimizer": "torch"}),
    ("two-optimizers", {**torch(), **z(2)}, {"client_optimizer": "torch"}),
    ("optimizer-argument-ignored", {**opt("Muon", lr=1e-3, nesterovv=True), **z(2), **BF16}, {}),
    ("optimizer-argument-ignored", {**opt(lr=1e-3, fp32_optimizer_states=False), **z(2)}, {}),
    ("optimizer-argument-ignored", {**opt(lr=1e-3, adam_w_mode=False), **z(2)}, {}),
    ("optimizer-argument-beside-params", {"optimizer": {"type": "AdamW", "params": {}, "lr": 5.0}, **z(2)}, {}),
    ("optimizer-argument-range", {**opt(lr=-1e-3), **z(1)}, {}),
    ("optimizer-argument-range", {**opt(lr=1e-3, betas=[0.9, 1.0]), **z(2, **OFFLOAD)}, {}),
    ("optimizer-argument-range", {**opt(lr=1e-3, eps=0), **z(2)}, {}),
    ("optimizer-argument-range", {**torch(eps=0.0), **z(1)}, {}),
    ("optimizer-argument-type", {**opt(lr=1e-3, bias_correction="false"), **z(2)}, {}),
    ("sparse-adam", {**opt("SparseAdam", lr=1e-3), **z(0)}, {}),
    ("torch-adam-with-offload", {**torch(), **z(3, **OFFLOAD)}, {}),
    ("learning-rate-missing", {**opt(), **z(2)}, {}),
    ("learning-rate-missing", {**opt("Muon", muon_lr=0.02), **z(2), **BF16}, {}),
    ("learning-rate-zero", {**opt(lr=0.0), **z(2)}, {}),
    ("legacy-fusion", {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}, "legacy_fusion": True}, **z(2)}, {}),
    ("scheduler-type-missing", {**torch(), **z(1), "scheduler": {"name": "WarmupLR", "params": {}}}, {}),
    ("scheduler-type-missing", {**torch(), **z(1), "scheduler": {"type": None, "params": {}}}, {}),
    ("unknown-warmup-type", sched("WarmupLR", warmup_type=None), {}),
    ("schedule-shorter-than-warmup", sched("WarmupCosineLR", total_num_steps=999), {}),
    ("scheduler-overrides-lr", sched("LRRangeTest", lr_range_test_min_lr=1e-5), {}),
    ("scheduler-overrides-lr", sched("OneCycle", cycle_min_lr=1e-4, cycle_max_lr=0.5), {}),
    ("schedule-peak-missing", {**sched("WarmupDecayLR", total_num_steps=5000), **torch(lr=0.5)}, {}),
    ("schedule-peak-missing", {**sched("LRRangeTest"), **torch(lr=1e-5)}, {}),
    ("onecycle-overrides-betas", {**cycle(), **torch(betas=[0.9, 0.95])}, {}),
    ("cycle-decay-without-steps", cycle(decay_lr_rate=0.1), {}),
    ("auto-cast-without-fp16", {**torch(), **z(2), **BF16, "fp16": {"auto_cast": True}}, {}),
    ("initial-loss-scale-too-high", {**torch(), **z(2), **fp16(initial_scale_power=32)}, {}),
    ("static-loss-scale-too-high", {**torch(), **z(2), **fp16(loss_scale=1e9)}, {}),
    ("hysteresis-not-positive", {**torch(), **z(2), **fp16(hysteresis=0)}, {}),
    ("gradient-clipping-negative", {**torch(), **z(2), "gradient_clipping": -1.0}, {}),
    ("grad-accum-dtype-lossy", {**torch(), **z(1), **BF16, "data_types": {"grad_accum_dtype": "half"}}, {}),
    ("communication-in-fp16", {**torch(), **z(2), "communication_data_type": "FP16"}, {}),
    ("autocast-over-16-bit", {**torch(), **z(2), **BF16, **autocast(dtype="float16")}, {}),
    ("autocast-over-16-bit", {**torch(), **z(3), **ALL_BF16, **autocast(dtype="float16")}, {}),
    ("autocast-dtype-missing", {**torch(), **z(2), **autocast()}, {}),
    ("autocast-dtype-useless", {**torch(), **z(2), **autocast(dtype="float32")}, {}),
    ("autocast-fp16-clipped", {**torch(), **z(3), **autocast(dtype="float16")}, {}),
    ("immediate-grad-update-unread", {**torch(), **z(1), "bf16": {"enabled": True, "immediate_grad_update": True}}, {}),
    ("fp16-without-zero", {**torch(), **z(0), **fp16(initial_scale_power=8)}, {}),
]


@pytest.mark.parametrize(("rule", "config", "facts"), DOUBTFUL, ids=lambda part: part if isinstance(part, str) else "")
def test_what_runs_otherwise_than_written_is_one_warning(
    rule: str, config: dict[str, Any], facts: dict[str, Any]
) -> None:
    assert [(item.rule, item.severity) for item in found(config, **facts)] == [(rule, Severity.WARNING)]


# What ran and did what it says.
RIGHT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({**torch(), **z(2)}, {}),
    ({**opt("ADAMW", lr=1e-3), **z(2)}, {}),
    ({**opt("Adam", lr=1e-3, adam_w_mode=False, torch_adam=True, decoupled_weight_decay=True), **z(1)}, {}),
    ({**torch(amsgrad=True), **z(1)}, {}),
    ({**torch(foreach=True), **z(2)}, {}),
    ({**opt("Adagrad", lr=1e-3, amsgrad=True), **z(2, **OFFLOAD)}, {}),
    ({**opt(lr=1e-3, fp32_optimizer_states=False), **z(2, **OFFLOAD)}, {}),
    ({**opt("SGD", lr=1e-3, nesterov=True, momentum=0.9), **z(0)}, {}),
    ({**opt("Adafactor", lr=1e-3), **z(0)}, {}),
    ({**opt("SGD", lr=1e-3), **z(2), **ALLOW}, {}),
    ({**opt("MuAdam", lr=1e-3, anything=1), **z(0)}, {}),
    ({**opt("Lion", lr=1e-3), **z(2, **OFFLOAD)}, {"accelerator": "cpu"}),
    ({**opt("Muon", lr=1e-3), **z(3, reduce_scatter=False), **BF16}, {}),
    ({**opt("Muon", muon_lr=0.02, adam_lr=1e-4, momentum=0.9, ns_method="standard"), **z(2), **BF16}, {}),
    (
        {**opt("Muon", lr=1e-3, per_head_muon=True), **z(2), **BF16},
        {"parameters": ("model.layers.0.self_attn.q_proj.weight",)},
    ),
    (z(2), {}),
    (z(2, **OFFLOAD), {"client_optimizer": "deepspeed"}),
    ({**z(2, **OFFLOAD), "zero_force_ds_cpu_optimizer": False}, {"client_optimizer": "torch"}),
    (sched("WarmupLR"), {}),
    (sched("WarmupLR", warmup_num_steps=True), {}),
    (sched("WarmupLR", warmup_max_lr=[1e-3]), {}),
    (sched("WarmupLR", warmup_num_steps=100.0), {}),  # DeepSpeed's reader makes it 100
    (sched("WarmupDecayLR", warmup_max_lr=None, total_num_steps=10.5, warmup_num_steps=2), {}),
    (cycle(cycle_first_step_size="10"), {}),
    ({**cycle(cycle_momentum=False), **torch(betas=[0.9, 0.95])}, {}),
    ({**sched("StepLR", step_size=1), **z(0)}, {}),
    ({**torch(), **z(2), **fp16()}, {}),
    ({**torch(), **z(2), **fp16(auto_cast=True, initial_scale_power=24)}, {}),
    ({**torch(), **z(2), "fp16": {"enabled": False, "min_loss_scale": 0}}, {}),
    ({**torch(), **z(2), **fp16(loss_scale=128, min_loss_scale=0)}, {}),
    ({**torch(), **z(1), **BF16, "data_types": {"grad_accum_dtype": "fp32"}}, {}),
    ({**torch(), **z(0), **BF16, "data_types": {"grad_accum_dtype": "bf16"}}, {}),
    ({**torch(), **z(2), **fp16(), "data_types": {"param_dtype": "half"}}, {}),
    ({**torch(), **z(2), **BF16, "communication_data_type": "fp32"}, {}),
    ({**torch(), **z(2), **fp16(), "communication_data_type": "fp16"}, {}),
    ({**torch(), **z(0), **autocast(dtype="float16")}, {}),
    ({**torch(), **z(3), **ALL_BF16, **autocast(dtype="torch.bfloat16")}, {}),
    ({**torch(), **z(3), **autocast(dtype="float16"), "gradient_clipping": 0}, {}),
    (
        {
            **torch(),
            **z(2),
            **autocast(dtype="bfloat16", lower_precision_safe_modules=["torch.nn.Linear", "my.Block", "torch.Tensor"]),
        },
        {},
    ),
    (
        {
            **torch(),
            **z(1),
            "bf16": {"enabled": True, "bf16_master_weights_and_grads": True},
            "data_types": {"grad_accum_dtype": "fp32"},
        },
        {},
    ),
    (
        {
            **torch(),
            **z(3),
            "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
        },
        {},
    ),
    ({**opt(lr=1e-3), **z(2, **OFFLOAD), "bf16": {"enabled": True, "bf16_master_weights_and_grads": True}}, {}),
]


@pytest.mark.parametrize(("config", "facts"), RIGHT)
def test_what_is_right_is_left_alone(config: dict[str, Any], facts: dict[str, Any]) -> None:
    assert [(item.rule, item.message) for item in found(config, **facts)] == []


def test_what_the_trainer_fills_in_is_left_alone() -> None:
    params = {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}
    steps = {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}
    config = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_clipping": "auto",
        "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16},
        "bf16": {"enabled": "auto"},
        **opt(**params),
        "scheduler": {"type": "WarmupDecayLR", "params": steps},
        **z(2),
    }

    assert found(config, target="hf-trainer") == []
    assert found(z(2, **OFFLOAD), target="hf-trainer") == []


def test_a_peak_that_nobody_fills_in_is_said_beside_an_automatic_rate() -> None:
    steps = {"warmup_num_steps": "auto", "total_num_steps": "auto"}
    config = {**opt(lr="auto"), "scheduler": {"type": "WarmupDecayLR", "params": steps}, **z(2)}

    assert [item.rule for item in found(config, target="hf-trainer")] == ["schedule-peak-missing"]


def test_a_float_of_steps_stops_whoever_reads_with_pythons_json() -> None:
    config = sched("WarmupLR", warmup_num_steps=100.0)

    (said,) = found(config, target="hf-trainer")

    assert (said.rule, said.severity) == ("steps-not-positive", Severity.ERROR)
    assert said.fix is not None and said.fix.safe and said.fix.edits == (Assign(said.path, 100),)


# Release -> config -> what the rules say there and not in its neighbour.
RELEASES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("0.19.7", "0.19.6", "removed-optimizer", {**opt("OneBitAdam", lr=1e-3), **z(0)}),
    ("0.19.3", "0.19.2", "steps-not-positive", sched("WarmupLR", warmup_num_steps=0)),
    ("0.19.3", "0.19.2", "loss-scale-bound-not-positive", {**torch(), **z(2), **fp16(min_loss_scale=0)}),
    (
        "0.18.6",
        "0.18.5",
        "grad-accum-dtype-without-zero",
        {**torch(), **BF16, "data_types": {"grad_accum_dtype": "fp32"}},
    ),
    ("0.16", "0.17.2", "schedule-peak-missing", {**sched("WarmupLR"), **torch(lr=0.5)}),
    ("0.18.8", "0.18.9", "muon-at-stage-3", {**opt("Muon", lr=1e-3), **z(3, reduce_scatter=False), **BF16}),
    ("0.18.3", "0.18.2", "fp16-without-zero", {**torch(), **fp16()}),
    (
        "0.18.2",
        "0.18.3",
        "master-weights-without-zero",
        {**torch(), **z(1), "fp16": {"fp16_master_weights_and_grads": True}},
    ),
]


@pytest.mark.parametrize(
    ("bad", "good", "rule", "config"), RELEASES, ids=lambda part: part if isinstance(part, str) else ""
)
def test_a_rule_follows_the_release(bad: str, good: str, rule: str, config: dict[str, Any]) -> None:
    assert rule in [item.rule for item in found(config, deepspeed=bad)]
    assert rule not in [item.rule for item in found(config, deepspeed=good)]


@pytest.mark.parametrize(
    ("release", "severity"), [("0.16", Severity.WARNING), ("0.17.0", Severity.WARNING), ("0.17.1", Severity.ERROR)]
)
def test_bf16_with_keys_of_the_loss_scale_is_ignored_before_the_section_was_strict(
    release: str, severity: Severity
) -> None:
    (said,) = found({**torch(), **z(2), "bf16": {"enabled": True, "loss_scale": 0}}, deepspeed=release)

    assert (said.rule, said.severity) == ("loss-scale-in-bf16", severity)


MENDED: list[tuple[dict[str, Any], tuple[Any, ...], bool]] = [
    ({**opt("sgd", lr=1e-3), **z(0)}, (Assign("optimizer.type", "SGD"),), True),
    ({**opt("adamw_torch", lr=1e-3), **z(0)}, (Assign("optimizer.type", "AdamW"),), False),
    ({**opt(learning_rate=1e-3), **z(2)}, (Move("optimizer.params.learning_rate", "optimizer.params.lr"),), False),
    ({**opt(lr=1e-3, x=1), **z(2)}, (Remove("optimizer.params.x"),), False),
    ({**opt(lr=1e-3, max_grad_norm=1), **z(2)}, (Move("optimizer.params.max_grad_norm", "gradient_clipping"),), True),
    ({**opt(lr="1e-3"), **z(2)}, (Assign("optimizer.params.lr", 0.001),), True),
    (sched("Warmup_lr"), (Assign("scheduler.type", "WarmupLR"),), True),
    (sched("WarmupCosine"), (Assign("scheduler.type", "WarmupCosineLR"),), False),
    (sched("WarmupLR", warmup_type="Linear"), (Assign("scheduler.params.warmup_type", "linear"),), False),
    ({**torch(), **z(2), **BF16, "fp16": {"auto_cast": True}}, (Remove("fp16.auto_cast"),), True),
    ({**torch(), **z(2), "gradient_clipping": -1}, (Assign("gradient_clipping", 0),), True),
]


@pytest.mark.parametrize(("config", "edits", "safe"), MENDED)
def test_the_fix_is_what_was_plainly_meant(config: dict[str, Any], edits: tuple[Any, ...], safe: bool) -> None:
    (said,) = found(config)

    assert said.fix is not None
    assert (said.fix.edits, said.fix.safe) == (edits, safe)


def test_what_only_one_bit_optimizers_took_goes_with_them() -> None:
    (said,) = found({**opt("OneBitAdam", lr=1e-3, freeze_step=400), **z(0)})

    assert said.fix is not None
    assert said.fix.edits == (Assign("optimizer.type", "Adam"), Remove("optimizer.params.freeze_step"))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("auto") | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)
PATHS = sorted(
    path
    for path in surface.load().paths
    if path.split(".")[0]
    in {"optimizer", "scheduler", "fp16", "bf16", "torch_autocast", "data_types", "gradient_clipping"}
)
KINDS = ("Adam", "AdamW", "Muon", "SGD", "Lamb", "WarmupLR", "WarmupDecayLR", "OneCycle", "StepLR", "OneBitAdam")
ARGUMENTS = ("lr", "betas", "amsgrad", "fused", "warmup_num_steps", "warmup_type", "total_num_steps", "cycle_momentum")


@given(
    values=st.dictionaries(
        st.sampled_from(PATHS)
        | st.sampled_from([f"{s}.params.{n}" for s in ("optimizer", "scheduler") for n in ARGUMENTS]),
        VALUES,
        max_size=6,
    ),
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    target=st.sampled_from(["deepspeed", "hf-trainer"]),
)
def test_no_value_breaks_a_rule(values: dict[str, Any], kinds: tuple[str, str], target: str) -> None:
    config: dict[str, Any] = {"optimizer": {"type": kinds[0]}, "scheduler": {"type": kinds[1]}}
    for path, value in values.items():
        *sections, name = path.split(".")
        here = config
        for section in sections:
            inner = here.get(section)
            here[section] = here = inner if isinstance(inner, dict) else {}
        here[name] = copy.deepcopy(value)

    seen = lint_config(config, target=target)

    assert [item.message for item in seen if item.rule == "rule-broke" and set(item.message.split()) & NAMED] == []


@pytest.mark.parametrize("value", [True, None, "1", 10**400, float("nan"), float("inf"), [1], {}])
def test_only_a_finite_number_is_a_number(value: Any) -> None:
    assert number(value) is None


@pytest.mark.parametrize(
    ("text", "value", "safe"),
    [("1e-4", 0.0001, True), (" 100 ", 100, True), ("true", True, True), ("False", False, False)],
)
def test_a_text_is_rewritten_as_what_it_says(text: str, value: Any, safe: bool) -> None:
    fix = number_fix("a.b", text)

    assert fix is not None and fix.safe is safe
    assert fix.edits == (Assign("a.b", value),) and isinstance(value, type(fix.edits[0].value))


@pytest.mark.parametrize("text", ["", "nan", "1e999", "five", 5, None])
def test_what_says_no_number_is_not_rewritten(text: Any) -> None:
    assert number_fix("a.b", text) is None


def test_every_name_of_a_dtype_that_the_release_takes_is_known() -> None:
    key = surface.load().key("data_types.grad_accum_dtype")

    assert key is not None
    assert {name for name in key.enum if name is not None} == set(DTYPES)


@pytest.mark.proof
def test_the_classes_of_torch_nn_are_those_of_the_installed_torch() -> None:
    import torch as installed

    assert {name for name, value in vars(installed.nn).items() if isinstance(value, type)} <= TORCH_NN
