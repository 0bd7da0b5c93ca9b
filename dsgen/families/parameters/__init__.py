"""Exact parameter arithmetic: every tensor of a model, how many parameters that makes, and what LoRA adds."""

from __future__ import annotations

from dsgen.families.parameters.adapters import (
    ALL_LINEAR,
    Adapter,
    adapters,
    adapts,
    adapts_head,
    added,
    expert_target,
    fused_targets,
    in_outer_module,
    lora_parameters,
    unfused,
)
from dsgen.families.parameters.counts import (
    active_parameter_count,
    block_elements,
    encoder_parameter_count,
    largest_matrix,
    model_types,
    parameter_count,
    parameters,
    routed_parameter_count,
)
from dsgen.families.parameters.tensors import Parameter, Stretch, stretches

__all__ = [
    "ALL_LINEAR",
    "Adapter",
    "Parameter",
    "Stretch",
    "active_parameter_count",
    "adapters",
    "adapts",
    "adapts_head",
    "added",
    "block_elements",
    "encoder_parameter_count",
    "expert_target",
    "fused_targets",
    "in_outer_module",
    "largest_matrix",
    "lora_parameters",
    "model_types",
    "parameter_count",
    "parameters",
    "routed_parameter_count",
    "stretches",
    "unfused",
]
