"""Adopting configs in tests: the job around them, and whether what is rendered is the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dsgen
from dsgen.asking.adopting import Adoption, adopt
from dsgen.jobs import scenarios
from dsgen.jobs.scenarios import Scenario
from dsgen.linting.sources import Source

__all__ = ["adopted", "again", "said", "same_data"]


def said(hw: str = "b300-288g", model: str = "125m", **fields: Any) -> Scenario:
    """A job in which nearly everything fits: the smallest model, short sequences, the largest GPU."""
    return scenarios.of({"hw": hw, "model": model, "seq_len": 32, **fields}, "the test")


def adopted(source: Source, **fields: Any) -> Adoption:
    """What becomes of a config in such a job."""
    return adopt(said(**fields), source)


def again(made: Adoption, folder: Path) -> dict[str, Any]:
    """The config that the scenario renders to when it is read from its file, as `dsgen render` does."""
    path = folder / "scenario.yaml"
    made.write(str(path), force=True)
    return dsgen.render(dsgen.scenario(str(path))).to_dict()


def same_data(one: Any, other: Any) -> bool:
    """Equal as JSON data: 5e8 is 500000000, and true is not 1."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_data(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_data, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and one == other
