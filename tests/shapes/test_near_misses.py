"""The one sentence that asks what someone may have meant."""

from __future__ import annotations

from pathlib import Path

import pytest

import dsgen
from dsgen.shapes.near_misses import offer

PACKAGE = Path(dsgen.__file__).parent


@pytest.mark.parametrize(
    ("names", "otherwise", "said"),
    [
        (("stage",), None, "did you mean stage?"),
        (("a", "b"), "Look there.", "did you mean a or b?"),
        ((), "Look there.", "Look there."),
        ((), None, None),
    ],
)
def test_names_are_offered_in_one_sentence(names: tuple[str, ...], otherwise: str | None, said: str | None) -> None:
    assert offer(iter(names), otherwise) == said


def test_nothing_else_asks() -> None:
    askers = [path for path in PACKAGE.rglob("*.py") if "id you mean" in path.read_text("utf-8")]

    assert [path.name for path in askers] == ["near_misses.py"]
