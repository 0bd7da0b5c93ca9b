"""What the host does in a step of a real run on one GPU: its time by phase, launches, and where its Python is.

    python benchmarks/gpu_speed_host.py [--list] [--only WORDS] [--seconds N] [--output FILE] [--samples FOLDER]

A step that the GPU does not fill takes what the host takes. So each run is timed twice: as it is, and with sequences of
few tokens, in which kernels take next to nothing and the step's time is the host's. Then one step goes through torch's
profiler (how many operators, launches and waits, how long the GPU is busy), and with --samples and py-spy short steps
are sampled. Needs what gpu_speed.py needs; without a GPU it says what was not run. A run that is recorded in --output
is not made again (--again does).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["CASES", "main"]

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "gpu_speed_host.json"
WARMUP, STEPS = 3, 5
SHORT_TOKENS = 8  # of a sequence whose kernels take next to nothing
SAMPLED_SECONDS = 4.0
SAMPLES_PER_SECOND = 250
LIMIT_SECONDS = 300
RANGE = "Optimizer."  # what torch puts about the kernels of a step: no kernel
MOST_NAMES = 12  # of kernels and operators that are told
_1B, _8B = {"model": "llama-3.2-1b"}, {"model": "llama-3.1-8b"}
CASES: tuple[dict[str, Any], ...] = (
    {**_1B, "stage": 2, "seq_len": 2048},
    {**_1B, "stage": 3, "seq_len": 2048, "micro_batch": 4},
    {**_8B, "stage": 0, "seq_len": 2048, "checkpointing": True, "method": "lora"},
    {**_8B, "stage": 3, "seq_len": 2048, "micro_batch": 2, "checkpointing": True, "method": "lora"},
    {**_8B, "stage": 0, "seq_len": 512, "method": "qlora"},
    {**_1B, "stage": 0, "seq_len": 2048},
    {**_1B, "stage": 2, "seq_len": 2048, "micro_batch": 4, "method": "lora"},
)


def main() -> None:
    """Look at every case; with a case on stdin and --child, at that one."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--list", action="store_true", help="print the cases")
    options.add_argument("--only", default="", metavar="WORDS", help="what has these words in its name")
    options.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so many seconds")
    options.add_argument("--again", action="store_true", help="what is recorded too")
    options.add_argument(
        "--output", type=Path, default=RESULTS, metavar="FILE", help=f"{RESULTS.name} beside this file"
    )
    options.add_argument("--samples", type=Path, metavar="FOLDER", help="where py-spy's samples go (default: nowhere)")
    asked = options.parse_args()
    if asked.child:
        _child()
        return
    from gpu_memory_cases import case_of

    cases = [case for case in (case_of(**said) for said in CASES) if asked.only in case.name]
    if asked.list:
        print(*(case.name for case in cases), sep="\n")
        return
    _look(cases, asked)


def _look(cases: Sequence[Any], asked: argparse.Namespace) -> None:
    """Each case in a process of its own, recorded at once."""
    from gpu_memory import ask

    from dsgen.engine.simulate.requests import filled

    deadline = time.monotonic() + asked.seconds
    record = json.loads(asked.output.read_text("utf-8")) if asked.output.is_file() else {"runs": {}}
    for number, case in enumerate(cases):
        if case.name in record["runs"] and not asked.again:
            continue
        if time.monotonic() > deadline:
            print(f"not run: the time of --seconds is over: {case.name}")
            continue
        samples = str(asked.samples / f"samples_{number}.txt") if asked.samples else ""
        question = {"request": filled(case.request), "samples": samples}
        told = ask([sys.executable, str(Path(__file__)), "--child"], question, LIMIT_SECONDS)
        if "error" in told:
            print(f"not run: {case.name}: {told['error']['type']}: {told['error']['message'].splitlines()[0]}")
            continue
        facts = {name: told.pop(name) for name in ("card", "versions")}
        date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        record = {**record, **facts, "date": date, "runs": {**record["runs"], case.name: told}}
        print(f"{case.name}: {told['step']['seconds']:.3g} s, short {told['short']['seconds']:.3g} s", flush=True)
        asked.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _child() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    question = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        answer = _looked_at(question["request"], question["samples"])
    except BaseException as error:  # whatever ends the run is told
        answer = {"error": {"type": type(error).__name__, "message": str(error)[:500]}}
    json.dump(answer, answers)
    answers.flush()
    os._exit(0)


def _looked_at(request: dict[str, Any], samples: str) -> dict[str, Any]:
    from gpu_memory_card import Card
    from gpu_memory_run import join_world, versions
    from gpu_speed_run import _batch, _model

    card = Card()
    facts = card.open()
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != FOLDER]
    import deepspeed

    join_world(card.backend)
    deepspeed.init_distributed(dist_backend=card.backend, verbose=False)
    model = _model(request, card.device)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    engine, *_ = deepspeed.initialize(model=model, model_parameters=trained, config=request["config"])
    usual, short = _batch(request, card.device), _batch({**request, "seq_len": SHORT_TOKENS}, card.device)

    def step(tokens: Any) -> dict[str, float]:
        card.wait()
        marks = [time.perf_counter()]
        loss = engine(input_ids=tokens, labels=tokens).loss
        marks.append(time.perf_counter())
        engine.backward(loss)
        marks.append(time.perf_counter())
        engine.step()
        marks.append(time.perf_counter())
        card.wait()
        phases = ("forward", "backward", "step")
        spent = {f"{name}_seconds": marks[place + 1] - marks[place] for place, name in enumerate(phases)}
        return {**spent, "seconds": time.perf_counter() - marks[0]}

    def median(tokens: Any) -> dict[str, float]:
        for _ in range(WARMUP):
            step(tokens)
        rounds = [step(tokens) for _ in range(STEPS)]
        least = min(one["seconds"] for one in rounds)
        return {**{key: statistics.median(one[key] for one in rounds) for key in rounds[0]}, "least_seconds": least}

    told = {
        "card": facts["name"],
        "versions": versions(),
        "modules": sum(1 for _ in model.modules()),
        "step": median(usual),
    }
    told |= {"short": median(short), "profiled": _profiled(lambda: step(usual))}
    if samples and shutil.which("py-spy"):
        _sampled(lambda: step(short), samples)
    return told


def _profiled(step: Any) -> dict[str, Any]:
    """One step by torch's profiler: kernels, operators, calls of CUDA's runtime; count and seconds of each."""
    import torch
    from torch.autograd import DeviceType

    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profiler:
        spent = step()
    sums: dict[str, dict[str, list[float]]] = {"kernels": {}, "runtime": {}, "operators": {}}
    busy: list[tuple[float, float]] = []
    for event in profiler.events():
        began, ended = event.time_range.start, event.time_range.end
        on_card = event.device_type == DeviceType.CUDA
        if on_card and event.name.startswith(RANGE):
            continue
        if on_card:
            busy.append((began, ended))
        kind = "kernels" if on_card else "runtime" if event.name.startswith(("cuda", "cu")) else "operators"
        seconds = (ended - began if on_card else event.self_cpu_time_total) * 1e-6
        row = sums[kind].setdefault(event.name[:100], [0, 0.0])
        row[0] += 1
        row[1] += seconds
    union, reached = 0.0, float("-inf")
    for began, ended in sorted(busy):
        union += max(0.0, ended - max(began, reached))
        reached = max(reached, ended)
    told: dict[str, Any] = {"seconds": spent["seconds"], "busy_seconds": union * 1e-6}
    for kind, rows in sums.items():
        most = sorted(rows.items(), key=lambda row: -row[1][1])[:MOST_NAMES]
        told[kind] = {"count": sum(int(row[0]) for row in rows.values()), "seconds": sum(r[1] for r in rows.values()),
                      "most": [[name, int(count), round(seconds, 7)] for name, (count, seconds) in most]}  # fmt: skip
    return told


def _sampled(step: Any, file: str) -> None:
    """Samples of this process in steps, as py-spy writes them: stacks and how often each was seen."""
    command = ["py-spy", "record", "--pid", str(os.getpid()), "--rate", str(SAMPLES_PER_SECOND), "--format", "raw",
               "--duration", str(int(SAMPLED_SECONDS)), "--output", file, "--full-filenames"]  # fmt: skip
    sampler = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while sampler.poll() is None:
        step()


if __name__ == "__main__":
    main()
