"""A process that imports torch, DeepSpeed and transformers once and runs each program that it is given in a fork.

Reads from stdin, as JSON, the programs and the folder of each; a program's log is `log` in its folder: what the imports
said, and all that follows, the traceback of its error last. Writes the exit codes as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

IMPORTED = ("torch", "deepspeed", "torch._dynamo", "transformers.trainer", "transformers.models.llama.modeling_llama",
            "accelerate")  # fmt: skip


def run(program: str, folder: str) -> NoReturn:
    """Be the program, from its first line to its exit code."""
    os.chdir(folder)
    with Path("log").open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    code = 1
    try:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        code = 0
    except BaseException as error:
        if error.__traceback__ is not None:  # without this file's own line
            error.__traceback__ = error.__traceback__.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Import, then fork for one program after the other."""
    asked, out = json.load(sys.stdin), os.dup(1)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        for name in IMPORTED:
            importlib.import_module(name)
        sys.stdout.flush()
        sys.stderr.flush()
        said.seek(0)
        words = said.read()
    codes = []
    for one in asked:
        Path(one["folder"], "log").write_bytes(words)
        pid = os.fork()
        if not pid:
            run(one["program"], one["folder"])
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    with os.fdopen(out, "w", encoding="utf-8") as file:
        json.dump(codes, file)


if __name__ == "__main__":
    main()
