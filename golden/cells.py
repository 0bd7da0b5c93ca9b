"""The configs of the matrix: every distinct one, whole, in a file that keeps what they share once.

A config is a form (its JSON text with `#` for every number) and the numbers. The name of a config is its hash in
matrix.csv, so reading one proves that it is the very text that dsgen renders.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from golden import matrix
from golden.scenes import FOLDER

__all__ = ["FILE_NAME", "Cell", "cells", "configs", "text"]

FILE_NAME = "matrix_configs.json"
_TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")|(-?\d[\d.eE+-]*)')
_HOLE = re.compile(r'("(?:[^"\\]|\\.)*")|#')


@attrs.frozen
class Cell:
    """A row of the matrix that has a config."""

    hardware: str
    model: str
    cluster: str
    sha: str

    @property
    def name(self) -> str:
        """As a person would say it."""
        return f"{self.hardware}, {self.model}, {self.cluster}"


def cells() -> Iterator[Cell]:
    """Every row that has a config, in the matrix's order."""
    with (FOLDER / matrix.FILE_NAME).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["strategy"] != "none":
                yield Cell(row["hardware"], row["model"], row["cluster"], row["config_sha256"])


def configs() -> dict[str, dict[str, Any]]:
    """Every distinct config by its hash.

    Raises:
        ValueError: A text has another hash than its name.
    """
    kept = json.loads((FOLDER / FILE_NAME).read_text("utf-8"))
    made = {}
    for sha, (form, numbers) in kept["configs"].items():
        whole = _filled(kept["forms"][form], numbers.split())
        if matrix.digest(whole) != sha:
            raise ValueError(f"golden/{FILE_NAME}: {sha} is not the hash of its config. Run: nox -s golden -- update")
        made[sha] = json.loads(whole)
    return made


def text(rendered: Mapping[str, str]) -> str:
    """The file for rendered configs: hash -> text."""
    forms: dict[str, int] = {}
    lines = []
    for sha, whole in sorted(rendered.items()):
        form = _TOKEN.sub(lambda one: one[1] or "#", whole)
        numbers = [number for _, number in _TOKEN.findall(whole) if number]
        lines.append(f'"{sha}": {json.dumps([forms.setdefault(form, len(forms)), " ".join(numbers)])}')
    known = ",\n".join(json.dumps(form) for form in forms)
    return f'{{"forms": [\n{known}\n],\n"configs": {{\n' + ",\n".join(lines) + "\n}}\n"


def _filled(form: str, numbers: list[str]) -> str:
    left = iter(numbers)
    return _HOLE.sub(lambda one: one[1] or next(left), form)
