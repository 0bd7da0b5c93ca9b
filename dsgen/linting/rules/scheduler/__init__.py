"""Rules about the learning rate's schedule."""

from __future__ import annotations

from dsgen.linting.rules.rule import Rules

__all__ = ["RULES"]

RULES = Rules(
    __name__,
    "unknown_scheduler",
    "scheduler_type_missing",
    "scheduler_params_missing",
    "unknown_scheduler_argument",
    "scheduler_argument_missing",
    "scheduler_argument_type",
    "steps_not_positive",
    "schedule_shorter_than_warmup",
    "unknown_warmup_type",
    "scheduler_overrides_lr",
    "schedule_peak_missing",
    "first_steps_without_learning",
    "torch_scheduler_with_wrapper",
    "onecycle_overrides_betas",
    "cycle_decay_without_steps",
    "scheduler_argument_beside_params",
    "cycle_second_half_negative",
)
