"""Rules about tensor, sequence, expert and pipeline parallelism."""

from __future__ import annotations

from dsgen.linting.rules.parallel import (
    expert_parallel_on_dense_model,
    expert_parallel_refused,
    partition_type_unknown,
    pipeline_unread,
    sequence_parallel_alone,
    sequence_parallel_does_not_fit_gpus,
    sequence_parallel_size_refused,
    tensor_parallel_batch,
    tensor_parallel_does_not_fit_gpus,
    tensor_parallel_dtype,
    tensor_parallel_key,
    tensor_parallel_matches_nothing,
    tensor_parallel_preset_unknown,
    tensor_parallel_size_as_text,
    tensor_parallel_size_elsewhere,
    tensor_parallel_sizes_differ,
    tensor_parallel_stage_0_norm,
    tensor_parallel_with_zero_3,
    tensor_parallel_without_plan,
    tensor_parallel_zero_3_batch,
)
from dsgen.linting.rules.rule import Rule

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    tensor_parallel_key.RULE,
    tensor_parallel_size_elsewhere.RULE,
    tensor_parallel_sizes_differ.RULE,
    tensor_parallel_size_as_text.RULE,
    tensor_parallel_does_not_fit_gpus.RULE,
    tensor_parallel_batch.RULE,
    tensor_parallel_zero_3_batch.RULE,
    tensor_parallel_with_zero_3.RULE,
    tensor_parallel_stage_0_norm.RULE,
    tensor_parallel_without_plan.RULE,
    tensor_parallel_preset_unknown.RULE,
    tensor_parallel_matches_nothing.RULE,
    partition_type_unknown.RULE,
    tensor_parallel_dtype.RULE,
    sequence_parallel_alone.RULE,
    sequence_parallel_does_not_fit_gpus.RULE,
    sequence_parallel_size_refused.RULE,
    expert_parallel_refused.RULE,
    expert_parallel_on_dense_model.RULE,
    pipeline_unread.RULE,
)
