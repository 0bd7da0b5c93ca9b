"""The environment variables that DeepSpeed, torch, NCCL, CUDA and accelerate read, and the options of `deepspeed`."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from dsgen.shapes.data import data_root

__all__ = ["OWNERS", "Option", "Variables", "launcher_options", "slip", "variables"]

OWNERS = {"deepspeed": "DeepSpeed", "torch": "torch", "nccl": "NCCL", "cuda": "CUDA", "accelerate": "Accelerate"}
_FARTHEST = 2  # letters by which a misspelt name differs from the one that was meant
_PER_LETTERS = 8  # letters of a name that one wrong letter may stand for; short names differ by little anyway


@attrs.frozen
class Variables:
    """What one of OWNERS reads.

    Attributes:
        owner: "deepspeed", "torch", "nccl", "cuda" or "accelerate".
        source: Where the names come from, with the release: "deepspeed 0.19.8".
        names: Every variable it reads.
        older: Variables that only older releases read -> the last of them that is known to.
    """

    owner: str
    source: str
    names: frozenset[str]
    older: Mapping[str, str] = attrs.field(factory=dict)

    def near(self, name: str) -> str | None:
        """The variable that a misspelt name plainly means; None where it is none or several."""
        return slip(name, self.names)


@attrs.frozen
class Option:
    """One option of the `deepspeed` command: whether a value follows it, and the values it takes (none: any)."""

    name: str
    value: bool
    choices: tuple[str, ...] = ()
    until: str | None = None


def slip(name: str, names: Iterable[str]) -> str | None:
    """The one name that another is a slip of: one letter in eight, two at most; None where none or several."""
    close: dict[int, list[str]] = {}
    for known in names:
        if abs(len(known) - len(name)) <= _FARTHEST:
            close.setdefault(_distance(name, known), []).append(known)
    best = min(close, default=_FARTHEST + 1)
    if best > min(_FARTHEST, max(1, len(name) // _PER_LETTERS)):
        return None
    return close[best][0] if len(close[best]) == 1 else None


@functools.cache
def variables(owner: str) -> Variables:
    """What one of OWNERS reads, from schema/environment.json."""
    part = _data()[owner]
    return Variables(owner, part["source"], frozenset(part["names"]), part.get("older", {}))


@functools.cache
def launcher_options() -> Mapping[str, Option]:
    """Every option of the `deepspeed` command by its name, those that only older releases have included (`until`)."""
    part = _data()["deepspeed"]
    return {
        name: Option(name, facts["value"], tuple(facts.get("choices", ())), facts.get("until"))
        for name, facts in {**part["older_options"], **part["options"]}.items()
    }


@functools.cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((data_root() / "schema" / "environment.json").read_text(encoding="utf-8"))
    return data


def _distance(one: str, other: str) -> int:
    """Letters to add, drop, change or swap with their neighbour to turn one text into the other."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]
