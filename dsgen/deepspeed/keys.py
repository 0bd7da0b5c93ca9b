"""One key of a DeepSpeed config: its shape, the values it takes, and how a condition on it is met and said."""

import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dsgen.shapes.lax import FALSE_TEXTS, TRUE_TEXTS

__all__ = [
    "Effect",
    "Key",
    "check_value",
    "condition_met",
    "condition_text",
    "key_of",
    "lookup",
    "say",
    "too_large",
]

_NAMES = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "array": "a list",
    "object": "a section",
    "null": "null",
}

_LARGEST = 10**100  # no quantity reaches it, and a product of three still fits a float (1.8e308)


class Effect(NamedTuple):
    """When a key does something: all of one alternative of `when` holds, and `needs` is done outside the config.

    An alternative maps paths to the list of values that count, or to `{"not": [...]}`, those that do not.
    """

    when: tuple[Mapping[str, Any], ...] = ()
    never: str | None = None
    needs: str | None = None


class Key(NamedTuple):
    """One key of one release. `types` are JSON types; none means anything goes.

    `refuses` says of a key outside the strict sections which JSON types DeepSpeed stops at, by the phase ("parse",
    "init", "step"); "other" stands for a value of the right type that is not among those it knows.
    """

    path: str
    types: tuple[str, ...] = ()
    default: Any = None
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    excluded: Any = None
    enum: tuple[Any, ...] = ()
    items: tuple[Any, ...] = ()
    folded: bool = False
    description: str = ""
    strict: bool = False
    deprecated: bool = False
    replaced_by: str | None = None
    removed: str | None = None
    since: str | None = None
    effect: Effect = Effect()
    refuses: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    elements: bool = False
    auto: bool = False


def say(value: object) -> str:
    """A value as JSON writes it, cut when it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def key_of(path: str, facts: Mapping[str, Any], strict: bool) -> Key:
    """The key at a path, from what the surface's file says of it."""
    effect = facts.get("effect", {})
    return Key(
        path=path,
        types=tuple(facts.get("types", ())),
        default=facts.get("default"),
        minimum=facts.get("minimum"),
        maximum=facts.get("maximum"),
        above=facts.get("exclusiveMinimum"),
        below=facts.get("exclusiveMaximum"),
        excluded=facts.get("not"),
        enum=tuple(facts.get("enum", ())),
        items=tuple(facts.get("items", ())),
        folded=facts.get("folded", False),
        description=facts.get("about", ""),
        strict=strict,
        deprecated=facts.get("deprecated", False),
        replaced_by=facts.get("replaced_by"),
        removed=facts.get("removed"),
        since=facts.get("since"),
        effect=Effect(when=tuple(effect.get("when", ())), never=effect.get("never"), needs=effect.get("needs")),
        refuses=facts.get("refuses", {}),
        elements=facts.get("elements", False),
        auto=facts.get("auto", False),
    )


def check_value(key: Key, value: object) -> str | None:
    """None when a release takes the value as it is meant, else what it must be: "it must be a whole number above 0".

    Stricter than DeepSpeed where DeepSpeed silently turns one type into another ("2", "yes", 1 for true): a config that
    says what it means needs none of that. A float that is whole counts as a whole number (5e8 does in JSON).
    """
    if key.removed:
        return f"it must be left out: DeepSpeed {key.removed} removed it"
    if value == "auto" and (key.strict or key.auto):
        return None
    if key.types and not any(_is_type(value, name) for name in key.types):
        return f"it must be {_wanted(key)}"
    if key.enum and not _listed(key, value):
        return f"it must be {_wanted(key)}"
    if key.items and isinstance(value, list) and any(item not in key.items for item in value):
        return f"it must be a list of {', '.join(say(item) for item in key.items)}"
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not _in_range(key, value):
        return f"it must be {_wanted(key)}"
    return None


def _is_type(value: object, name: str) -> bool:
    if isinstance(value, bool) or name == "boolean":
        return isinstance(value, bool) and name == "boolean"
    if name == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if name == "number":
        return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    if name == "null":
        return value is None
    kinds: dict[str, Any] = {"string": str, "array": (list, tuple), "object": Mapping}
    return isinstance(value, kinds[name])


def _listed(key: Key, value: object) -> bool:
    if key.folded and isinstance(value, str):
        return value.upper() in {str(choice).upper() for choice in key.enum}
    return any(value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in key.enum)


def _in_range(key: Key, value: float) -> bool:
    return not (
        (key.minimum is not None and value < key.minimum)
        or (key.maximum is not None and value > key.maximum)
        or (key.above is not None and value <= key.above)
        or (key.below is not None and value >= key.below)
        or (key.excluded is not None and value == key.excluded)
    )


def _wanted(key: Key) -> str:
    if key.enum:
        return f"one of {', '.join(say(choice) for choice in key.enum)}"
    bounds = (
        ("of at least", key.minimum),
        ("above", key.above),
        ("of at most", key.maximum),
        ("below", key.below),
        ("other than", key.excluded),
    )
    limits = " and ".join(f"{word} {say(bound)}" for word, bound in bounds if bound is not None)
    bounded = {name: f" {limits}" if limits and name in ("integer", "number") else "" for name in key.types}
    return " or ".join(f"{_NAMES[name]}{limit}" for name, limit in bounded.items())


def too_large(value: object) -> str | None:
    """What a number must be that no count, size or rate reaches; None for any other value."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) > _LARGEST:
        return "it must be at most 1e100"
    return None


def lookup(config: Mapping[str, Any], path: str) -> tuple[bool, Any]:
    """Whether a dotted path is in a config, and its value (None when it is not)."""
    here: Any = config
    for part in path.split("."):
        if type(here) is not dict and not isinstance(here, Mapping):  # the first question is the cheap one
            return False, None
        if part not in here:
            return False, None
        here = here[part]
    return True, here


def condition_met(value: object, wanted: Any) -> bool:
    """Whether a value meets a condition of `Effect.when`; "auto" counts as met, for whoever fills it in decides."""
    if value == "auto":
        return True
    if isinstance(wanted, Mapping):
        return not any(_same(value, other) for other in wanted["not"])
    return any(_same(value, other) for other in wanted)


def condition_text(wanted: Any) -> str:
    """The same condition in words: "is 3", "is 1, 2 or 3", "is neither 0 nor 1", "is given"."""
    if wanted == {"not": [None]}:
        return "is given"
    words = [say(value) for value in (wanted["not"] if isinstance(wanted, Mapping) else wanted)]
    if isinstance(wanted, Mapping):
        return f"is neither {' nor '.join(words)}" if len(words) > 1 else f"is not {words[0]}"
    return f"is {words[0]}" if len(words) == 1 else f"is {', '.join(words[:-1])} or {words[-1]}"


def _same(value: object, wanted: object) -> bool:
    """Equality as DeepSpeed sees it after pydantic: "3" is 3, "yes" is true."""
    if isinstance(value, str) and not isinstance(wanted, str):
        text = value.strip().lower()
        if isinstance(wanted, bool):
            return text in (TRUE_TEXTS if wanted else FALSE_TEXTS)
        return wanted is not None and text == str(wanted)
    if wanted is None or value is None:
        return value is wanted
    return value == wanted
