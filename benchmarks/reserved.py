"""What torch's allocator reserves for the scenarios of the memory model, and the least GPU on which each goes through.

    python benchmarks/reserved.py --update      simulate what is not simulated yet, record it, write the page
    python benchmarks/reserved.py               print the summary of what is recorded

The scenarios are a draw of each group of benchmarks/memory_agreement.py. reserved.json holds what the replay of the
allocator said of each; docs/reserved.md is made of it, and of snapshots.json (benchmarks/snapshots.py). Needs
dsgen[simulate] for --update.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from memory_agreement import GROUPS, in_a_fork  # benchmarks/, beside this script
from memory_cases import Case
from memory_compared import LIGER, read
from reserved_page import page, summary

RECORD = Path(__file__).resolve().parent / "reserved.json"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "reserved.md"
EACH = 14  # scenarios of a group
LONGEST_SECONDS = 9.0  # of the first simulation of a scenario that is drawn
STEPS = 3  # two make the optimizer's states and their first reuse; the third is repeated until nothing grows
KEPT = (
    "allocated_peak_bytes",
    "reserved_peak_bytes",
    "least_bytes",
    "expandable_reserved_peak_bytes",
    "expandable_least_bytes",
    "growing_steps",
)
# Shares of the longest sequence that the steps of scenarios with changing lengths have, the longest last again; and
# how many of the first group's scenarios are run so.
TURNS = (1, 5 / 8, 7 / 8, 1 / 2, 3 / 4, 1)
VARIED = 10
ENOUGH_BYTES = 1 << 44  # a card that never runs out: what is reserved where nothing has to be given back


def main() -> None:
    """Simulate and record, or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="simulate what is missing, record it, write the page")
    options = parser.parse_args()
    record: dict[str, Any] = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {"cases": []}
    if options.update:
        _update(record)
    from reserved_fit import instant, known  # benchmarks/; it draws the same scenarios

    if options.update:
        held = json.loads(RECORD.with_name("snapshots.json").read_text("utf-8"))
        PAGE.write_text(page(record, instant(), known(), held), encoding="utf-8", newline="\n")
    print("\n".join(summary(record)))


def drawn() -> Iterator[tuple[str, Case]]:
    """The group and the scenario of each; always the same. Liger's older releases differ in the loss alone."""
    for path, draw in GROUPS.items():
        if path == LIGER:
            continue
        ran = {row["name"]: row["simulated"] for row in read(path)["cases"]}
        known = [
            case for case in draw() if "error" not in ran[case.name] and ran[case.name]["seconds"] < LONGEST_SECONDS
        ]
        random.Random(1).shuffle(known)
        for case in known[:EACH]:
            yield path.stem.removeprefix("memory_agreement").strip("_") or "first", case


def _update(record: dict[str, Any]) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.update(OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu")
    import torch
    import transformers.modeling_utils  # noqa: F401

    from dsgen.engine.simulate import __main__ as simulate

    torch.set_num_threads(1)
    known = {row["name"]: row for row in record["cases"]}
    rows: list[dict[str, Any]] = []
    for group, case in drawn():
        row = known.get(case.name)
        if row is None:
            asked = {**_asked(case), "steps": STEPS}
            answer = in_a_fork(simulate.answer, asked)
            record["versions"] = answer["versions"]
            row = described(group, case, answer["peak"]["gpu"]["allocator"])
            print(case.name, row["reserved_peak_bytes"], flush=True)
        rows.append(row)
        _write(record, [*rows, *(one for one in record["cases"] if one["name"] not in {row["name"] for row in rows})])
    record["cases"] = rows
    varied = {row["name"]: row for row in record.get("varied", [])}
    record["varied"] = []
    for group, case in list(drawn())[:VARIED]:
        row = varied.get(case.name)
        if row is None:
            lengths = [int(case.options["seq_len"] * share) for share in TURNS]
            asked = {**_asked(case), "steps": len(TURNS), "lengths": lengths}
            row = described(group, case, in_a_fork(simulate.answer, asked)["peak"]["gpu"]["allocator"])
            print(case.name, "with changing lengths", row["reserved_peak_bytes"], flush=True)
        record["varied"].append(row)
    _write(record, rows)


def _asked(case: Case) -> dict[str, Any]:
    """A scenario's request: a card that never runs out. Without cuBLAS's workspaces, as reserved_fit.py."""
    return {**case.request(), "gpu_memory_bytes": ENOUGH_BYTES}


def _write(record: Mapping[str, Any], rows: list[dict[str, Any]]) -> None:
    parts = [f'"versions": {json.dumps(record["versions"])}']
    for name, listed in (("cases", rows), ("varied", record.get("varied", []))):
        lines = ",\n".join(json.dumps(row) for row in listed)
        parts.append(f'"{name}": [\n{lines}\n]')
    text = ",\n".join(parts)
    RECORD.write_text(f"{{{text}}}\n", "utf-8")


def described(group: str, case: Case, told: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the record: the causes that a scenario has, and what the replay said of it."""
    zero, options = case.config["zero_optimization"], case.options
    offload = [place for place in ("param", "optimizer") if f"offload_{place}" in zero]
    return {
        "name": case.name,
        "group": group,
        "gpus": case.gpus,
        "stage": zero["stage"],
        "offload": offload[0] if offload else "none",
        "passes": case.config["gradient_accumulation_steps"],
        "micro_batch": case.config["train_micro_batch_size_per_gpu"],
        **{name: options[name] for name in ("seq_len", "method", "attention", "checkpointing", "chunked_loss")},
        "vocabulary": case.job().model.vocab_size,
        **{name: told[name] for name in KEPT},
    }


if __name__ == "__main__":
    sys.exit(main())
