"""What peft adapts: its word for all linear layers; experts and routers, which are one tensor in transformers 5.

Before transformers 5 the experts and the router were linear layers. peft still takes their names, and adapts the
tensors that they have become; a dense or shared feed-forward part of the same names then gets no adapter. Targets that
are one tensor today must be named together, and that tensor's adapter has their ranks' sum.
(peft/utils/transformers_weight_conversion.py: _MODEL_TO_CONVERSION_PATTERN, _MOE_TARGET_MODULE_MAPPING and
_MOE_FUSED_TARGETS; a model type that the first does not list, as gpt_oss and qwen2_moe, adapts its linear layers
alone.)
"""

from __future__ import annotations

__all__ = ["ALL_LINEAR", "DOWN", "PAIR", "PARTS", "ROUTER"]

ALL_LINEAR = "all-linear"  # every linear layer but the output head
ROUTER, PAIR, DOWN = "mlp.gate.weight", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"
# Name before transformers 5 -> the tensor that it is a part of.
PARTS = {"gate": ROUTER, "gate_proj": PAIR, "up_proj": PAIR, "down_proj": DOWN}
