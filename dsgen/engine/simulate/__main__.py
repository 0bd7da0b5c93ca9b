"""Child process: the real DeepSpeed engine at true size on a virtual GPU; one JSON request in, one JSON result out.

stdin: `{"config": a DeepSpeed config, "model": a config.json, "world_size": N}` and what
`requests.DEFAULTS` names.
stdout: `{"versions", "engine", "phases", "peak", "nvme", "collectives", "timeline", "seconds", "rss_bytes"}`, and
`"program"` where the request asks for `"time"`; or `{"versions", "error": {"type", "message", "site", "phase"}}`, or
`{"missing": package}`. What the libraries print goes to stderr.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from dsgen.engine.serving import is_gone, remove_own_folder
from dsgen.engine.simulate import requests

__all__ = ["answer", "environment", "main", "versions"]

_PACKAGES = ("deepspeed", "torch", "transformers")
_LOOK_SECONDS = 1.0
_KIB = 1024  # bytes in a unit of VmHWM, and of ru_maxrss on Linux
_STATUS = Path("/proc/self/status")


def main(_: Sequence[str] = ()) -> None:
    """Answer the request on stdin."""
    environment()
    starter = os.environ.pop("DSGEN_PARENT", "")  # said by who made a folder for us (proving.children)
    folder = Path.cwd() if starter else None
    threading.Thread(target=_end_with, args=(int(starter or os.getppid()), folder), daemon=True).start()
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = sys.stdin.read()
    if not request and starter and is_gone(int(starter)):  # killed before it asked
        remove_own_folder()
        return
    json.dump(answer(json.loads(request)), answers)
    answers.flush()
    # Nothing is left to save; tearing a fake world down has no meaning and can hang on its threads.
    os._exit(0)


def environment() -> None:
    """What the libraries find in the environment when they are imported."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["DS_ACCELERATOR"] = "cpu"  # until the virtual one is set: no search for devices


def _end_with(parent: int, folder: Path | None) -> None:
    """End this process and its folder when its parent is gone, however that ended: nobody would read the answer."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    if folder is not None:  # nobody is left to remove it
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The result of one request; an error is a result too."""
    began = time.monotonic()
    # For good: when Python looks for garbage by itself hangs on how many objects anybody has made, a debugger or a
    # measure of coverage too, and so would what is said. What waits for it stays: the most that a run may hold.
    gc.disable()
    installed = versions(("peft",) if request.get("method") in ("lora", "qlora") else ())
    if "missing" in installed:
        return installed
    progress = {"phase": "load"}
    try:
        asked = requests.filled(request)
        from dsgen.engine.simulate import ops, results, runs

        ledger, recorder, engine = runs.run(asked, installed, progress)
        return {
            "versions": installed,
            "engine": runs.facts(engine),
            **results.describe(ledger, asked["gpu_memory_bytes"], asked["alloc_conf"], asked["workspace_bytes"]),
            "nvme": ops.written(),
            "collectives": results.collectives(recorder.collectives),
            "storages": len(ledger.sizes),
            **({"files": recorder.written} if asked["checkpoint"] else {}),
            **({} if recorder.program is None else {"program": recorder.program.told()}),
            "seconds": round(time.monotonic() - began, 2),
            "rss_bytes": _most_bytes(),
        }
    except BaseException as error:  # whatever ends the engine is told, SystemExit of a library included
        return {"versions": installed, "error": {**_told(error), "phase": progress["phase"]}}


def _most_bytes() -> int:
    """The most memory that this process has held; what the one held that it was forked from is in ru_maxrss too."""
    with contextlib.suppress(OSError):  # no Linux
        lines = dict(line.split(":", 1) for line in _STATUS.read_text("utf-8").splitlines())
        return int(lines["VmHWM"].split()[0]) * _KIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB


def versions(more: Sequence[str]) -> dict[str, str]:
    """The versions of the packages that a simulation needs, and of others; or `{"missing": package}`."""
    try:
        return {name: metadata.version(name) for name in (*_PACKAGES, *more)}
    except metadata.PackageNotFoundError as error:
        return {"missing": str(error.name)}


def _told(error: BaseException) -> dict[str, Any]:
    """The engine's own words, and the last place in its traceback, deepspeed's where it took part."""
    traceback.print_exception(error)
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if f"{os.sep}deepspeed{os.sep}" in frame.filename] or list(frames)
    file = inside[-1].filename.rpartition(f"site-packages{os.sep}")[2]
    told = {
        "type": type(error).__name__,
        "message": str(error).strip() or "(no message)",
        "site": f"{file}:{inside[-1].lineno} in {inside[-1].name}",
    }
    listed = getattr(error, "errors", None)
    if type(error).__name__ != "ValidationError" or not callable(listed):
        return told
    # pydantic's own list of what is wrong, beside its text
    faults = [{"at": [str(part) for part in fault["loc"]], "message": fault["msg"]} for fault in listed()]
    return {**told, "faults": faults, "model": str(getattr(error, "title", ""))}


if __name__ == "__main__":
    main()
