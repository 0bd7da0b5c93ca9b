"""The folder of public configs and guides, which are not part of the project: `nox -s corpus -- FOLDER`.

Without it these tests end in an error of usage; the default sessions do not collect them (norecursedirs).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

OPTION = "--corpus"
NEEDED = ("corpus/labels.json", "guides")


class Public(NamedTuple):
    """One public config: what DeepSpeed made of it (corpus/labels.json), where it lies, and its text."""

    label: dict[str, Any]
    path: Path
    text: str


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, type=Path, metavar="FOLDER", help="where corpus/ and guides/ lie")


def pytest_configure(config: pytest.Config) -> None:
    folder: Path | None = config.getoption(OPTION)
    if folder is None:
        raise pytest.UsageError(
            f"the tests in tests/corpus need the folder of public configs: pytest tests/corpus {OPTION} FOLDER"
        )
    missing = [name for name in NEEDED if not (folder / name).exists()]
    if missing:
        raise pytest.UsageError(f"{folder} has no {', '.join(missing)}; the tests in tests/corpus read them")


@pytest.fixture(scope="session")
def folder(pytestconfig: pytest.Config) -> Path:
    """The folder that was named."""
    found: Path = pytestconfig.getoption(OPTION)
    return found


@pytest.fixture(scope="session")
def publics(folder: Path) -> list[Public]:
    """Every public config."""
    labels = json.loads((folder / "corpus" / "labels.json").read_text(encoding="utf-8"))
    paths = [folder / "corpus" / label["file"] for label in labels]
    return [Public(label, path, path.read_text("utf-8")) for label, path in zip(labels, paths, strict=True)]
