"""Child process for several simulations: imports torch and DeepSpeed once, then answers each request in a fork.

JSON lines in on stdin, JSON lines out on stdout, as in `dsgen.engine.proof.server`: a greeting, then for each request
the answer of `dsgen.engine.simulate`. A fork ends with its answer, so nothing stays from one simulation to the next.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsgen.engine.children import die_with_parent, fork, send_output_to, wait
from dsgen.engine.simulate.__main__ import answer, environment, versions

__all__ = ["main"]

_ANSWER = "answer.json"
# Imported by nearly every simulation, besides what `runs` imports itself. Not peft: the tables that it makes when it is
# imported are in the record of a run with adapters.
_PRELOAD = ("transformers.models.llama.modeling_llama",)


def main(_: Sequence[str] = ()) -> int:
    """Serve requests until stdin ends."""
    die_with_parent()
    environment()
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    folder = Path(json.loads(sys.stdin.readline())["folder"])
    send_output_to(folder / "server.log")
    gc.disable()  # of what modules make nothing is garbage
    greeting = _greet()
    _say(channel, greeting)
    if "missing" not in greeting:
        for number, line in enumerate(sys.stdin):
            _say(channel, _answered(json.loads(line), folder / f"simulation{number}.json"))
    return 0


def _say(channel: Any, message: dict[str, Any]) -> None:
    channel.write(json.dumps(message) + "\n")
    channel.flush()


def _greet() -> dict[str, Any]:
    """The versions; everything that simulations share is loaded by then."""
    installed = versions(())
    if "missing" in installed:
        return installed
    from dsgen.engine.simulate import runs
    from dsgen.engine.simulate.versions import check_tested

    with contextlib.suppress(RuntimeError):  # of versions that are not tested: a fork says so, or is told to go on
        check_tested(installed, force=False)
        runs.prepare()
    for name in _PRELOAD:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # a fork that searches for garbage would copy every page that it looks at
    return {"versions": installed}


def _answered(request: dict[str, Any], file: Path) -> dict[str, Any]:
    """The answer of a fork to one request; what ended it where there is none."""

    def work() -> bool:
        file.write_text(json.dumps(answer(request)), encoding="utf-8")
        return True

    child = fork(work, file.with_suffix(".log"))
    wait([child], float("inf"), 0.0, lambda: True)
    if not file.exists():
        return {"ended": child.exit_code}
    told: dict[str, Any] = json.loads(file.read_text("utf-8"))
    file.unlink()
    return told
