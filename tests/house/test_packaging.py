"""What is packed: the exact files of wheel and sdist, and that an installed dsgen works anywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from dsgen.catalog.profile_index import index_text
from dsgen.engine.simulate.versions import TESTED, TESTED_PEFT
from dsgen.shapes.data import data_root

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = (REPOSITORY / "pyproject.toml").read_text("utf-8")
VERSION = re.findall(r'^version = "(.+)"$', PROJECT, re.MULTILINE)[0]
DIST_INFO = f"dsgen-{VERSION}.dist-info"

# Folder of the tree -> its place in the wheel.
PACKED = {
    "dsgen": "dsgen",
    "profiles": "dsgen/_data/profiles",
    "schema/deepspeed": "dsgen/_data/schema/deepspeed",
    "schema/profile": "dsgen/_data/schema/profile",
}
PACKED_FILES = {f"schema/{name}": f"dsgen/_data/schema/{name}" for name in ("environment.json", "proof.schema.json")}
METADATA = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
SDIST_FOLDERS = ("dsgen", "profiles", "schema", "golden", "tests", "docs", "benchmarks", "examples")
SDIST_FILES = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"),
    *("noxfile.py", "pyproject.toml", "PKG-INFO", ".gitignore"),
)
LEFT_BY_TOOLS = {"__pycache__", ".hypothesis"}

BUILD = "import sys, hatchling.build as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"


def files(folder: str) -> list[str]:
    """Files of a folder of the tree, relative to it."""
    root = REPOSITORY / folder
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return [path.as_posix() for path in found if not LEFT_BY_TOOLS & set(path.parts)]


def build(kind: str, source: Path, target: Path) -> Path:
    """Let hatchling build one thing from a source tree; gives the file."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{kind}", str(target)],
        cwd=source,
        check=True,
        capture_output=True,
        text=True,
    )
    return target / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", REPOSITORY, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", REPOSITORY, tmp_path_factory.mktemp("sdist"))


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


def test_the_compiled_index_is_that_of_the_profiles() -> None:
    assert (data_root() / "profiles" / "index.json").read_text("utf-8") == index_text()


def test_the_wheel_holds_exactly_the_package_and_its_data(wheel: Path) -> None:
    expected = [f"{place}/{name}" for folder, place in PACKED.items() for name in files(folder)]
    expected += [*PACKED_FILES.values(), *(f"{DIST_INFO}/{name}" for name in METADATA)]

    assert "dsgen/py.typed" in expected
    assert names(wheel) == sorted(expected)


def test_the_sdist_holds_exactly_the_tree_that_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        packed = sorted(member.name for member in archive.getmembers() if member.isfile())
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    expected = [f"{folder}/{name}" for folder in SDIST_FOLDERS for name in files(folder)] + list(SDIST_FILES)

    assert packed == sorted(f"dsgen-{VERSION}/{name}" for name in expected)
    assert names(build("wheel", tmp_path / f"dsgen-{VERSION}", tmp_path)) == names(wheel)


def environment(folder: Path, package: Path) -> Path:
    """A fresh environment that holds one wheel, and of the running one only the dependencies; gives its bin/."""
    there = find_spec("pip") is not None  # to install another pip takes longer than all else here
    venv.create(folder, with_pip=not there)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python] if there else [python, "-m", "pip"]
    run([*pip, "install", "--quiet", "--no-index", "--no-deps", "--no-compile", package], folder)
    site = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip())
    # A path file comes after the environment's own packages, so the dsgen under test is the one just installed.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "bin"


def run(command: Iterable[object], folder: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DSGEN"))}
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=folder, env=clean, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installed_wheel_renders_from_any_folder(wheel: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path / "env", wheel)
    where = "import dsgen.shapes.data; print(dsgen.shapes.data.data_root())"

    assert run([programs / "dsgen", "--version"], tmp_path) == f"dsgen {VERSION}\n"
    assert run([programs / "dsgen", "render", "--hw", "a100-40g", "--model", "7b"], tmp_path).startswith("{\n")
    assert run([programs / "python", "-c", where], tmp_path).startswith(str(tmp_path.resolve()))


def test_an_installed_wheel_brings_the_tests_of_a_training_repository(wheel: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path / "env", wheel)
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "x.scenario.yaml").write_text("hw: a100-40g\nmodel: 7b\n", encoding="utf-8")

    said = run([programs / "python", "-m", "pytest", "--dsgen-update", "-q"], folder)

    assert "3 passed" in said
    assert (folder / "x.json").is_file()


def test_an_editable_install_reads_the_checkout(tmp_path: Path) -> None:
    package = build("editable", REPOSITORY, tmp_path)

    programs = environment(tmp_path / "env", package)

    where = run([programs / "python", "-c", "import dsgen.shapes.data; print(dsgen.shapes.data.data_root())"], tmp_path)
    assert Path(where.strip()) == REPOSITORY


def test_the_extra_simulate_is_a_set_that_the_simulation_was_tested_with():
    """A newer transformers would end every `dsgen simulate` of a fresh environment with a refusal."""
    pins = dict(
        re.findall(r'"(\w+)==([\d.]+)"', next(line for line in PROJECT.splitlines() if line[:9] == "simulate "))
    )

    assert (pins["deepspeed"], pins["torch"], pins["transformers"]) in TESTED
    assert pins["peft"] in TESTED_PEFT
