"""What a name that a profile was given may mean besides: a card of another memory, a model with a vision tower."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

__all__ = ["SOLD", "doubt_of", "doubt_of_config"]

SOLD = re.compile(r"[\s_-]+(\d+)[\s_-]*gi?b?$")  # the memory behind a card's name: RTX 3060 12 GB

# Profile -> GB of another card of its name (NVIDIA's pages of the GeForce RTX 3060, 3080 and 4060 families).
_ALSO_SOLD = {"rtx3060-12g": 8, "rtx3080-10g": 12, "rtx4060ti-16g": 8}

# Profile of a text part -> weights of the tower and its projector that lie in the same repository, counted in
# transformers 5.23's Gemma3ForConditionalGeneration, which its AutoModelForCausalLM makes of a gemma3 config.json.
_TOWERS = {"gemma-3-4b": 419_816_304, "gemma-3-12b": 421_290_864, "gemma-3-27b": 423_060_336}
_LEFT = "the text part alone is counted, and a program that loads the whole model has that on top"


def doubt_of(profile: str, name: str) -> str:
    """What else a profile's name may mean, in words; "" where it means one thing.

    Args:
        profile: Its own name.
        name: The name that it was given.
    """
    if (other := _ALSO_SOLD.get(profile)) is not None and not SOLD.search(name.casefold()):
        return f"{name} is taken for {profile}; of one with {other} GB say --gpu-memory {other}GiB"
    if (tower := _TOWERS.get(profile)) is not None:
        return f"{name} has a vision tower of {tower / 1e9:.2f} B weights: {_LEFT}"
    return ""


def doubt_of_config(text: str, where: str) -> str:
    """The same of what stands in a model's config.json, which is valid."""
    sees = isinstance(json.loads(text).get("vision_config"), Mapping)
    return f"{where} has a vision tower: {_LEFT}" if sees else ""
