"""Rules about the optimizer and its arguments."""

from __future__ import annotations

from dsgen.linting.rules.rule import Rules

__all__ = ["RULES"]

RULES = Rules(
    __name__,
    "optimizer_missing",
    "optimizer_type_missing",
    "unknown_optimizer",
    "removed_optimizer",
    "unknown_optimizer_argument",
    "optimizer_argument_ignored",
    "optimizer_argument_beside_params",
    "max_grad_norm_in_optimizer",
    "optimizer_argument_type",
    "optimizer_argument_range",
    "optimizer_arguments_conflict",
    "amsgrad_unsupported",
    "adam_means_adamw",
    "untested_zero_optimizer",
    "optimizer_needs_closure",
    "sparse_adam",
    "optimizer_package_missing",
    "lamb_needs_dynamic_loss_scale",
    "fused_optimizer_needs_gpu",
    "muon_at_stage_3",
    "per_head_muon_without_attention",
    "unknown_ns_method",
    "torch_adam_with_offload",
    "learning_rate_missing",
    "learning_rate_zero",
    "client_optimizer_under_offload",
    "two_optimizers",
    "legacy_fusion",
)
