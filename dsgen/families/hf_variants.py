"""What several model types say in config.json of how they run: the share of a head that is rotated, dropout."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from dsgen.families.hf_names import NOPE_INTERVAL, Family
from dsgen.shapes.errors import DsgenError

__all__ = [
    "ROTATED",
    "demand_fused",
    "demand_rope",
    "demand_rotated",
    "read_dropout",
    "read_falcon",
    "rotated_share",
    "written_dropout",
]

# Share of a head that the class rotates where nothing is said, and how many elements that is in every model of the
# type, whatever its heads are; 0 where it is the share of any head.
ROTATED: dict[str, tuple[float, int]] = {
    "glm4": (0.5, 0),
    "glm4_moe": (0.5, 0),
    "phi": (0.5, 32),
    "stablelm": (0.25, 0),
}
FUSED_GELUS = ("gelu", "gelu_pytorch_tanh")
WRITTEN_DROPOUT = 0.1  # what is written where there is one: which, memory does not ask


class Reading(Protocol):
    """A config.json that is read."""

    @property
    def part(self) -> Mapping[str, object]:
        """Its keys."""

    def boolean(self, name: str, default: bool) -> bool:
        """True or false."""

    def demand(self, name: str, required: bool | int | float | str | None) -> None:
        """Refuse another value."""

    def unsupported(self, what: str, must: str) -> DsgenError:
        """The error of a variant."""


def demand_rotated(model_type: str, reader: Reading, size: int) -> None:
    """Refuse a head of which another part is rotated; transformers 5 writes the share among the rope parameters.

    Args:
        model_type: One of ROTATED.
        reader: The config.json.
        size: Elements of a head.
    """
    default, wanted = ROTATED[model_type][0], _elements(model_type, size)
    share = reader.part.get("partial_rotary_factor")
    for name in ("rope_parameters", "rope_scaling"):
        within = reader.part.get(name)
        share = within.get("partial_rotary_factor", share) if isinstance(within, Mapping) else share
    found = default if share is None else _number(share)
    if found is None or not 0 < found <= 1 or int(size * found) != wanted:
        raise reader.unsupported(
            f"partial_rotary_factor is {default if share is None else share!r} with heads of {size}",
            f"dsgen counts this model_type with {wanted} rotated elements of a head only",
        )


def demand_fused(reader: Reading, name: str) -> None:
    """Refuse a GELU that is written out step by step, each of which is kept."""
    found = reader.part.get(name)
    if found is not None and found not in FUSED_GELUS:
        raise reader.unsupported(
            f"{name} is {found!r}", f"dsgen counts this model_type with {' or '.join(FUSED_GELUS)} only"
        )


def demand_rope(reader: Reading, layers: int) -> None:
    """Refuse SmolLM3 with other blocks without rope than every fourth."""
    listed = reader.part.get("no_rope_layers")
    if listed is not None and listed != [int((block + 1) % NOPE_INTERVAL != 0) for block in range(layers)]:
        raise reader.unsupported(
            f"no_rope_layers is {listed!r}",
            f"dsgen counts this model_type with rope in all blocks but every {NOPE_INTERVAL}th only",
        )


def rotated_share(model_type: str, facts: Mapping[str, object]) -> float:
    """The partial_rotary_factor of a model, with which its class rotates what is counted."""
    size = facts["head_size"]
    assert isinstance(size, int)
    wanted = _elements(model_type, size)
    share = wanted / size
    return share if int(size * share) == wanted else math.nextafter(share, 1)


def _elements(model_type: str, size: int) -> int:
    share, elements = ROTATED[model_type]
    return elements or int(size * share)


def read_dropout(family: Family, reader: Reading) -> bool:
    """Whether a model drops elements in training, wherever its class can."""
    said = {name: reader.part.get(name, default) for name, default in family.dropouts.items()}
    shares = []
    for name, value in said.items():
        share = _number(value)
        if share is None or not 0 <= share < 1:
            raise reader.unsupported(f"{name} is {value!r}", "it must be a probability below 1")
        shares.append(share)
    if len({share == 0 for share in shares}) > 1:
        raise reader.unsupported(
            ", ".join(f"{name} is {value!r}" for name, value in said.items()),
            "dsgen counts this model_type with all of its dropouts, or with none",
        )
    return shares[0] != 0


def read_falcon(reader: Reading, facts: dict[str, object]) -> None:
    """Falcon's two decoders: falcon-7b's has one key head, the new one of 40b and 180b a key head per group."""
    new = reader.boolean("new_decoder_architecture", False)
    reader.demand("num_ln_in_parallel_attn", 2 if new else 1)
    if not new:
        if not reader.boolean("multi_query", True):
            raise reader.unsupported("multi_query is false", "dsgen counts falcon's old decoder with one key head only")
        facts["kv_heads"] = 1
    elif facts["kv_heads"] == 1:
        raise reader.unsupported("num_kv_heads is 1", "dsgen counts falcon's new decoder with more key heads only")


def written_dropout(family: Family, facts: Mapping[str, object]) -> dict[str, object]:
    """The keys that `read_dropout` reads."""
    return dict.fromkeys(family.dropouts, WRITTEN_DROPOUT if facts["dropout"] else 0.0)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
