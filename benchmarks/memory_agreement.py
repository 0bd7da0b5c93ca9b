"""How far the instant memory model agrees with the simulation of the real DeepSpeed, scenario by scenario.

    python benchmarks/memory_agreement.py --update [--only NAME ...]   simulate what is not simulated yet, and record it
    python benchmarks/memory_agreement.py                              print the errors of what is recorded

The scenarios are those of memory_cases.py. memory_agreement*.json hold what the simulation said of each, with its
versions; docs/memory-agreement.md is made of them. Needs dsgen[simulate] for --update.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from memory_agreement_page import page
from memory_cases import Case, cases, later  # benchmarks/memory_cases.py
from memory_cases_apart import dropping, heads, narrow, of_encoders, of_mixtures, of_types, with_embeddings
from memory_cases_checkpoints import with_checkpoint
from memory_cases_foreach import with_foreach
from memory_cases_grouped import with_grouped_queries
from memory_cases_keys import with_keys
from memory_cases_liger import with_liger
from memory_cases_linear import with_plain_linear
from memory_cases_masked import with_masks
from memory_cases_muon import with_muon
from memory_cases_offloaded import with_offloading
from memory_cases_split import split
from memory_cases_widened import widening
from memory_compared import (
    CHECKPOINTS,
    DROPPING,
    EMBEDDINGS,
    FOREACH,
    GROUPED,
    HEADS,
    KEYS,
    LATER,
    LIGER,
    LINEAR,
    MASKED,
    MUON,
    NARROW,
    OF_ENCODERS,
    OF_MIXTURES,
    OF_TYPES,
    OFFLOADED,
    RECORD,
    SPLIT,
    WIDENED,
    Compared,
    compared,
    compared_checkpoints,
    facts,
    read,
    summary,
)

from dsgen.shapes.units import gib

GROUPS = {  # what was recorded -> what draws it
    RECORD: cases,
    LATER: later,
    DROPPING: dropping,
    HEADS: heads,
    NARROW: narrow,
    EMBEDDINGS: with_embeddings,
    OF_TYPES: of_types,
    OF_MIXTURES: of_mixtures,
    MUON: with_muon,
    OF_ENCODERS: of_encoders,
    KEYS: with_keys,
    SPLIT: split,
    WIDENED: widening,
    FOREACH: with_foreach,
    LINEAR: with_plain_linear,
    MASKED: with_masks,
    GROUPED: with_grouped_queries,
    LIGER: with_liger,
    OFFLOADED: with_offloading,
}
PAGE = Path(__file__).resolve().parent.parent / "docs" / "memory-agreement.md"


def main() -> None:
    """Simulate and record, or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="simulate what is missing, record it, write the page")
    parser.add_argument("--only", nargs="*", default=(), help="scenarios, or models, to simulate again")
    options = parser.parse_args()
    if options.update:
        for path, draw in (*GROUPS.items(), (CHECKPOINTS, with_checkpoint)):
            _simulate(path, list(draw()), set(options.only))
        between = compared_checkpoints()
        PAGE.write_text(page(*map(compared, GROUPS), between, read()["versions"]), encoding="utf-8")
    for path in GROUPS:
        for item in compared(path):
            print(f"{item.case.name:24} {_line(item)}")
        print(summary(compared(path)))
    for one in compared_checkpoints():
        print(f"{one.case.name:24} {one.error:+7.2%}  {one.name}, simulated {gib(sum(one.simulated.values())):>7} GiB")


def _simulate(path: Path, drawn: Sequence[Case], again: set[str]) -> None:
    """Simulate each scenario in a fork of this process, which has imported what takes long; record it at once."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.update(OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu")
    import torch
    import transformers.modeling_utils  # noqa: F401

    from dsgen.engine.simulate import __main__ as simulate

    torch.set_num_threads(1)
    record = read(path)
    known = {row["name"]: row for row in record["cases"]}
    rows = []
    for case in drawn:
        row = known.get(case.name)
        if row is None or facts(row) != attrs.asdict(case) or {case.name, case.model} & again:
            answer = in_a_fork(simulate.answer, case.request())
            record["versions"] = answer.get("versions") or record["versions"]
            row = {**attrs.asdict(case), "simulated": _compact(answer)}
            print(f"{case.name}: {row['simulated'].get('error', gib(row['simulated'].get('peak', 0)))}", flush=True)
        rows.append(row)
        written = {"versions": record["versions"], "cases": [*rows, *(known[n] for n in list(known)[len(rows) :])]}
        _write(path, written)
    record["cases"] = rows
    _write(path, record)


def _write(path: Path, record: Mapping[str, Any]) -> None:
    lines = ",\n".join(json.dumps(row) for row in record["cases"])
    path.write_text(f'{{"versions": {json.dumps(record["versions"])},\n"cases": [\n{lines}\n]}}\n', encoding="utf-8")


def in_a_fork(answer: Any, request: dict[str, Any]) -> dict[str, Any]:
    inlet, outlet = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(inlet)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        with os.fdopen(outlet, "w") as pipe:
            json.dump(answer(request), pipe)
        os._exit(0)
    os.close(outlet)
    with os.fdopen(inlet) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    found: dict[str, Any] = json.loads(text) if text else {"error": {"type": "died", "message": "killed", "site": ""}}
    return found


def _compact(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a simulation: the highest moment of every phase in all steps, and the host at last."""
    if "error" in answer:
        return {"error": f"{answer['error']['type']}: {answer['error']['message']}"[:300]}
    phases: dict[str, dict[str, int]] = {}
    for phase in answer["phases"]:
        parts = phase["gpu"]["peak_parts"]
        if sum(parts.values()) > sum(phases.get(phase["phase"], {}).values()):
            phases[phase["phase"]] = parts
    peak = answer["peak"]["gpu"]
    waiting = next(one for one in reversed(answer["phases"]) if one["phase"] == "forward")["host"]["end_parts"]
    return {
        "peak": peak["bytes"],
        "phase": answer["phases"][peak["phase"]]["phase"],
        "reserved": peak["allocator"]["reserved_peak_bytes"],
        "phases": phases,
        "host": answer["phases"][-1]["host"]["end_parts"],
        **({"waiting": waiting} if waiting.get("activations") else {}),  # in RAM when forward has ended
        "seconds": answer["seconds"],
    }


def _line(item: Compared) -> str:
    if item.ours is None:
        return f"error: {item.simulated['error'][:80]}"
    ours, simulated = item.ours.gpu, item.simulated
    return (
        f"{item.error:+7.2%}  simulated {gib(simulated['peak']):>7} GiB in {simulated['phase']:<8} "
        f"ours {gib(ours.peak_bytes):>7} in {ours.phase}"
    )


if __name__ == "__main__":
    sys.exit(main())
