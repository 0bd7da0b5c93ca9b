"""SmolLM3: Llama, every fourth block of which has no rope."""

from __future__ import annotations

import functools

from dsgen.families import rows
from dsgen.families.config_keys import SPLIT, keys
from dsgen.families.family import AutoTP, Facts, Family
from dsgen.families.llama import BLOCK
from dsgen.families.parts import llama
from dsgen.families.reading import Reader

__all__ = ["INTERVAL", "SMOLLM3"]

INTERVAL = 4  # every so many-th block has no rope (no_rope_layer_interval of its config)


def _read(reader: Reader, facts: Facts) -> dict[str, object]:
    """Refuse other blocks without rope."""
    listed = reader.part.get("no_rope_layers")
    if listed is not None and listed != [int((block + 1) % INTERVAL != 0) for block in range(facts["layers"])]:
        raise reader.unsupported(
            f"no_rope_layers is {listed!r}",
            f"dsgen counts this model_type with rope in all blocks but every {INTERVAL}th only",
        )
    return {}


_plain_block = functools.partial(llama.block, attending=functools.partial(llama.attention, rope=False))


SMOLLM3 = Family(
    model_type="smollm3",
    huggingface="SmolLM3ForCausalLM",
    keys=keys(36, 2048, 16, 4, SPLIT, 11008, 128256, 32768, tied=True, attention_bias=False, mlp_bias=False),
    pinned={"no_rope_layer_interval": INTERVAL, "use_sliding_window": False},
    read=_read,
    layout=rows.llama_frame(dense=BLOCK),
    forward=llama.llama_forward()._replace(every=INTERVAL, other=_plain_block),
    autotp=AutoTP(head=True, tied_head=True),
)
