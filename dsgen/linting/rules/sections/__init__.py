"""Rules about checkpoints, activation checkpointing, data efficiency, monitors and debug switches."""

from __future__ import annotations

from dsgen.linting.rules.rule import Rules

__all__ = ["RULES"]

RULES = Rules(
    __name__,
    "activation_checkpointing_unused",
    "contiguous_checkpoints_incomplete",
    "checkpoint_writer_fails",
    "datastates_missing",
    "curriculum_without_metrics",
    "dynamic_batching_without_max_tokens",
    "random_ltd_incomplete",
    "monitor_package",
    "gds_without_cuda",
    "hybrid_engine_on",
    "weight_quantization_unused",
    "deepcompile_not_called",
    "timers_left_on",
    "profiler_left_on",
    "autotuning_ends_the_run",
    "chatty_output",
    "hybrid_engine_needs_gpu",
    "profiler_deeper_than_model",
)
