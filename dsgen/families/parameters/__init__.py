"""Exact parameter arithmetic: every tensor of a model, how many parameters that makes, and what LoRA adds."""

from __future__ import annotations

from dsgen.families.parameters.adapters import (
    ALL_LINEAR,
    HEAD_TWICE,
    NO_DROPOUT,
    TWO_COPIES,
    Adapter,
    adaptable,
    adapters,
    adapts_head,
    added,
    check_dropout,
    check_embeddings,
    check_head,
    expert_target,
    fused_targets,
    in_outer_module,
    lora_parameters,
)
from dsgen.families.parameters.counts import (
    active_parameter_count,
    encoder_parameter_count,
    model_types,
    parameter_count,
    parameters,
    routed_parameter_count,
)
from dsgen.families.parameters.tensors import Parameter, Stretch, stretches

__all__ = [
    "ALL_LINEAR",
    "HEAD_TWICE",
    "NO_DROPOUT",
    "TWO_COPIES",
    "Adapter",
    "Parameter",
    "Stretch",
    "active_parameter_count",
    "adaptable",
    "adapters",
    "adapts_head",
    "added",
    "check_dropout",
    "check_embeddings",
    "check_head",
    "encoder_parameter_count",
    "expert_target",
    "fused_targets",
    "in_outer_module",
    "lora_parameters",
    "model_types",
    "parameter_count",
    "parameters",
    "routed_parameter_count",
    "stretches",
]
