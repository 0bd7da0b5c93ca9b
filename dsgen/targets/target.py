"""The shape of a program that loads a config: what it fills in, adds, sets and refuses before DeepSpeed sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from dsgen.deepspeed.keys import lookup
from dsgen.shapes.layers import leaves

__all__ = ["AUTO", "OPEN", "Target"]

AUTO = "auto"


class _Open:
    """The value of a key that the program fills in later: nothing can be said of it now."""

    def __repr__(self) -> str:
        return "OPEN"

    def __bool__(self) -> bool:
        return False


OPEN = _Open()


@attrs.frozen(kw_only=True)
class Target:
    """A program that hands a config to DeepSpeed.

    Attributes:
        name: As `--target` takes it.
        title: What a person calls it: "the Hugging Face Trainer".
        strict_json: Whether it reads the file with Python's json, which knows no comments.
        brings_optimizer: Whether it makes an optimizer itself when the config names none.
        brings_batch: Whether it gives the batch size when the config has none at all.
        brings: Keys and sections whose value comes from the program when the config has none of them.
        filled: Keys whose "auto" it replaces by what its own arguments say.
        settled: Keys whose "auto" it replaces by a value that is known now, unless its launcher was told otherwise.
        shared: Keys whose "auto" it replaces only when a second program (the Trainer in Accelerate) helps.
        overwritten: Keys that it sets whatever the config says -> what it sets.
        matched: Keys whose value it compares with an argument of its own -> that argument; it refuses a difference.
        refused: Keys that it does not take -> the argument that says the same.
        needed: Sections without which it refuses the config.
        takes_every_auto: Whether it hands an "auto" that it does not replace on to DeepSpeed, or refuses it.
    """

    name: str
    title: str
    strict_json: bool = False
    brings_optimizer: bool = False
    brings_batch: bool = False
    brings: frozenset[str] = frozenset()
    filled: frozenset[str] = frozenset()
    settled: Mapping[str, Any] = attrs.field(factory=dict)
    shared: frozenset[str] = frozenset()
    overwritten: Mapping[str, Any] = attrs.field(factory=dict)
    matched: Mapping[str, str] = attrs.field(factory=dict)
    refused: Mapping[str, str] = attrs.field(factory=dict)
    needed: tuple[str, ...] = ()
    takes_every_auto: bool = True

    def as_taken(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """A config as the program takes it: without what it overwrites anyhow, with the sections that it asks for."""
        kept = {key: value for key, value in tree.items() if key not in self.overwritten}
        return {**kept, **{name: {"stage": 0} for name in self.needed if name not in tree}}

    def fills(self, path: str) -> bool:
        """Whether "auto" at a dotted key is replaced before DeepSpeed sees it, or may be."""
        return any(path in keys for keys in (self.filled, self.settled, self.shared, self.overwritten))

    def instead_of_auto(self, path: str, told: Mapping[str, Any]) -> Any:
        """What DeepSpeed sees where "auto" is written at a dotted key.

        What the program is told, or a value of its own; OPEN where it decides later, AUTO where it leaves the word.

        Args:
            path: The dotted key.
            told: Key -> what the program's arguments fill in there.
        """
        if path in self.overwritten:
            return self.overwritten[path]
        return told.get(path, self.settled.get(path, OPEN)) if self.fills(path) else AUTO

    def filled_in(self, config: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
        """Every dotted key whose "auto" does not reach DeepSpeed -> the value in its place, or OPEN."""
        autos = (path for path, value in leaves(config) if value == AUTO and self.fills(path))
        return {path: self.instead_of_auto(path, told) for path in autos if lookup(config, path)[0]}  # dots in a name
