"""Two configs side by side: what differs, who decided it on each side, and what a missing key means."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import attrs

from dsgen.deepspeed import surface
from dsgen.deepspeed.surface import Surface
from dsgen.jobs.assembly import assemble
from dsgen.jobs.scenarios import is_scenario, layers, read
from dsgen.linting import config_reader
from dsgen.planning.assumptions import needed
from dsgen.planning.planner import plan
from dsgen.rendering import Config, render
from dsgen.shapes.arguments import names_arguments, path_of
from dsgen.shapes.layers import leaves, same

__all__ = ["Comparison", "Difference", "Side", "compare", "diff", "side"]

ABSENT = object()
_BY_TYPE = ("optimizer", "scheduler")  # sections whose `params` are the arguments of the class that `type` names
_STAGE, _OVERLAP = "zero_optimization.stage", "zero_optimization.overlap_comm"
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
        known: Whether DeepSpeed reads such a key, and so has a default of it.
    """

    path: str
    first: Any
    second: Any
    missing: str
    reasons: tuple[str, str]
    known: bool = True


@attrs.frozen
class Comparison:
    """Everything that differs between two sides.

    Attributes:
        first: One side.
        second: The other.
        differences: The keys whose values in force differ.
        written_out: The keys that one side leaves to DeepSpeed and the other writes with DeepSpeed's own default.
        programs: What the program of each side must do and that of the other need not, where both were rendered.
    """

    first: Side
    second: Side
    differences: tuple[Difference, ...]
    written_out: tuple[Difference, ...] = ()
    programs: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @property
    def differ(self) -> bool:
        """Whether they differ in a key, or in what their programs must do."""
        return bool(self.differences) or any(self.programs)


def side(path: str) -> Side:
    """A DeepSpeed config or a scenario file as a side.

    Raises:
        DsgenError: Unreadable, or a scenario that has no plan.
    """
    if not is_scenario(path):
        return Side(path, dict(leaves(config_reader.read(path, bare=True).document.config)), None)
    scenario = read(path)
    config = render(plan(assemble(layers(scenario), scenario.deepspeed)))
    return Side(path, dict(leaves(config.tree)), config)


@names_arguments()
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
        return side(path_of(config))
    return Side("<config>", dict(leaves(config)), config if isinstance(config, Config) else None)


def compare(first: Side, second: Side) -> Comparison:
    """The keys that differ, in the order of the first side and then of the second."""
    known = surface.load()
    first, second = _by_one_name(known, first), _by_one_name(known, second)
    differences: list[Difference] = []
    written_out: list[Difference] = []
    for path in dict.fromkeys([*first.values, *second.values]):
        left, right = first.values.get(path, ABSENT), second.values.get(path, ABSENT)
        if _alike(left, right):
            continue
        defaults = (_default(known, path, first), _default(known, path, second))
        missing = "first" if left is ABSENT else "second" if right is ABSENT else ""
        values = (defaults[0] if left is ABSENT else left, defaults[1] if right is ABSENT else right)
        difference = Difference(
            path=path,
            first=values[0],
            second=values[1],
            missing=missing,
            reasons=(_reason(first, path), _reason(second, path)),
            known=any(known.key(path, _typed(one)) is not None for one in (first, second)),
        )
        (written_out if missing and known.key(path) is not None and _alike(*values) else differences).append(difference)
    return Comparison(first, second, tuple(differences), tuple(written_out), _programs(first, second))


def _programs(first: Side, second: Side) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What no key says."""
    if first.config is None or second.config is None:
        return (), ()
    one, other = (tuple(item.words for item in needed(config.plan)) for config in (first.config, second.config))
    return tuple(words for words in one if words not in other), tuple(words for words in other if words not in one)


def _by_one_name(known: Surface, one: Side) -> Side:
    """A side with the names that DeepSpeed takes for a key read as the key, unless it says both."""
    names = {path: _named(known, path) for path in one.values}
    values = {path if names[path] in one.values else names[path]: value for path, value in one.values.items()}
    return attrs.evolve(one, values=values)


def _named(known: Surface, path: str) -> str:
    """The key that a name stands for: another name of it, or an old one that takes the same."""
    key = known.key(path)
    if key is not None and key.deprecated and key.replaced_by:
        new = known.key(key.replaced_by)
        return key.replaced_by if new is not None and new.types == key.types else path
    return known.aliases.get(path, path)


def _typed(one: Side) -> dict[str, Any]:
    """The classes that a side names, which decide the arguments that are read."""
    kinds = {section: one.values.get(f"{section}.type") for section in _BY_TYPE}
    return {section: {"type": kind} for section, kind in kinds.items() if kind is not None}


def _default(known: Surface, path: str, one: Side) -> Any:
    """What DeepSpeed does where a side does not write a key; None for an argument of a class that the side has not.

    Source: deepspeed/runtime/zero/config.py (0.19.8), overlap_comm_valid: its null becomes a switch by the stage.
    """
    section, params, _ = path.partition(".params.")
    if params and section in _BY_TYPE:
        kind = one.values.get(f"{section}.type")
        argument = known.key(path, {section: {"type": kind}}) if kind is not None else None
        return argument.default if argument else None
    stage = one.values.get(_STAGE, known.default(_STAGE))
    if path == _OVERLAP and known.default(path) is None and stage in (0, 1, 2, 3):
        return bool(stage == 3)
    return known.default(path)


def _alike(left: Any, right: Any) -> bool:
    """Whether two values are one to DeepSpeed, whose reader makes 1.0 the whole number 1."""
    return same(_whole(left), _whole(right))


def _whole(value: Any) -> Any:
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _reason(one: Side, path: str) -> str:
    if one.config is None or path not in one.values:
        return ""
    return one.config.why(path).reason
