"""Profiles and overrides that compose with `|` in Python, as files and options do on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from dsgen.shapes.errors import mistake
from dsgen.shapes.layers import DEEPEST, Layer, Origin, Override, Rank, leaves
from dsgen.shapes.value import Value

__all__ = ["PYTHON", "Layers", "layers_of", "overrides", "plain_data"]

PYTHON = "python"  # the source of what was said in a call


@attrs.frozen(repr=False, eq=False)
class Layers(Value):
    """Named sets of overrides, joined with `|`. The order does not decide who wins; the rank of each does.

    `Layers()` is the identity, `|` is associative, and joining a layer twice is joining it once.

    Attributes:
        layers: The sets, in the order of joining.
        deepspeed: The release that a scenario is for; None where none says it.
    """

    layers: tuple[Layer, ...] = ()
    deepspeed: str | None = None

    def __or__(self, other: Layers | Mapping[str, Any]) -> Layers:
        beside = layers_of(other)
        if self.deepspeed and beside.deepspeed and self.deepspeed != beside.deepspeed:
            raise mistake(
                f"one side is for DeepSpeed {self.deepspeed}, the other for {beside.deepspeed}",
                must="a job is for one release",
                code="contradiction",
            )
        joined = list(self.layers)
        for layer in beside.layers:
            if layer not in joined:
                joined.append(layer)
        return Layers(tuple(joined), self.deepspeed or beside.deepspeed)

    def __ror__(self, other: Mapping[str, Any]) -> Layers:
        return layers_of(other) | self


def layers_of(other: Layers | Mapping[str, Any]) -> Layers:
    """What can be joined with `|`: layers as they are, a dict as overrides of the highest rank.

    Raises:
        DsgenError: Something else, or a dict of what is no plain value.
    """
    if isinstance(other, Layers):
        return other
    if isinstance(other, Mapping):
        return overrides(other, Rank.USER, PYTHON)
    raise mistake(
        f"{other!r} cannot be joined with |",
        must="it must be a profile or a dict of overrides",
        todo='Write dsgen.profile("a100-40g"), not its name.',
    )


def overrides(values: Mapping[str, Any], rank: Rank, source: str) -> Layers:
    """A dict, nested or with dotted paths, as one layer.

    Raises:
        DsgenError: No dict, a key that is no name, or a value that is not plain.
    """
    if not isinstance(values, Mapping):
        raise mistake(f"{values!r} is no dict", must="overrides are a dict", where=source)
    origin = Origin(source)
    written = tuple(Override(path, value, origin, rank) for path, value in leaves(plain_data(values, source)))
    return Layers((Layer(source, rank, written),) if written else ())


def plain_data(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """A dict of plain JSON types, not deeper than any config; a tuple is a list.

    Raises:
        DsgenError: A key that is no name, or a value that is not plain.
    """
    copied: dict[str, Any] = _plain("the dict", values, source, 0)
    return copied


def _plain(path: str, value: Any, source: str, depth: int) -> Any:
    if depth > DEEPEST:
        raise mistake(
            f"the dict nests deeper than {DEEPEST} levels", where=source, must="a config is a few levels deep"
        )
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(path, item, source, depth + 1) for item in value]
    if isinstance(value, Mapping):
        inner = path if depth else ""
        return {
            _name(key, path, source): _plain(f"{inner}.{key}".lstrip("."), item, source, depth + 1)
            for key, item in value.items()
        }
    raise mistake(
        f"{path} is a {type(value).__name__}",
        where=source,
        must="it must be a plain value: text, number, true, false, list",
    )


def _name(key: Any, path: str, source: str) -> str:
    if type(key) is not str or not key or key.strip(".") != key:
        raise mistake(f"the key {key!r} in {path} is not a name", must="a key must be text", where=source)
    return key
