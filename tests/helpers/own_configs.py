"""Configs of our own: those that dsgen renders (golden/), and small ones that show one cause each (tests/causes/)."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["BROKEN", "CAUSES", "GOLDEN", "cause", "strict", "texts"]

TESTS = Path(__file__).resolve().parents[1]
CAUSES = TESTS / "causes"
GOLDEN = TESTS.parent / "golden" / "configs"
BROKEN = {"brace-never-closed.json", "fence-behind-the-config.json"}  # of the causes; hjson stops at them


def cause(name: str) -> str:
    """The text of a file in tests/causes/."""
    return (CAUSES / name).read_text(encoding="utf-8")


def texts() -> dict[str, str]:
    """The text of every config by the name of its file."""
    files = sorted((*GOLDEN.glob("*.json"), *CAUSES.glob("*.json")))
    return {file.name: file.read_text(encoding="utf-8") for file in files}


def strict(text: str) -> bool:
    """Whether Python's json reads a text, as the Hugging Face Trainer does."""
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True
