"""The examples in hand-written Markdown: runs each command shown and puts its real output below it.

A block whose first line is a comment with a file name (`# train.py`) is a file of the example. In a `console` block a
line that starts with `$ ` is a command; it runs in a folder of its own that holds the files of the page so far, and the
lines below it, up to the next command, are its output, both streams together.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import dsgen

__all__ = ["with_real_outputs"]

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w.-]+\.(?:yaml|py|json|out|sh))\n")
SECONDS = 120  # a command of an example that takes longer hangs

# The words a page may start a command with, and what runs it: this interpreter, whatever lies on PATH.
_PROGRAMS = {
    "dsgen": (sys.executable, "-c", "from dsgen.cli import main; main()"),
    "python": (sys.executable,),
    "cat": ("cat",),
}


def with_real_outputs(page: str) -> str:
    """The page with every output as its command prints it now.

    Raises:
        ValueError: A command that is neither dsgen nor python.
    """
    with tempfile.TemporaryDirectory() as folder:

        def renewed(match: re.Match[str]) -> str:
            language, body = match[1], match[2]
            named = _FILE.match(body)
            if named:
                (Path(folder) / named[1]).write_text(body, encoding="utf-8")
            if language != "console":
                return match[0]
            commands = [line for line in body.splitlines() if line.startswith("$ ")]
            return f"```console\n{''.join(f'{line}{chr(10)}{_output(line[2:], folder)}' for line in commands)}```"

        return _BLOCK.sub(renewed, page)


def _output(command: str, folder: str) -> str:
    program, *arguments = shlex.split(command)
    if program not in _PROGRAMS:
        raise ValueError(f"$ {command}: an example runs {' or '.join(_PROGRAMS)}")
    source = Path(dsgen.__file__).parent.parent  # the dsgen that runs this script, installed or not
    plain = {**os.environ, "PYTHONPATH": str(source), "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    words = [*_PROGRAMS[program], *arguments]
    done = subprocess.run(words, cwd=folder, env=plain, timeout=SECONDS, check=False, encoding="utf-8", **streams)
    return done.stdout
