"""Reading one part of a config.json: typed values, and the refusal of variants that nothing here counts."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import attrs

from dsgen.families.config_keys import AS_ENCODER, FLOORED, FOUR_H, HEADS, SPLIT, ConfigKey
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.profiles import Model

__all__ = ["FUSED_GELUS", "WRITTEN_DROPOUT", "Reader", "Rotated", "expert_width"]

FUSED_GELUS = ("gelu", "gelu_pytorch_tanh")
WRITTEN_DROPOUT = 0.1  # what is written where there is one: which, memory does not ask
_ESSENTIAL = ("encoder_layers", "layers", "hidden_size", "attention_heads", "ffn_size", "vocab_size")


class Reader(NamedTuple):
    """Typed reading of one part of a config.

    Attributes:
        part: The keys.
        where: The file, for messages.
        nested: It is a part of a larger one, which Hugging Face writes without the class's defaults.
        has_profiles: There is a built-in profile of a model like this.
    """

    part: Mapping[str, object]
    where: str
    nested: bool
    has_profiles: bool = True

    def value(self, key: ConfigKey, sizes: Mapping[str, int]) -> int | bool:
        """The value of one fact: as written, or the class's default."""
        name = next((name for name in key.names if self.part.get(name) is not None), None)
        if name is not None:
            if isinstance(key.default, bool):
                return self.boolean(name, key.default)
            bounds = attrs.fields_dict(Model)[key.fact].metadata
            least = 1 if key.fact == "encoder_layers" else bounds["minimum"]  # only a class with an encoder has the key
            return self.integer(name, least, bounds["below"])
        default: int | bool | str = key.default
        if key.null is not None and any(name in self.part for name in key.names):
            default = key.null
        if isinstance(default, str):
            return self._derived(default, sizes)
        if key.fact in _ESSENTIAL and not self.nested:
            raise mistake(
                f"no {key.names[0]}",
                must="the config.json of a model has it",
                where=self.where,
                todo="Give the whole config.json, as it lies beside the model's weights.",
            )
        return default

    def _derived(self, rule: str, sizes: Mapping[str, int]) -> int:
        hidden, heads = sizes["hidden_size"], sizes["attention_heads"]
        if rule in (AS_ENCODER, HEADS):
            return heads if rule == HEADS else sizes["encoder_layers"]
        if rule == FOUR_H:
            return 4 * hidden
        if rule == FLOORED:
            return max(1, hidden // heads)
        assert rule == SPLIT
        if hidden % heads:
            raise mistake(
                f"hidden_size {hidden} is no multiple of {heads} attention heads",
                must="it must be, or head_dim must be given",
                where=self.where,
            )
        return hidden // heads

    def integer(self, name: str, minimum: int, below: int | None = None) -> int:
        """A whole number; true, 1.9 and "32" are none."""
        value = self.part.get(name)
        if type(value) is not int or value < minimum:
            raise mistake(
                f"{name} is {value!r}", must=f"it must be a whole number of at least {minimum}", where=self.where
            )
        if below is not None and value >= below:
            raise mistake(f"{name} is {value:,}", must=f"it must be below {below:,}", where=self.where)
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """True or false; 1 and "no" are neither."""
        value = self.part.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise mistake(f"{name} is {value!r}", must="it must be true or false", where=self.where)
        return value

    def dropout(self, defaults: Mapping[str, float]) -> bool:
        """Whether a model drops elements in training, wherever its class can: by all of these keys, or by none."""
        said = {name: self.part.get(name, default) for name, default in defaults.items()}
        shares = []
        for name, value in said.items():
            share = _number(value)
            if share is None or not 0 <= share < 1:
                raise self.unsupported(f"{name} is {value!r}", "it must be a probability below 1")
            shares.append(share)
        if len({share == 0 for share in shares}) > 1:
            raise self.unsupported(
                ", ".join(f"{name} is {value!r}" for name, value in said.items()),
                "dsgen counts this model_type with all of its dropouts, or with none",
            )
        return shares[0] != 0

    def demand(self, name: str, required: bool | int | float | str | None) -> None:
        """Refuse a variant that the layouts do not hold."""
        value = self.part.get(name)
        if value is not None and value != required:
            raise self.unsupported(
                f"{name} is {value!r}", f"dsgen counts this model_type with {str(required).lower()} only"
            )

    def demand_fused(self, name: str) -> None:
        """Refuse a GELU that is written out step by step, each of which is kept."""
        value = self.part.get(name)
        if value is not None and value not in FUSED_GELUS:
            raise self.unsupported(
                f"{name} is {value!r}", f"dsgen counts this model_type with {' or '.join(FUSED_GELUS)} only"
            )

    def unsupported(self, what: str, must: str) -> DsgenError:
        """The error of a variant of a known model_type."""
        return mistake(
            what,
            must=must,
            where=self.where,
            todo="Take the nearest built-in model profile instead (dsgen profiles list)."
            if self.has_profiles
            else None,
        )


class Rotated(NamedTuple):
    """How much of a head rope turns, where `partial_rotary_factor` says it.

    Attributes:
        share: The part of a head where nothing is said.
        elements: How many elements that is in every model of the type, whatever its heads are; 0: the share of any.
    """

    share: float
    elements: int = 0

    def of(self, size: int) -> int:
        """Elements of a head that are turned."""
        return self.elements or int(size * self.share)

    def check(self, reader: Reader, size: int) -> None:
        """Refuse a head of which another part is rotated; transformers 5 writes the share among the rope parameters.

        Raises:
            DsgenError: It is.
        """
        share = reader.part.get("partial_rotary_factor")
        for name in ("rope_parameters", "rope_scaling"):
            within = reader.part.get(name)
            share = within.get("partial_rotary_factor", share) if isinstance(within, Mapping) else share
        written = self.share if share is None else _number(share)
        if written is None or not 0 < written <= 1 or int(size * written) != self.of(size):
            raise reader.unsupported(
                f"partial_rotary_factor is {self.share if share is None else share!r} with heads of {size}",
                f"dsgen counts this model_type with {self.of(size)} rotated elements of a head only",
            )

    def written(self, size: int) -> float:
        """The partial_rotary_factor with which the class rotates what is counted."""
        share = self.of(size) / size
        return share if int(size * share) == self.of(size) else math.nextafter(share, 1)


def expert_width(_: Reader, facts: Mapping[str, Any]) -> dict[str, object]:
    """The width of an expert, where no key says another than that of a dense feed-forward part."""
    return {"expert_ffn_size": facts["ffn_size"]}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
