"""Exact parameter arithmetic: every tensor of a model, how many parameters that makes, and what LoRA adds."""

from __future__ import annotations

from dsgen.parameters.counts import (
    ALL_LINEAR,
    active_parameter_count,
    adapted,
    lora_parameters,
    model_types,
    parameter_count,
    parameters,
    routed_parameter_count,
)
from dsgen.parameters.tensors import Parameter, Stretch, stretches

__all__ = [
    "ALL_LINEAR",
    "Parameter",
    "Stretch",
    "active_parameter_count",
    "adapted",
    "lora_parameters",
    "model_types",
    "parameter_count",
    "parameters",
    "routed_parameter_count",
    "stretches",
]
