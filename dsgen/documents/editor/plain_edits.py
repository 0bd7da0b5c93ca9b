"""Edits on a plain config: where a path leads, and what an edit makes of the config."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import attrs

from dsgen.shapes.findings import Assign, Edit, Erase, Remove

__all__ = [
    "Spot",
    "Steps",
    "apply_to_config",
    "assigned",
    "dotted_path",
    "emptied_section",
    "find",
    "is_duplicate",
    "is_rename",
    "removed",
    "renamed",
    "same_json",
    "spot",
    "target",
    "value_at",
    "value_steps",
    "with_value",
]

Steps = tuple[str | int, ...]
"""The keys and the numbers of list items that lead from the top of a config to a value."""

_ITEM = re.compile(r"\[(\d{1,9})\]")


@attrs.frozen
class Spot:
    """Where something new goes: the steps to the map or list that is there, and the keys from it; none for an item."""

    steps: Steps
    names: tuple[str, ...]


def apply_to_config(config: Mapping[str, Any], edits: Iterable[Edit], kept: Collection[str] = ()) -> dict[str, Any]:
    """What edits make of a config.

    Args:
        config: Stays as it is.
        edits: Done in order. What is new comes last in its section; a new name stays in its place.
        kept: Sections that stay although a move empties them, because a comment is written in them.

    Raises:
        ValueError: An edit cannot be done: its path is not there or means two keys, something else than a section is
            in its way, or another value already stands where it moves to.
    """
    done: Any = config
    for edit in edits:
        done = _edited(done, edit, kept)
    return dict(done)


def _edited(config: Any, edit: Edit, kept: Collection[str]) -> Any:
    if isinstance(edit, Erase):
        return config
    if isinstance(edit, Assign):
        steps = find(config, edit.path)
        if steps is not None:
            return assigned(config, steps, edit.value)
        return with_value(config, spot(config, edit.path), edit.value)
    steps = value_steps(config, edit.path)
    if isinstance(edit, Remove):
        return removed(config, steps)
    if edit.to == edit.path:
        return config
    if is_duplicate(config, steps, edit.to):
        return removed(config, emptied_section(config, steps, kept))
    new = target(config, steps, edit.to)
    if is_rename(steps, new):
        return renamed(config, steps, new.names[0])
    config = with_value(config, new, value_at(config, steps))
    return removed(config, emptied_section(config, steps, kept))


def find(config: Any, path: str) -> Steps | None:
    """The steps to what a path names; None where nothing is.

    Raises:
        ValueError: The path means two keys (`a.b` in {"a.b": 1, "a": {"b": 2}}) or the config as a whole.
    """
    if not path:
        raise ValueError("the config as a whole is no key")
    ways = [steps for steps, rest in _ways(config, path) if not rest]
    if len(ways) > 1:
        raise ValueError(f"{path} means two keys")
    return ways[0] if ways else None


def value_steps(config: Any, path: str) -> Steps:
    """The steps to what a path names.

    Raises:
        ValueError: Nothing is there, or the path means two keys.
    """
    steps = find(config, path)
    if steps is None:
        raise ValueError(f"{path} is not there")
    return steps


def spot(config: Any, path: str) -> Spot:
    """Where a path that is not there is to be added: in the deepest section around it that is there.

    Raises:
        ValueError: No section can hold it.
    """
    ways = list(_ways(config, path))
    shortest = min(len(rest) for _, rest in ways)
    steps, rest = next(way for way in ways if len(way[1]) == shortest)
    around = value_at(config, steps)
    if isinstance(around, list) and rest == f"[{len(around)}]":
        return Spot(steps, ())
    names = tuple(rest.removeprefix(".").split(".") if steps else rest.split("."))
    if not isinstance(around, Mapping) or (steps and rest[0] != ".") or any("[" in name for name in names):
        raise ValueError(f"{path} cannot be added: {path[: len(path) - len(rest)]} cannot hold it")
    return Spot(steps, names)


def is_duplicate(config: Any, steps: Steps, to: str) -> bool:
    """Whether the same value already stands where something is to go.

    Raises:
        ValueError: Another value stands there.
    """
    there = find(config, to)
    if there is None:
        return False
    if there == steps[: len(there)] or not same_json(value_at(config, there), value_at(config, steps)):
        raise ValueError(f"{to} is there already")
    return True


def target(config: Any, steps: Steps, to: str) -> Spot:
    """Where something that stands elsewhere now is to go.

    Raises:
        ValueError: No section can hold it, or only it itself could.
    """
    new = spot(config, to)
    if not new.names or new.steps[: len(steps)] == steps:
        raise ValueError(f"nothing can move to {to}")
    return new


def is_rename(steps: Steps, new: Spot) -> bool:
    """Whether a move to a spot stays in its section and changes the last key alone."""
    return isinstance(steps[-1], str) and new.steps == steps[:-1] and len(new.names) == 1


def _ways(config: Any, path: str) -> Iterator[tuple[Steps, str]]:
    """Every reading of a path as far as the config goes along: the steps, and what of the path is left."""
    open_ways: list[tuple[Any, Steps, str]] = [(config, (), path)]
    while open_ways:
        value, steps, rest = open_ways.pop()
        yield steps, rest
        if rest:
            open_ways.extend((value[step], (*steps, step), left) for step, left in _openings(value, steps, rest))


def _openings(value: Any, steps: Steps, rest: str) -> Iterator[tuple[str | int, str]]:
    if isinstance(value, Mapping):
        if steps and not rest.startswith("."):
            return
        rest = rest[1:] if steps else rest
        for key in value:
            if isinstance(key, str) and rest.startswith(key) and rest[len(key) : len(key) + 1] in ("", ".", "["):
                yield key, rest[len(key) :]
    elif isinstance(value, list):
        item = _ITEM.match(rest)
        if item and int(item[1]) < len(value):
            yield int(item[1]), rest[item.end() :]


def value_at(config: Any, steps: Steps) -> Any:
    """The value that steps lead to."""
    for step in steps:
        config = config[step]
    return config


def assigned(config: Any, steps: Steps, value: Any) -> Any:
    """The config with another value in a place that is there."""
    return _changed(config, steps, lambda _: value)


def with_value(config: Any, new: Spot, value: Any) -> Any:
    """The config with a value at a spot, last in its section or list."""
    if not new.names:
        return _changed(config, new.steps, lambda items: [*items, value])
    entry = {new.names[0]: _nested(new.names[1:], value)}
    return _changed(config, new.steps, lambda section: {**section, **entry})


def _nested(names: tuple[str, ...], value: Any) -> Any:
    """A value inside the sections of these names."""
    for name in reversed(names):
        value = {name: value}
    return value


def removed(config: Any, steps: Steps) -> Any:
    """The config without one key or item."""
    last = steps[-1]
    if isinstance(last, int):
        return _changed(config, steps[:-1], lambda items: [*items[:last], *items[last + 1 :]])
    return _changed(config, steps[:-1], lambda section: {key: section[key] for key in section if key != last})


def renamed(config: Any, steps: Steps, name: str) -> Any:
    """The config with another name for one key, in its place."""
    last = steps[-1]
    return _changed(
        config, steps[:-1], lambda section: {name if key == last else key: value for key, value in section.items()}
    )


def emptied_section(config: Any, steps: Steps, kept: Collection[str] = ()) -> Steps:
    """What goes when a key moves away: the key, or the outermost section around it that holds nothing else.

    Args:
        config: The config before.
        steps: To the key.
        kept: Paths of sections that stay.
    """
    while len(steps) > 1 and isinstance(steps[-2], str) and isinstance(steps[-1], str):
        if len(value_at(config, steps[:-1])) > 1 or dotted_path(steps[:-1]) in kept:
            break
        steps = steps[:-1]
    return steps


def dotted_path(steps: Steps) -> str:
    """Steps as a dotted path: `list[0].key`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def _changed(config: Any, steps: Steps, change: Callable[[Any], Any]) -> Any:
    around = [config]
    for step in steps:
        around.append(around[-1][step])
    new = change(around.pop())
    for holder, step in zip(reversed(around), reversed(steps), strict=True):
        copy: Any = dict(holder) if isinstance(holder, Mapping) else list(holder)
        copy[step] = new
        new = copy
    return new


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON, keys in the same order; 5e8 is 500000000, 1 is not true, NaN is NaN."""
    pairs = [(one, other)]
    while pairs:
        left, right = pairs.pop()
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            if list(left) != list(right):
                return False
            pairs.extend((left[key], right[key]) for key in left)
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return False
            pairs.extend(zip(left, right, strict=True))
        elif not _is_same_scalar(left, right):
            return False
    return True


def _is_same_scalar(one: Any, other: Any) -> bool:
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    both_nan = one != one and other != other
    return bool(one == other) or both_nan
