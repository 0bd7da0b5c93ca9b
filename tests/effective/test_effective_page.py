"""docs/effective.md shows what the command prints; that needs DeepSpeed, which the session of the docs has not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lint_samples import dsgen

PAGE = Path(__file__).resolve().parents[2] / "docs" / "effective.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w.-]+)\n")


@pytest.mark.proof
def test_the_page_shows_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = BLOCK.findall(PAGE.read_text("utf-8"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for _, body in blocks:
        if named := FILE.match(body):
            (tmp_path / named[1]).write_text(body[named.end() :], encoding="utf-8")  # JSON has no comments
    [shown] = [body for language, body in blocks if language == "text"]
    command, _, output = shown.partition("\n")

    code, out, _ = dsgen(capsys, *command.removeprefix("$ dsgen ").split())

    assert code == 0
    assert out == output
