"""A server that is asked nothing: it removes the folder that a program made for it, and never anybody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SERVE = """
import sys
from dsgen.engine.serving import serve
sys.exit(serve(lambda setup: {}, lambda question: {}, lambda: None))
"""
GONE = "999999999"  # no process has this id


@pytest.mark.parametrize(
    ("starter", "name", "left"),
    [
        ({}, "dsgen-prove-x", True),
        ({"DSGEN_PARENT": GONE}, "dsgen-prove-x", False),
        ({"DSGEN_PARENT": GONE}, "x", True),
    ],
)
def test_only_a_folder_that_was_left_to_a_server_is_removed(
    tmp_path: Path, starter: dict[str, str], name: str, left: bool
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "mine").touch()

    done = subprocess.run(
        [sys.executable, "-c", SERVE],
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env={**os.environ, **starter},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (1, "")
    assert (folder / "mine").exists() is left
