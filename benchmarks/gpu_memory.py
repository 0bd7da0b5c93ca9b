r"""Memory of real steps on a real GPU, beside what the simulation says of the same request.

    python benchmarks/gpu_memory.py [--dry-run | --table] [--measure | --simulate] [--only WORDS] [--update]

Each case is a model with random weights, two real steps of `deepspeed.initialize`'s engine in a world of one rank, in a
process of its own; then `python -m dsgen.engine.simulate` with the same request. Without --update nothing is written.
Without a GPU everything before the first CUDA call is run, and what was not run is printed.

On a machine that has a GPU but no network: collect wheels where there is one, with the Python of the other, by

    DS_BUILD_OPS=0 pip wheel --no-deps -w wheels deepspeed==0.19.8 peft accelerate
    pip download -d wheels transformers attrs cattrs click rich ruamel.yaml tomli \
        ninja hjson msgpack py-cpuinfo psutil pydantic einops

carry the folder beside the checkout, and there (torch and nvcc are the machine's own; DeepSpeed builds its operators)

    pip install --no-index --find-links wheels --no-deps wheels/*.whl
    PYTHONPATH=. python benchmarks/gpu_memory.py --measure --seconds 540 --update --output "$OUT/gpu_memory.json"

A case that is recorded is not measured again (--again does), so the same command goes on where the time ended. The
simulation needs no GPU: copy the file to benchmarks/, and fill in its side where the tested torch is, with

    python benchmarks/gpu_memory.py --simulate --update
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gpu_memory_cases
import gpu_memory_table

from dsgen.engine.simulate.requests import filled
from dsgen.memory.overheads import WORKSPACE_THREADS

__all__ = ["main"]

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "gpu_memory.json"
MEASURE = [sys.executable, str(FOLDER / "gpu_memory_run.py")]
SIMULATE = [sys.executable, "-m", "dsgen.engine.simulate"]
LIMIT_SECONDS = 420  # of one child; DeepSpeed builds an operator in about a minute the first time
CHECK_SECONDS = 900  # of the child that builds every model without memory


def main() -> None:
    """Run what was asked for; exit 0 also where there is no GPU, which is printed."""
    options = _options()
    chosen = [case for case in gpu_memory_cases.cases() if options.only in case.name]
    if not chosen:
        sys.exit(f"no case has {options.only!r} in its name; --dry-run lists them")
    if options.dry_run:
        print(*(case.name for case in chosen), f"{len(chosen)} cases", sep="\n")
        return
    records = _read(options.output)
    if not options.table:
        deadline = time.monotonic() + options.seconds if options.seconds else float("inf")
        there = options.simulate or _measure(chosen, records, options, deadline)
        if there and not options.measure:
            _simulate(chosen, records, options, deadline)
    if any(case.name in records for case in chosen):
        print(gpu_memory_table.markdown({case.name: records.get(case.name, {}) for case in chosen}))


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = options.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="list the cases")
    what.add_argument("--table", action="store_true", help="print the table of what is recorded")
    what.add_argument("--measure", action="store_true", help="only the real steps")
    what.add_argument("--simulate", action="store_true", help="only the simulation, of every recorded or chosen case")
    options.add_argument("--only", default="", metavar="WORDS", help="the cases with these words in their names")
    options.add_argument("--seconds", type=float, help="begin no case after so many seconds")
    options.add_argument("--again", action="store_true", help="cases that are recorded too")
    options.add_argument("--update", action="store_true", help="write what was found, after every case")
    options.add_argument("--output", type=Path, default=RESULTS, help=f"where to; {RESULTS.name} beside this file")
    return options.parse_args()


def _measure(chosen: list[Any], records: dict[str, Any], options: argparse.Namespace, deadline: float) -> bool:
    """The real side of every case; False where there is no card, after everything that needs none."""
    requests = {case.name: filled(case.request) for case in chosen}
    found = ask(MEASURE, {"check": list(requests.values())}, CHECK_SECONDS)
    if "error" in found:
        sys.exit(f"nothing could be run: {found['error']['type']}: {found['error']['message']}")
    if found["first_call"]:
        _tell_without_card(list(requests), found)
        return False
    for name, request in requests.items():
        known = records.get(name, {}).get("measured")
        if known and not options.again:
            continue
        if time.monotonic() > deadline:
            print(f"not run: the time of --seconds is over: {name}")
            continue
        _keep(records, name, request, "measured", ask(MEASURE, {"request": request}), options)
    return True


def _tell_without_card(names: list[str], found: dict[str, Any]) -> None:
    """What was run without a card, and by name what was not."""
    call = found["first_call"]
    sound = [name for name, built in zip(names, found["built"], strict=True) if "error" not in built]
    print(f"{len(sound)} of {len(names)} cases: model, DeepSpeed config and batch built")
    for name, built in zip(names, found["built"], strict=True):
        if "error" in built:
            print(f"cannot be built: {name}: {built['error']['message']}")
    print(f"not run: no CUDA device; the first CUDA call, {call['site']}, says {call['type']}: {call['message']}")
    print(*(f"not run: {name}" for name in names), sep="\n", flush=True)


def _simulate(chosen: list[Any], records: dict[str, Any], options: argparse.Namespace, deadline: float) -> None:
    """The simulation's side of every case, with the memory that the card had."""
    for case in chosen:
        record = records.get(case.name, {})
        if record.get("simulated") and not options.again:
            continue
        if time.monotonic() > deadline:
            print(f"not simulated: the time of --seconds is over: {case.name}")
            continue
        ran = {"model": record["request"]["model"]} if "request" in record else {}  # the model is the one that ran
        request = filled({**case.request, **ran, "force": True})  # the versions of both sides stand in the table
        card, after = (record.get("measured", {}).get(part) for part in ("card", "after"))
        if card:
            outside = (after or {}).get("outside_bytes", card["context_bytes"])
            workspace = gpu_memory_table.workspace_bytes(card["capability"])
            request["workspace_bytes"] = workspace // WORKSPACE_THREADS
            request["gpu_memory_bytes"] = card["total_bytes"] - outside - workspace
        found = ask(SIMULATE, request)
        _keep(records, case.name, request, "simulated", _short(found), options)


def _reserve(pinned: dict[str, int]) -> dict[str, int]:
    """What torch's allocator of page-locked memory holds beside the tensors, where there are such."""
    return {"host_reserve_bytes": pinned["reserved_bytes"] - pinned["bytes"]} if pinned["bytes"] else {}


def _short(found: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a simulation: peaks and phases, not every tensor."""
    if "error" in found:
        return found
    return {
        "versions": found["versions"],
        "allocator": found["peak"]["gpu"]["allocator"],
        "bytes": found["peak"]["gpu"]["bytes"],
        "parts": found["peak"]["gpu"]["parts"],
        "host_bytes": found["peak"]["host"]["bytes"],
        **_reserve(found["peak"]["host"]["pinned"]),
        "phases": [
            {
                **{key: phase[key] for key in ("phase", "step", "micro_batch")},
                "peak_bytes": phase["gpu"]["peak_bytes"],
                "end_bytes": phase["gpu"]["end_bytes"],
            }
            for phase in found["phases"]
        ],
        "seconds": found["seconds"],
    }


def ask(command: list[str], question: dict[str, Any], limit_seconds: float = LIMIT_SECONDS) -> dict[str, Any]:
    """What a child process answers; one that dies or hangs answers with an error."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=FOLDER.parent,
        start_new_session=True,  # a build of an operator has children of its own
    )
    try:
        answer, noise = child.communicate(json.dumps(question), timeout=limit_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return {"error": {"type": "Timeout", "message": f"no answer after {limit_seconds:g} s"}}
    try:
        found: dict[str, Any] = json.loads(answer)
    except json.JSONDecodeError:
        last = (noise.strip().splitlines() or ["(nothing said)"])[-1]
        return {"error": {"type": f"exit status {child.returncode}", "message": last}}
    return found


def _keep(
    records: dict[str, Any], name: str, request: dict[str, Any], side: str, found: Any, options: argparse.Namespace
) -> None:
    """Put a side into the records, say so, and with --update write them all."""
    records[name] = {**records.get(name, {}), "request": request, side: found}
    row = gpu_memory_table.row(name, records[name])
    values = row.measured if side == "measured" else row.simulated
    said = f"{values[0] / 2**30:.2f} GiB allocated, {values[1] / 2**30:.2f} reserved" if values else row.note
    print(f"{side} {name}: {said}", flush=True)
    if options.update:
        order = [case.name for case in gpu_memory_cases.cases()]
        known = sorted(records, key=lambda one: order.index(one) if one in order else len(order))
        text = json.dumps({"cases": {one: records[one] for one in known}}, indent=1)
        options.output.write_text(text + "\n", encoding="utf-8")


def _read(file: Path) -> dict[str, Any]:
    """The records of a file; none where it is not there."""
    if not file.exists():
        return {}
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["cases"]
    return found


if __name__ == "__main__":
    main()
