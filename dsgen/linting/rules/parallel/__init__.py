"""Rules about tensor, sequence, expert and pipeline parallelism."""

from __future__ import annotations

from dsgen.linting.rules.rule import Rules

__all__ = ["RULES"]

RULES = Rules(
    __name__,
    "tensor_parallel_key",
    "tensor_parallel_size_elsewhere",
    "tensor_parallel_sizes_differ",
    "tensor_parallel_size_as_text",
    "tensor_parallel_does_not_fit_gpus",
    "tensor_parallel_batch",
    "tensor_parallel_zero_3_batch",
    "tensor_parallel_with_zero_3",
    "tensor_parallel_stage_0_norm",
    "tensor_parallel_without_plan",
    "tensor_parallel_preset_unknown",
    "tensor_parallel_matches_nothing",
    "partition_type_unknown",
    "tensor_parallel_dtype",
    "tensor_parallel_without_partner",
    "sequence_parallel_alone",
    "sequence_parallel_does_not_fit_gpus",
    "sequence_parallel_size_refused",
    "expert_parallel_refused",
    "expert_parallel_on_dense_model",
    "pipeline_unread",
)
