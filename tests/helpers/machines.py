"""Recorded answers of real machines (tests/detecting/answers, each with its sources), for the tests that ask them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from dsgen.detecting import DetectedNode, node

__all__ = ["FOLDER", "MACHINES", "answers", "file", "machine"]

FOLDER = Path(__file__).resolve().parents[1] / "detecting" / "answers"
MACHINES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def file(name: str) -> str:
    """The path of a machine's answers."""
    return str(FOLDER / f"{name}.json")


def answers(name: str, **changed: Any) -> dict[str, Any]:
    """A machine's answers, with some of them changed."""
    said: dict[str, Any] = json.loads(Path(file(name)).read_text("utf-8"))
    return copy.deepcopy({**said, **changed})


def machine(name: str, **changed: Any) -> DetectedNode:
    """The node that a machine's answers describe."""
    return node(answers(name, **changed))
