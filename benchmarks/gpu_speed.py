"""The time of real kernels and of whole real runs on one GPU, beside what dsgen says of them.

    python benchmarks/gpu_speed.py [--list] [--kernels | --cases] [--only WORDS] [--hw PROFILE] [--output FILE]

Each run is a Hugging Face model of dsgen's catalog with random weights under the real DeepSpeed, in a process of its
own: some steps to warm up, then the median of the steps that follow, and the peak of torch's allocator. One that runs
out of memory is a row too. Kernels are measured by shape. All is written to benchmarks/gpu_speed/<card>.json after
every case; one that is recorded is not measured again (--again does), so that the same command goes on where --seconds
ended. --list prints the cases with what dsgen says of them and needs no GPU; nor does --device cpu --tiny, which tries
the harness. How to start it on a machine without a network: see benchmarks/gpu_memory.py; QLoRA needs bitsandbytes too.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gpu_speed_table as table  # benchmarks/, beside this script
from gpu_memory import ask
from gpu_speed_cases import SpeedCase, predicted, speed_cases
from gpu_speed_kernels import kernel_name, kernels, law_seconds, node_of
from gpu_speed_profiles import profile_of

from dsgen.engine.simulate.requests import filled
from dsgen.shapes.errors import DsgenError, mistake

__all__ = ["main"]

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "gpu_speed"
RUN = [sys.executable, str(FOLDER / "gpu_speed_run.py")]
LISTED = "h100-80g"  # the profile that --list predicts for, where none is said
WARMUP, STEPS = 3, 6  # optimizer steps of a run that are not told, and that are
ROUND_SECONDS = 0.2  # of one kernel
FIRST_SECONDS = 120  # of the child that makes the first CUDA call
LIMIT_SECONDS = 600  # of any other child; DeepSpeed builds an operator in about a minute the first time
GROUP = 20  # kernels of one child


def main() -> None:
    """Measure what was asked for; without a GPU say what was not, and exit 2."""
    options = _options()
    try:
        _run(options)
    except DsgenError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = options.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="print the cases with what dsgen says of them")
    what.add_argument("--table", action="store_true", help="print what is recorded in --output")
    what.add_argument("--kernels", action="store_true", help="only kernels")
    what.add_argument("--cases", action="store_true", help="only whole runs")
    options.add_argument("--only", default="", metavar="WORDS", help="what has these words in its name")
    options.add_argument("--hw", metavar="PROFILE", help="what the card is (default: by its name)")
    options.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries the harness")
    options.add_argument("--tiny", action="store_true", help="a few tiny runs and kernels instead")
    options.add_argument("--seconds", type=float, help="begin nothing after so many seconds")
    options.add_argument("--again", action="store_true", help="what is recorded too")
    options.add_argument("--output", type=Path, metavar="FILE", help="default: benchmarks/gpu_speed/<card>.json")
    return options.parse_args()


def _run(options: argparse.Namespace) -> None:
    cases = [case for case in speed_cases(options.tiny) if options.only in case.name]
    shapes = [one for one in kernels(options.tiny) if options.only in kernel_name(one)]
    cases, shapes = ([] if options.kernels else cases), ([] if options.cases else shapes)
    if not cases and not shapes:
        raise mistake(f"nothing has {options.only!r} in its name", todo="--list shows the names.", code="unknown-name")
    if options.list:
        print(_listing(cases, shapes, options.hw or LISTED))
        return
    if options.table:
        if options.output is None or not options.output.is_file():
            raise mistake("--table has no file", must="--output names one that is recorded", code="missing")
        print(table.markdown(_read(options.output)))
        return
    machine = _machine(cases, shapes, options.device)
    card = machine["card"]
    profile = options.hw or profile_of(card["name"])
    file = options.output or RESULTS / f"{profile}.json"
    records = {
        "cases": {}, "kernels": {},
        **_read(file),
        "card": card, "versions": machine["versions"], "profile": profile, "dsgen": version("dsgen"),
           "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    }  # fmt: skip
    deadline = time.monotonic() + options.seconds if options.seconds else float("inf")
    _measure_kernels(shapes, records, options, deadline, file)
    _measure_cases(cases, records, options, deadline, file)
    print(table.markdown(records))


def _machine(cases: list[SpeedCase], shapes: list[dict[str, Any]], device: str) -> dict[str, Any]:
    """The card and the versions on it.

    Raises:
        DsgenError: There is no card, or torch is missing; with what was not run.
    """
    told = ask(RUN, {"device": device}, FIRST_SECONDS)
    if "error" not in told:
        return told
    error = told["error"]
    raise mistake(
        f"no GPU answers ({error['type']}: {error['message'].splitlines()[0]}), so that {len(cases)} runs and "
        f"{len(shapes)} kernels were not measured",
        must="a CUDA GPU, torch with CUDA and DeepSpeed must be there",
        todo="Run nox -s gpu-speed where there is one. Without one --list shows what would be measured and what dsgen "
        "says of it, and --device cpu --tiny tries the harness.",
        code="missing-package" if error["type"] == "ModuleNotFoundError" else "missing",
    )


def _listing(cases: list[SpeedCase], shapes: list[dict[str, Any]], profile: str) -> str:
    """Every case and kernel with what dsgen says of it on a card."""
    lines = [f"{len(cases)} runs and {len(shapes)} kernels, as dsgen says of {profile}:"]
    for case in cases:
        said = predicted(case, profile, {})
        if "refused" in said:
            lines.append(f"{case.name}: refused: {said['refused']}")
            continue
        between = f"{said['low_seconds']:.3g} to {said['high_seconds']:.3g}"
        lines.append(
            f"{case.name}: {said['step_seconds']:.3g} s ({between}), {said['peak_gib']:.1f} GiB, {said['verdict']}"
        )
    node = node_of(profile, {})
    lines += [f"{kernel_name(one)}: {law_seconds(node, one) * 1e6:.4g} us" for one in shapes]
    return "\n".join(lines)


def _host(card: dict[str, Any]) -> dict[str, Any]:
    """Facts of the node that the machine has otherwise than its profile: a lent one has fewer cores."""
    return {"cpu_cores": card["cores"]}


def _measure_kernels(
    shapes: list[dict[str, Any]], records: dict[str, Any], options: argparse.Namespace, deadline: float, file: Path
) -> None:
    wanted = [one for one in shapes if options.again or kernel_name(one) not in records["kernels"]]
    node = node_of(records["profile"], _host(records["card"]))
    for place in range(0, len(wanted), GROUP):
        group = wanted[place : place + GROUP]
        if time.monotonic() > deadline:
            print(f"not run: the time of --seconds is over: {len(wanted) - place} kernels")
            return
        asked = {"device": options.device, "kernels": group, "seconds": ROUND_SECONDS / (20 if options.tiny else 1)}
        answer = ask(RUN, asked, LIMIT_SECONDS)
        told = answer.get("kernels") or [{"error": answer["error"]}] * len(group)
        for one, measured in zip(group, told, strict=True):
            records["kernels"][kernel_name(one)] = table.kernel_row(one, measured, law_seconds(node, one))
        _write(file, records)
        print(f"{place + len(group)} of {len(wanted)} kernels", flush=True)


def _measure_cases(
    cases: list[SpeedCase], records: dict[str, Any], options: argparse.Namespace, deadline: float, file: Path
) -> None:
    for case in cases:
        if case.name in records["cases"] and not options.again:
            continue
        if time.monotonic() > deadline:
            print(f"not run: the time of --seconds is over: {case.name}")
            continue
        said = predicted(case, records["profile"], _host(records["card"]))
        steps = {"warmup": 1, "steps": 2} if options.tiny else {"warmup": WARMUP, "steps": STEPS}
        asked = {"device": options.device, "request": filled(case.request), **steps}
        measured = ask(RUN, asked, LIMIT_SECONDS)
        records["cases"][case.name] = table.case_row(case.request, measured, said)
        _write(file, records)
        print(table.case_words(case.name, records["cases"][case.name]), flush=True)


def _write(file: Path, records: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_suffix(".part")
    half.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    half.replace(file)


def _read(file: Path) -> dict[str, Any]:
    """The records of a file; none where it is not there."""
    if not file.is_file():
        return {}
    kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return kept


if __name__ == "__main__":
    main()
