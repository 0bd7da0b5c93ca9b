"""What the tests share: jobs of built-in profiles, a user who may not read everything, three rules for the linter."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lint_samples
import pytest
from command_line import MAIN, run
from hypothesis import settings
from three_rules import KINDS, rule
from warm import Warm

import dsgen
from dsgen.linting import linter, rules
from dsgen.proving import sessions

TESTS = Path(__file__).parent
# Rooms and modules whose answers can differ between Pythons: readers of text, numbers as text, sums of floats, the
# public face, what is golden, packaging, the system's words in errors. `nox` runs these on every Python, others on one.
ACROSS_PYTHONS = (
    "catalog",
    "cli/test_bad_files.py",
    "cli/test_bad_input.py",
    "cli/test_cli.py",
    "cost",
    "documents",
    "house/test_api.py",
    "house/test_golden.py",
    "house/test_loaded.py",
    "house/test_packaging.py",
    "jobs",
    "linting/test_lint_settings.py",
    "linting/test_sources.py",
    "memory/test_memory.py",
    "shapes",
)


# Files whose proofs take longest, by minutes; they begin first, so that two processes end at about the same time.
LONGEST = ("proving/test_every_cell.py", "proving/test_golden_proof.py", "proving/test_trained_alike.py",
           "proving/test_golden_trained.py")  # fmt: skip


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what has no test of a marker that is asked for: to import and collect it all takes most of a minute."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    asked = config.option.markexpr.split(" and ")  # a part with "or" or "not" is no marker's name
    lacks = "pythons" in asked and not is_listed(collection_path, ACROSS_PYTHONS)
    if not lacks and (named := [one for one in asked if one in ("proof", "launch")]):
        text = collection_path.read_text("utf-8")
        lacks = any(f"pytest.mark.{one}" not in text for one in named)
    return True if lacks else None


def is_listed(path: Path, places: tuple[str, ...]) -> bool:
    """Whether a file of tests is one of some files or lies in one of some folders."""
    place = path.relative_to(TESTS).as_posix()
    return any(place == one or place.startswith(f"{one}/") for one in places)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what can differ between Pythons; the longest files first."""
    rank = {place: number for number, place in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.relative_to(TESTS).as_posix(), len(LONGEST)))
    for item in items:
        if is_listed(item.path, ACROSS_PYTHONS):
            item.add_marker(pytest.mark.pythons)


# Examples are the same in CI every time, and no slow machine fails a test; at a desk hypothesis searches on.
settings.register_profile("dsgen", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("dsgen")


@pytest.fixture
def make_job() -> Callable[..., dsgen.Job]:
    """A Job from a hardware, a model and overrides."""

    def make(hardware: str = "a100-80g", model: str = "llama-2-7b", **overrides: Any) -> dsgen.Job:
        layers = dsgen.profile(hardware) | dsgen.profile(model)
        for name in overrides.pop("profiles", ()):
            layers = layers | dsgen.profile(name)
        return dsgen.job(layers | overrides)

    return make


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty folder as the working directory, and a terminal 100 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(name="run")
def command_line(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line; gives the exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        return lint_samples.dsgen(capsys, *arguments)

    return call


@pytest.fixture(scope="module")
def warm() -> Iterator[None]:
    """One engine of each kind for all tests of a file: to import torch and DeepSpeed takes longer than most of them."""
    engines = Warm()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "start", engines.start)
        yield
    engines.close()


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A folder of root, seen by a user who may not read everything."""
    run("render", *MAIN, "--set", "training.lr=1")  # what is loaded late may be unreadable later
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        shutil.rmtree(folder)


@pytest.fixture
def secret(nobody: Path) -> Path:
    """A file that its reader may not read."""
    if os.geteuid() == 65534:
        os.seteuid(0)
    file = nobody / "x.yaml"
    file.write_text("training: {seq_len: 8}\n")
    file.chmod(0)
    if os.getuid() == 0:
        os.seteuid(65534)
    return file


@pytest.fixture
def three_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The linter with three rules instead of its own."""
    three = tuple(rule(name) for name in KINDS)
    monkeypatch.setattr(rules, "RULES", three)
    monkeypatch.setattr(linter, "RULES", three)
