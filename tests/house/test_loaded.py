"""What a start loads: nothing heavy, and for a render nothing that answers other questions."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = ("torch", "deepspeed", "transformers", "ruamel", "rich", "jsonschema", "yaml", "numpy")

# What answers other questions than a render's; it cost time at every start until it was imported where it is used.
NOT_FOR_A_RENDER = (
    *("dsgen.linting", "dsgen.asking", "dsgen.simulating", "dsgen.proving", "dsgen.effective", "dsgen.engine"),
    *("dsgen.targets", "dsgen.documents", "dsgen.shapes.findings", "dsgen.report.reference", "dsgen.memory.replaying"),
    *("asyncio", "concurrent", "email", "http", "logging", "multiprocessing", "shutil", "socket", "sqlite3"),
    *("subprocess", "tempfile", "xml"),
)
# The same for a plan's table.
NOT_FOR_A_PLAN = (
    *("dsgen.linting", "dsgen.simulating", "dsgen.proving", "dsgen.effective", "dsgen.engine", "dsgen.rendering"),
    *("dsgen.targets", "dsgen.documents", "dsgen.shapes.findings", "dsgen.report.reference", "dsgen.report.summary"),
    *("dsgen.memory.later", "dsgen.memory.replaying", "asyncio", "concurrent", "difflib", "http", "logging", "shutil"),
    *("socket", "subprocess"),
)


@pytest.mark.parametrize(
    "program",
    [
        "import dsgen",
        "import dsgen; dsgen.render(dsgen.profile('a100-40g') | dsgen.profile('7b'))",
        "from dsgen.cli import cli; cli(['render', '--hw', 'a100-40g', '--model', '7b'], standalone_mode=False)",
        "from dsgen.cli import cli; cli(['--help'], standalone_mode=False)",
    ],
)
def test_the_short_way_loads_nothing_heavy(program: str) -> None:
    ending = "; import sys; sys.stderr.write(' '.join(['loaded:', *sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program + ending], capture_output=True, text=True, check=True)

    loaded = {name.split(".")[0] for name in done.stderr.rpartition("loaded: ")[2].split()}

    assert "dsgen" in loaded
    assert loaded & set(HEAVY) == set()


def loaded_by(words: list[str]) -> set[str]:
    """The modules that a command imports, without those of the libraries that dsgen uses everywhere."""
    libraries = "import sys, attrs, cattrs, click; known = set(sys.modules)"  # and what those need on each Python
    program = f"{libraries}; from dsgen.cli import cli; cli({words!r}, standalone_mode=False)"
    ending = "; sys.stderr.write(' '.join(['loaded:', *(set(sys.modules) - known)]))"
    plain = {name: value for name, value in os.environ.items() if name != "COLUMNS"}  # shutil reads it
    command = [sys.executable, "-c", program + ending]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=plain)
    return set(done.stderr.rpartition("loaded: ")[2].split())


def test_a_render_imports_nothing_that_it_does_not_need() -> None:
    loaded = loaded_by(["render", "--hw", "a100-40g", "--model", "7b"])

    assert {"dsgen.rendering.configs", "dsgen.families.llama"} <= loaded
    assert sorted(name for name in loaded if name.startswith(NOT_FOR_A_RENDER)) == []
    assert {name for name in loaded if name.startswith("dsgen.families.")} & {
        f"dsgen.families.{name}" for name in ("bloom", "falcon", "gpt2", "t5", "mixtral", "qwen3")
    } == set()


def test_a_plan_imports_nothing_that_it_does_not_need() -> None:
    loaded = loaded_by(["plan", "--hw", "a100-40g", "--model", "7b"])

    assert {"dsgen.report.plan", "dsgen.report.wrapping", "dsgen.families.llama"} <= loaded
    assert sorted(name for name in loaded if name.startswith(NOT_FOR_A_PLAN)) == []
