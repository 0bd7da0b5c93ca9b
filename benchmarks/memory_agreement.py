"""How far the instant memory model agrees with the simulation of the real DeepSpeed, scenario by scenario.

    python benchmarks/memory_agreement.py --update [--only NAME ...]   simulate what is not simulated yet, and record it
    python benchmarks/memory_agreement.py                              print the errors of what is recorded

The scenarios are those of memory_cases.py. benchmarks/memory_agreement.json holds what the simulation said of each,
with its versions; docs/memory-agreement.md is made of it. Needs dsgen[proof] for --update alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from memory_cases import Case, cases  # benchmarks/memory_cases.py, beside this script

from dsgen.memory import MemoryEstimate, estimate
from dsgen.units import gib

__all__ = ["RECORD", "Compared", "compare", "page", "read"]

REPOSITORY = Path(__file__).resolve().parent.parent
RECORD = REPOSITORY / "benchmarks" / "memory_agreement.json"
PAGE = REPOSITORY / "docs" / "memory-agreement.md"
WORST = 10  # scenarios that the page shows part by part
SHOWN_BYTES = 10 * 2**20  # smaller parts are not shown


@attrs.frozen(kw_only=True)
class Compared:
    """One scenario: what the simulation counted and what the instant model says.

    Attributes:
        case: The scenario.
        simulated: What is recorded of it: peak, phase, parts by phase, host bytes, reserved bytes; or an error.
        ours: The instant model's answer; None where the simulation ended with an error.
    """

    case: Case
    simulated: Mapping[str, Any]
    ours: MemoryEstimate | None

    @property
    def error(self) -> float:
        """Signed error of the GPU's peak, as a share of the simulated one."""
        return self.ours.gpu.peak_bytes / self.simulated["peak"] - 1 if self.ours else 0.0


def read(path: Path = RECORD) -> dict[str, Any]:
    """The record; empty where there is none."""
    if not path.exists():
        return {"versions": {}, "cases": []}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def compare(record: Mapping[str, Any]) -> list[Compared]:
    """Every recorded scenario beside the instant model's answer, the most exact first."""
    found = []
    for row in record["cases"]:
        case = Case(**_facts(row))
        simulated = row["simulated"]
        ours = None if "error" in simulated else estimate(*case.strategy())
        found.append(Compared(case=case, simulated=simulated, ours=ours))
    return sorted(found, key=lambda item: abs(item.error))


def main() -> None:
    """Simulate and record, or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="simulate what is missing, record it, write the page")
    parser.add_argument("--only", nargs="*", default=(), help="scenarios, or models, to simulate again")
    options = parser.parse_args()
    record = read()
    if options.update:
        record = _simulate(record, set(options.only))
        PAGE.write_text(page(compare(record), record["versions"]), encoding="utf-8")
    for item in compare(record):
        print(f"{item.case.name:24} {_line(item)}")
    print(_summary(compare(record)))


def _simulate(record: dict[str, Any], again: set[str]) -> dict[str, Any]:
    """Simulate each scenario in a fork of this process, which has imported what takes long; record it at once."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.update(OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu")
    import torch
    import transformers.modeling_utils  # noqa: F401

    from dsgen.engine import simulate

    torch.set_num_threads(1)
    known = {row["name"]: row for row in record["cases"]}
    rows = []
    for case in cases():
        row = known.get(case.name)
        if row is None or _facts(row) != attrs.asdict(case) or {case.name, case.model} & again:
            answer = _in_a_fork(simulate.answer, case.request())
            record["versions"] = answer.get("versions") or record["versions"]
            row = {**attrs.asdict(case), "simulated": _compact(answer)}
            print(f"{case.name}: {row['simulated'].get('error', gib(row['simulated'].get('peak', 0)))}", flush=True)
        rows.append(row)
        written = {"versions": record["versions"], "cases": [*rows, *(known[n] for n in list(known)[len(rows) :])]}
        _write(written)
    record["cases"] = rows
    _write(record)
    return record


def _facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row was simulated for."""
    return {field.name: row[field.name] for field in attrs.fields(Case)}


def _write(record: Mapping[str, Any]) -> None:
    lines = ",\n".join(json.dumps(row) for row in record["cases"])
    RECORD.write_text(f'{{"versions": {json.dumps(record["versions"])},\n"cases": [\n{lines}\n]}}\n', encoding="utf-8")


def _in_a_fork(answer: Any, request: dict[str, Any]) -> dict[str, Any]:
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
    return {
        "peak": peak["bytes"],
        "phase": answer["phases"][peak["phase"]]["phase"],
        "reserved": peak["allocator"]["reserved_peak_bytes"],
        "phases": phases,
        "host": answer["phases"][-1]["host"]["end_parts"],
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


def _summary(found: Sequence[Compared]) -> str:
    counted = [item for item in found if item.ours]
    failed = len(found) - len(counted)
    if not counted:
        return "nothing recorded"
    sizes = sorted(abs(item.error) for item in counted)
    within = sum(size <= 0.02 for size in sizes)
    return (
        f"{len(counted)} scenarios: {within} within 2 %, median {statistics.median(sizes):.2%}, "
        f"largest {sizes[-1]:.1%}; {failed} ended with an error"
    )


def page(found: list[Compared], versions: Mapping[str, str]) -> str:
    """docs/memory-agreement.md: the summary, the worst scenarios part by part, and the error of every scenario."""
    counted = [item for item in found if item.ours]
    failed = [item for item in found if not item.ours]
    used = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        "# How far the instant memory model agrees with DeepSpeed",
        "",
        "`dsgen memory`, `plan` and `render` answer with arithmetic; `dsgen simulate` runs the real DeepSpeed with the",
        "real Hugging Face class on a virtual GPU and counts every tensor. This page holds one against the other: the",
        "GPU's peak in scenarios drawn over every model profile, with all stages, offloads, precisions, attention",
        "kernels, lengths, buffers, checkpointing, adapters and tensor parallelism. The simulated numbers are",
        f"committed (benchmarks/memory_agreement.json; {used}); a test compares them on",
        "every run, and `nox -s memory-agreement` makes them again.",
        "",
        _summary(found) + ".",
        "",
        f"## The worst {WORST}",
        "",
        "Parts are those of the last step. Where they agree and the peaks differ, an earlier step is higher: in the",
        "first one stage 3 does not know yet in which order parameters are used.",
        "",
    ]
    for item in reversed(counted[-WORST:]):
        lines += [f"### {item.case.name}: {item.error:+.1%}", "", _described(item.case), "", *_parts(item), ""]
    lines += [
        "## Every scenario",
        "",
        "| scenario | what | simulated GiB | ours GiB | error |",
        "|---|---|---|---|---|",
    ]
    for item in sorted(counted, key=lambda item: item.case.name):
        peaks = f"{gib(item.simulated['peak'])} | {gib(item.ours.gpu.peak_bytes)}" if item.ours else ""
        lines.append(f"| {item.case.name} | {_described(item.case)} | {peaks} | {item.error:+.2%} |")
    if failed:
        lines += [
            "",
            "## Scenarios that DeepSpeed, torch or transformers refused",
            "",
            "| scenario | what | why |",
            "|---|---|---|",
        ]
        for item in failed:
            why = item.simulated["error"].replace("|", "\\|").splitlines()[0][:160]
            lines.append(f"| {item.case.name} | {_described(item.case)} | {why} |")
    return "\n".join(lines) + "\n"


def _described(case: Case) -> str:
    """A scenario in a line."""
    config, options = case.config, case.options
    zero = config["zero_optimization"]
    precision = next((name for name in ("bf16", "fp16") if name in config), "fp32")
    said = [
        f"{case.gpus} GPUs",
        f"{case.depth} blocks" if case.depth else "all blocks",
        f"stage {zero['stage']}",
        precision,
        f"{config['train_micro_batch_size_per_gpu']} x {options['seq_len']} tokens",
        options["attention"],
    ]
    said += ["checkpointing"] if options["checkpointing"] else []
    said += [f"{config['gradient_accumulation_steps']} passes"] if config["gradient_accumulation_steps"] > 1 else []
    said += ["optimizer on CPU"] if "offload_optimizer" in zero else []
    said += ["parameters on CPU"] if "offload_param" in zero else []
    said += [f"AutoTP {config['tensor_parallel']['autotp_size']}"] if "tensor_parallel" in config else []
    said += [f"{options['method']} {options['lora_rank']}"] if options["method"] != "full" else []
    said += ["chunked loss"] if options["chunked_loss"] else []
    said += [config["optimizer"]["type"]] if config["optimizer"]["type"] != "AdamW" else []
    said += ["overlap"] if zero.get("overlap_comm") else []
    return ", ".join(said)


def _parts(item: Compared) -> list[str]:
    """The parts of the simulated peak's phase beside ours."""
    phase = item.simulated["phase"]
    theirs = item.simulated["phases"][phase]
    ours = next((dict(one.gpu) for one in item.ours.phases if one.phase == phase), {}) if item.ours else {}
    rows = [f"| {phase} | simulated GiB | ours GiB |", "|---|---|---|"]
    largest = {name: max(theirs.get(name, 0), ours.get(name, 0)) for name in {*theirs, *ours}}
    shown = sorted((name for name in largest if largest[name] >= SHOWN_BYTES), key=lambda name: (-largest[name], name))
    return rows + [f"| {name} | {gib(theirs.get(name, 0))} | {gib(ours.get(name, 0))} |" for name in shown]


if __name__ == "__main__":
    sys.exit(main())
