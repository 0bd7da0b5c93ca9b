"""Rules about dtypes, loss scaling and gradient clipping."""

from __future__ import annotations

from dsgen.linting.rules.rule import Rules

__all__ = ["RULES"]

RULES = Rules(
    __name__,
    "fp16_and_bf16",
    "loss_scale_in_bf16",
    "auto_cast_without_fp16",
    "fp16_on_cpu",
    "initial_loss_scale_too_high",
    "static_loss_scale_too_high",
    "loss_scale_bound_not_positive",
    "hysteresis_not_positive",
    "gradient_clipping_negative",
    "clipping_by_default",
    "grad_accum_dtype_without_zero",
    "grad_accum_dtype_lossy",
    "param_dtype_conflict",
    "keep_in_fp32_not_a_list",
    "communication_in_fp16",
    "autocast_over_16_bit",
    "autocast_dtype_missing",
    "autocast_dtype_useless",
    "autocast_fp16_clipped",
    "autocast_unknown_module",
    "autocast_with_quantized_weights",
    "master_weights_without_zero",
    "master_weights_need_cpu_adam",
    "optimizer_states_without_master",
    "two_kinds_of_master_weights",
    "immediate_grad_update_unread",
    "fp16_without_zero",
)
