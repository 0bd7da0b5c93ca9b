"""The least card on which a run goes through: a real GPU's allocator held to a limit, beside the simulated one.

    python benchmarks/gpu_memory_limits.py [--simulate | --measure] [--only WORDS] [--seconds N] [--update]

`dsgen simulate` tells the least memory with which torch's allocator, after giving back all it can, still finds room for
every tensor of a run. Here torch is held to a little more and to a little less (set_per_process_memory_fraction), each
in a process of its own: with more the two steps must go through, with less they must die. Where one does not, another
limit further off is tried on that side. --simulate needs no GPU, --measure one. How to start it on a machine without a
network: benchmarks/gpu_memory.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpu_memory_cases
import gpu_memory_table
from gpu_memory import CHECK_SECONDS, MEASURE, SIMULATE, ask

from dsgen.engine.simulate.requests import filled

__all__ = ["CASES", "main", "markdown"]

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "gpu_memory_limits.json"
GIB = 2**30
CARD_BYTES = 139 * GIB  # of an H200: none of the cases needs as much
CAPABILITY = [9, 0]
SIDES = {"more": (1.01, 1.04), "less": (0.99, 0.96)}  # of the simulated least, the second where the first was wrong
OUT_OF_MEMORY = "OutOfMemoryError"  # what torch raises; whatever else ends a run says nothing of a limit
MOST_WORDS = 160  # letters of what an error says
NONE = "–"
GROWING = "expandable_segments:True"
AT_ONCE = 2  # runs on one card, which share nothing but its memory: of an H200's two of the largest have room
_0B, _1B = {"model": "qwen2.5-0.5b"}, {"model": "llama-3.2-1b"}
CASES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"model": "opt-125m", "stage": 2, "seq_len": 2048, "micro_batch": 4}, ""),
    ({**_0B, "stage": 3, "seq_len": 16384, "checkpointing": True}, ""),
    ({**_0B, "stage": 3, "seq_len": 16384, "checkpointing": True}, GROWING),
    ({**_0B, "stage": 3, "offload": "optimizer+param"}, ""),
    ({**_1B, "stage": 0, "seq_len": 512}, ""),
    ({**_1B, "stage": 0, "seq_len": 512}, GROWING),
    ({**_1B, "stage": 2, "seq_len": 2048, "offload": "optimizer"}, ""),
    ({**_1B, "stage": 3, "seq_len": 8192, "checkpointing": True}, ""),
    ({**_1B, "stage": 3, "seq_len": 8192, "checkpointing": True}, GROWING),
    ({**_1B, "stage": 2, "seq_len": 512, "micro_batch": 16, "method": "lora"}, ""),
    ({"model": "llama-3.1-8b", "stage": 0, "seq_len": 2048, "checkpointing": True, "method": "lora"}, ""),
)


def main() -> None:
    """Simulate, measure, or both; then the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = options.add_mutually_exclusive_group()
    what.add_argument("--simulate", action="store_true", help="only the simulated side")
    what.add_argument("--measure", action="store_true", help="only the card's side")
    options.add_argument("--only", default="", metavar="WORDS", help="the cases with these words in their names")
    options.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after so many seconds")
    options.add_argument("--update", action="store_true", help="write what was seen")
    options.add_argument("--output", type=Path, default=RESULTS, help=f"where to; {RESULTS.name} beside this file")
    asked = options.parse_args()
    deadline = time.monotonic() + asked.seconds
    records = json.loads(asked.output.read_text(encoding="utf-8")) if asked.output.is_file() else {}
    chosen = {}
    for said, conf in CASES:
        case = gpu_memory_cases.case_of(**said)
        name = f"{case.name}, growing segments" if conf else case.name
        if asked.only in name:
            chosen[name] = filled({**case.request, "alloc_conf": conf, "force": True})
    if not chosen:
        sys.exit(f"no case has {asked.only!r} in its name; benchmarks/gpu_memory_limits.py lists them in CASES")
    if not asked.measure:
        for name, request in chosen.items():
            records[name] = {**records.get(name, {}), **_simulated(name, request)}
            print(f"{name}: {records[name]['least_bytes'] / GIB:.2f} GiB", flush=True)
    for name in [name for name in chosen if name not in records]:
        print(f"not run: --simulate tells its least card first: {name}")
        del chosen[name]
    if not asked.simulate and _has_card(list(chosen)):
        with ThreadPoolExecutor(AT_ONCE) as pool:
            runs = {name: pool.submit(_measured, records[name], chosen[name], deadline) for name in chosen}
            for name, run in runs.items():
                tried = run.result()
                print(f"{name}: {len(tried)} limits tried", flush=True)
                records[name]["measured"] = tried or records[name].get("measured", [])
    print(markdown({name: records[name] for name in chosen}))
    if asked.update:
        asked.output.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


def _has_card(names: list[str]) -> bool:
    """Whether the first CUDA call succeeds; where it does not, what was not run is printed."""
    found = ask(MEASURE, {"check": []}, CHECK_SECONDS)
    call = found.get("error") or found["first_call"]
    if call:
        print(f"not run: no CUDA device: {call['type']}: {call['message'].splitlines()[0]}")
        print(*(f"not run: {name}" for name in names), sep="\n", flush=True)
    return not call


def _simulated(name: str, request: dict[str, Any]) -> dict[str, Any]:
    """The least card with cuBLAS's workspaces, which lie in torch's allocator."""
    workspaces = gpu_memory_table.workspace_bytes(CAPABILITY)
    each = workspaces // gpu_memory_table.WORKSPACE_THREADS
    found = ask(SIMULATE, {**request, "gpu_memory_bytes": CARD_BYTES, "workspace_bytes": each})
    if "error" in found:
        sys.exit(f"not simulated: {name}: {found['error']['type']}: {found['error']['message']}")
    told = found["peak"]["gpu"]["allocator"]
    return {
        "allocated_bytes": told["allocated_peak_bytes"] + workspaces,
        "reserved_bytes": told["reserved_peak_bytes"] + workspaces,
        "least_bytes": told["least_bytes"] + workspaces,
        "versions": found["versions"],
    }


def _measured(record: dict[str, Any], request: dict[str, Any], deadline: float) -> list[dict[str, Any]]:
    """What came of every limit that was tried: the limit, whether the run went through, and where it died."""
    tried: list[dict[str, Any]] = []
    for side, shares in SIDES.items():
        for share in shares:
            if time.monotonic() > deadline:
                return tried
            limit = int(record["least_bytes"] * share)
            found = ask(MEASURE, {"request": request, "limit_bytes": limit})
            if "error" in found and found["error"]["type"] != OUT_OF_MEMORY:
                print(f"not run: {found['error']['type']}: {found['error']['message'].splitlines()[0]}", flush=True)
                return tried
            told = _died(found["error"]) if "error" in found else _ran(found)
            tried.append({"share": share, "limit_bytes": limit, "ran": "error" not in found, **told})
            if tried[-1]["ran"] == (side == "more"):
                break
    return tried


def _died(error: dict[str, Any]) -> dict[str, Any]:
    return {"phase": error.get("phase"), "type": error["type"], "message": error["message"][:MOST_WORDS]}


def _ran(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "retries": found["after"]["allocation_retries"],
        "reserved_bytes": found["peak"]["reserved_bytes"],
        "versions": found["versions"],
    }


def markdown(records: dict[str, Any]) -> str:
    """Every case: what it needs at least as the simulation says, and with which share of that it ran and died."""
    lines = [
        "| case | allocated GiB | reserved GiB | least GiB | ran with | given back | died with | in |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, record in records.items():
        tried = record.get("measured", [])
        ran = min((one for one in tried if one["ran"]), key=_share, default=None)
        died = max((one for one in tried if not one["ran"]), key=_share, default=None)
        sizes = (f"{record[f'{part}_bytes'] / GIB:.2f}" for part in ("allocated", "reserved", "least"))
        cells = [
            name, *sizes, f"{ran['share']:.0%}" if ran else NONE, f"{ran['retries']} times" if ran else NONE,
            f"{died['share']:.0%}" if died else NONE, str(died["phase"]) if died else NONE,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _share(tried: dict[str, Any]) -> float:
    return float(tried["share"])


if __name__ == "__main__":
    main()
