"""docs/prove.md shows what `dsgen prove` really prints; seconds, dates, versions and losses may be others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.proof

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "prove.md").read_text("utf-8")
FILE = re.compile(r"^```\w+\n# ([\w.]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = re.compile(r"^```text\n\$ dsgen (.+?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIES = (
    (r"\d+\.\d s\b", "SECONDS"),
    (r"\d{4}-\d\d-\d\d", "DATE"),
    (r"\b\d+\.\d+\.\d+(\+\w+)?", "VERSION"),
    (r"py:\d+ in", "py:LINE in"),
    (r"\d\.\d{4}( \d\.\d{4})+", "LOSSES"),
)


def settled(text: str) -> str:
    """Without what is another on the next machine."""
    for pattern, word in VARIES:
        text = re.sub(pattern, word, text)
    return " ".join(text.split())


def test_the_page_is_what_is_printed(tmp_path: Path) -> None:
    for name, content in FILE.findall(PAGE):
        (tmp_path / name).write_text(content, encoding="utf-8")
    runs = RUN.findall(PAGE)
    assert len(runs) == 3

    for command, shown in runs:
        done = subprocess.run(
            [sys.executable, "-m", "dsgen", *command.split()],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert settled(done.stdout + done.stderr) == settled(shown), command
