"""Two configs side by side: what differs, who decided it on each side, and what a missing key means."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import attrs

from dsgen.deepspeed import surface
from dsgen.documents import config_files
from dsgen.jobs.assembly import assemble
from dsgen.jobs.scenarios import is_scenario, layers, read
from dsgen.planning.planner import plan
from dsgen.rendering import Config, render
from dsgen.shapes.arguments import named
from dsgen.shapes.layers import leaves

__all__ = ["Comparison", "Difference", "Side", "compare", "diff", "side"]

ABSENT = object()
Source = Mapping[str, Any] | str | os.PathLike[str]


@attrs.frozen
class Side:
    """One of the two: a name, its keys, and the rendered config behind them when it is a scenario."""

    name: str
    values: Mapping[str, Any]
    config: Config | None


@attrs.frozen
class Difference:
    """One key that differs.

    Attributes:
        path: Dotted DeepSpeed path.
        first: Value on the first side; DeepSpeed's default where the key is missing.
        second: Value on the second side, likewise.
        missing: Which side does not write the key: "first", "second", or "".
        reasons: Why each side has its value, where it is known.
    """

    path: str
    first: Any
    second: Any
    missing: str
    reasons: tuple[str, str]


@attrs.frozen
class Comparison:
    """Everything that differs between two sides."""

    first: Side
    second: Side
    differences: tuple[Difference, ...]


def side(path: str) -> Side:
    """A DeepSpeed config or a scenario file as a side.

    Raises:
        DsgenError: Unreadable, or a scenario that has no plan.
    """
    if not is_scenario(path):
        return Side(path, dict(leaves(config_files.read(path))), None)
    scenario = read(path)
    config = render(plan(assemble(layers(scenario), scenario.deepspeed)))
    return Side(path, dict(leaves(config.tree)), config)


@named()
def diff(first: Source, second: Source) -> Comparison:
    """Two configs key by key: `.differences`, each with the reasons of a side that was rendered.

    Args:
        first, second: A rendered Config, a dict of DeepSpeed's keys, or the file of a config or a scenario.

    Raises:
        DsgenError: Unreadable, or a scenario that has no plan.
    """
    return compare(_given(first), _given(second))


def _given(config: Source) -> Side:
    if not isinstance(config, Mapping):
        return side(os.fspath(config))
    return Side("<config>", dict(leaves(config)), config if isinstance(config, Config) else None)


def compare(first: Side, second: Side) -> Comparison:
    """The keys that differ, in the order of the first side and then of the second."""
    known = surface.load()
    found = []
    for path in dict.fromkeys([*first.values, *second.values]):
        left, right = first.values.get(path, ABSENT), second.values.get(path, ABSENT)
        if type(left) is type(right) and left == right:
            continue
        default = known.default(path)
        missing = "first" if left is ABSENT else "second" if right is ABSENT else ""
        found.append(
            Difference(
                path=path,
                first=default if left is ABSENT else left,
                second=default if right is ABSENT else right,
                missing=missing,
                reasons=(_reason(first, path), _reason(second, path)),
            )
        )
    return Comparison(first, second, tuple(found))


def _reason(one: Side, path: str) -> str:
    if one.config is None or path not in one.values:
        return ""
    return one.config.why(path).reason
