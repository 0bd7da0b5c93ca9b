"""How a run of ranks ended before its end: by DeepSpeed's word about the config, by a crash, or by the machine."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["INSTALL", "NEEDS", "OF_A_CRASH", "ended_badly", "not_built", "one_line"]

INSTALL = 'pip install "dsgen[proof]"'
# What a machine lacks -> what to do; the config may be right.
NEEDS = {
    "a GPU": "this needs a GPU: run the proof on a machine that has one (--device cuda)",
    "a package of Python": "install what DeepSpeed asks for beside it, and run the proof again",
}
_DONE = "done"  # the engine's word for "past the last phase"
_MESSAGE_CHARACTERS = 400  # of an engine's error; pydantic's are long
_OF_A_KILL = "the kernel does that when memory runs out (dmesg says so), or somebody did: run it again"
OF_A_CRASH = "run it again; where it ends so each time, it is a fault of torch, of DeepSpeed or of your own model"
_OF_THE_TIME = "give it more: --timeout SECONDS"
_FULL = re.compile(r"No space left|failed writing file|unexpected pos|Disk quota")  # of the system, and of torch.save
# What ends a run besides its config: the machine; of the others, when one of them is gone.
_OF_THE_MACHINE = re.compile(
    r"MemoryError|cannot allocate memory|Connection (closed|reset|refused)|Permission denied|Read-only file system",
    re.IGNORECASE,
)
_LOST_OTHERS = re.compile(r"Connection (closed|reset|refused)|Broken pipe|Timed out waiting", re.IGNORECASE)
_NO_FOLDER = re.compile(r"Read-only file system|Permission denied|NotADirectoryError|FileNotFoundError: .* '/")
_ROOM = "the temporary folder is full, or its quota is: name another with TMPDIR"


def ended_badly(
    answer: Mapping[str, Any], reports: Sequence[Mapping[str, Any]], timeout_seconds: float
) -> dict[str, Any] | None:
    """What ended the run before its end; None when every rank came through.

    Args:
        answer: What the child tells of its ranks.
        reports: Those of the ranks that wrote one.
        timeout_seconds: The time that all had.

    Returns:
        Fields of a `Proof`: `is_verdict` says whether it is DeepSpeed's word about the config. A crash is none.
    """
    silent = _silent(answer)
    for rank in silent:
        if (code := answer["exits"][rank]) < 0 and code != -signal.SIGABRT:  # which a library sends when it lost others
            return _crash(answer, rank, f"was ended by {signal.Signals(-code).name}")
    errors = [report for report in reports if report["error"]]
    if errors:
        # The first to fall pulls the others down: their errors are about the lost connection.
        cause = min(errors, key=lambda report: float(report["error"]["time"]))
        error = cause["error"]
        if not (silent and _LOST_OTHERS.search(error["message"])):
            words = f"{error['type']}: {one_line(error['message'])}"
            full = _FULL.search(error["message"]) is not None
            return {
                "phase": cause["phase"], "error": words, "site": error["site"], "todo": _ROOM if full else None,
                "is_verdict": not full and _OF_THE_MACHINE.search(words) is None,
            }  # fmt: skip
    for rank in silent:
        code = answer["exits"][rank]
        return _crash(answer, rank, f"ended with {'signal SIGABRT' if code < 0 else f'code {code}'}")
    phase = reports[0]["phase"] if reports else "load"
    if answer["timed_out"]:
        words = f"no end within {timeout_seconds:g} s; the ranks were stopped"
        return {"phase": phase, "error": words, "todo": _OF_THE_TIME, "is_verdict": False}
    if all(report["phase"] == _DONE for report in reports):
        return None
    return {"phase": phase, "error": "unfinished", "is_verdict": False}


def _silent(answer: Mapping[str, Any]) -> list[int]:
    """The ranks that ended by themselves, or by somebody's signal, without a word of why; whom we stopped is none."""
    ended = [rank for rank, code in enumerate(answer["exits"]) if code != 0 and rank not in answer["stopped"]]
    return [rank for rank in ended if not (answer["ranks"][rank] or {}).get("error")]


def _crash(answer: Mapping[str, Any], rank: int, how: str) -> dict[str, Any]:
    """A rank that is gone without DeepSpeed's word."""
    killed = answer["exits"][rank] == -signal.SIGKILL
    return {
        "phase": answer["ranks"][rank]["phase"] if answer["ranks"][rank] else "load",
        "error": f"rank {rank} {how}: {_end(answer['tails'][rank]) or 'it wrote nothing'}",
        "todo": _OF_A_KILL if killed else OF_A_CRASH,
        "is_verdict": False,
    }


def not_built(failed: Mapping[str, str]) -> tuple[str, str]:
    """Why an operator is missing, and what to install: of the first that failed."""
    name, words = next(iter(failed.items()))
    if "/dev/shm" in words:
        return words, "mount a tmpfs there (docker run --shm-size=1g): AutoTP sums its parts there on a CPU"
    if name == "AsyncIOBuilder" and "compatible" in words:
        todo = "NVMe offload needs the headers of libaio: apt-get install libaio-dev, or dnf install libaio-devel"
    elif _NO_FOLDER.search(words) is not None and "nvcc" not in words:
        todo = "DeepSpeed's operators are built in a folder of yours: name one with TORCH_EXTENSIONS_DIR"
    elif "Ninja is required" in words:
        todo = f"{INSTALL} brings ninja"
    elif "not been implemented" in words or "not compatible" in words:
        todo = NEEDS["a GPU"]
    else:
        todo = "DeepSpeed compiles its operators at first use: install a C++ compiler (g++), and for CUDA its toolkit"
    return f"DeepSpeed's {name} could not be built: {one_line(words)}", todo


def one_line(text: str) -> str:
    """Words on one line, cut where they are many."""
    line = " ".join(text.split())
    return line if len(line) <= _MESSAGE_CHARACTERS else f"{line[:_MESSAGE_CHARACTERS]}..."


def _end(text: str) -> str:
    """Last words on one line, without what came long before them."""
    line = " ".join(text.split())
    return line if len(line) <= _MESSAGE_CHARACTERS else f"...{line[-_MESSAGE_CHARACTERS:]}"
