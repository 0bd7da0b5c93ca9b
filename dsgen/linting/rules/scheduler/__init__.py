"""Rules about the learning rate's schedule."""

from __future__ import annotations

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.scheduler import (
    cycle_decay_without_steps,
    cycle_second_half_negative,
    first_steps_without_learning,
    onecycle_overrides_betas,
    schedule_peak_missing,
    schedule_shorter_than_warmup,
    scheduler_argument_beside_params,
    scheduler_argument_missing,
    scheduler_argument_type,
    scheduler_overrides_lr,
    scheduler_params_missing,
    scheduler_type_missing,
    steps_not_positive,
    torch_scheduler_with_wrapper,
    unknown_scheduler,
    unknown_scheduler_argument,
    unknown_warmup_type,
)

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    unknown_scheduler.RULE,
    scheduler_type_missing.RULE,
    scheduler_params_missing.RULE,
    unknown_scheduler_argument.RULE,
    scheduler_argument_missing.RULE,
    scheduler_argument_type.RULE,
    steps_not_positive.RULE,
    schedule_shorter_than_warmup.RULE,
    unknown_warmup_type.RULE,
    scheduler_overrides_lr.RULE,
    schedule_peak_missing.RULE,
    first_steps_without_learning.RULE,
    torch_scheduler_with_wrapper.RULE,
    onecycle_overrides_betas.RULE,
    cycle_decay_without_steps.RULE,
    scheduler_argument_beside_params.RULE,
    cycle_second_half_negative.RULE,
)
