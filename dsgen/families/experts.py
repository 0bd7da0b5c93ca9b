"""What peft adapts of experts and routers, which transformers 5 keeps in one tensor each.

Before transformers 5 the experts and the router were linear layers. peft still takes their names, and adapts the
tensors that they have become; a dense or shared feed-forward part of the same names then gets no adapter. Targets that
are one tensor today must be named together, and that tensor's adapter has their ranks' sum.
(peft/utils/transformers_weight_conversion.py: _MODEL_TO_CONVERSION_PATTERN, _MOE_TARGET_MODULE_MAPPING and
_MOE_FUSED_TARGETS; a model type that the first does not list, as gpt_oss and qwen2_moe, adapts its linear layers
alone.)
"""

from __future__ import annotations

from dsgen.families.family import Facts
from dsgen.families.reading import Reader

__all__ = ["DOWN", "PAIR", "PARTS", "ROUTER", "width"]

ROUTER, PAIR, DOWN = "mlp.gate.weight", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"
# Name before transformers 5 -> the tensor that it is a part of.
PARTS = {"gate": ROUTER, "gate_proj": PAIR, "up_proj": PAIR, "down_proj": DOWN}


def width(_: Reader, facts: Facts) -> dict[str, object]:
    """The width of an expert, which is the feed-forward width where no key says another."""
    return {"expert_ffn_size": facts["ffn_size"]}
