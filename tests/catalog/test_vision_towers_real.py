"""The vision towers that names are warned of, held against the class that transformers makes of such a config.json."""

from __future__ import annotations

import pytest

from dsgen import catalog
from dsgen.catalog.doubts import _TOWERS
from dsgen.catalog.structure import structure
from dsgen.families.hf_config import to_hf_config
from dsgen.families.parameters import parameter_count
from dsgen.jobs.assembly import canonical
from dsgen.shapes.layers import fold
from dsgen.shapes.profiles import Model

pytestmark = pytest.mark.proof

# As the config.json of each of these repositories has it: SigLIP So400m of 896 pixels.
VISION = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "image_size": 896, "patch_size": 14, "vision_use_head": False,
}  # fmt: skip


@pytest.mark.parametrize("name", _TOWERS)
def test_what_a_causal_model_of_the_repository_has_beyond_its_text_part(name: str) -> None:
    import attrs
    import torch
    from transformers import AutoModelForCausalLM, Gemma3Config

    folded = fold(canonical((catalog.find("model", name).layer,)))
    model = structure(Model, "model", folded.tree, folded.provenance)
    config = Gemma3Config(text_config=to_hf_config(attrs.asdict(model)), vision_config=VISION, mm_tokens_per_image=256)
    with torch.device("meta"):
        made = AutoModelForCausalLM.from_config(config)

    assert type(made).__name__ == "Gemma3ForConditionalGeneration"
    assert sum(weight.numel() for weight in made.parameters()) == parameter_count(model) + _TOWERS[name]
