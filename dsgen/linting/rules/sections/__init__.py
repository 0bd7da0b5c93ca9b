"""Rules about checkpoints, activation checkpointing, data efficiency, monitors and debug switches."""

from __future__ import annotations

from dsgen.linting.rules.rule import Rule
from dsgen.linting.rules.sections import (
    activation_checkpointing_unused,
    autotuning_ends_the_run,
    chatty_output,
    checkpoint_writer_fails,
    contiguous_checkpoints_incomplete,
    curriculum_without_metrics,
    datastates_missing,
    deepcompile_not_called,
    dynamic_batching_without_max_tokens,
    gds_without_cuda,
    hybrid_engine_on,
    monitor_package,
    profiler_left_on,
    random_ltd_incomplete,
    timers_left_on,
    weight_quantization_unused,
)

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    activation_checkpointing_unused.RULE,
    contiguous_checkpoints_incomplete.RULE,
    checkpoint_writer_fails.RULE,
    datastates_missing.RULE,
    curriculum_without_metrics.RULE,
    dynamic_batching_without_max_tokens.RULE,
    random_ltd_incomplete.RULE,
    monitor_package.RULE,
    gds_without_cuda.RULE,
    hybrid_engine_on.RULE,
    weight_quantization_unused.RULE,
    deepcompile_not_called.RULE,
    timers_left_on.RULE,
    profiler_left_on.RULE,
    autotuning_ends_the_run.RULE,
    chatty_output.RULE,
)
