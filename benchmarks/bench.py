"""How long dsgen takes, as ratios and times of one run against their bounds.

    python benchmarks/bench.py [--deepspeed PYTHON] [--update]

All is measured in CPU seconds, user and system: what waits for a core is not counted, and on a quiet
machine a process on one core takes as long. A cold start is the whole process, measured in rounds, a bare interpreter,
a control and then dsgen, so that what else the machine does meets all three. A series of rounds gives the median of
their ratios, which one disturbed process does not move; what a busy neighbour takes of the caches only raises it, by up
to a tenth, so of several series the lowest counts, and none follows one that is clearly below its bounds. So it is with
warm renders and strategies, measured before, amid and behind the rest. The control imports dsgen's libraries and
nothing of dsgen. Bounds and aims are those of the machine of the record (results.json). On one where the control takes
longer than it did there they grow as much: ratios by the control's own ratio, CPU seconds by its CPU seconds. They
never fall.

The matrix is measured where it is recorded, with --update; `nox -s golden`, which computes it anyway, holds the bound.

A bound ends the run with an error. An aim is what was asked for where the bound is above it; a miss is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dsgen
from dsgen.cost import layout_work, steps
from dsgen.memory import estimate
from dsgen.strategies import strategies
from dsgen.strategies.buffers import choose

FOLDER = Path(__file__).resolve().parent
sys.path.append(str(FOLDER.parent))  # golden/ is a folder of the checkout, not of the installed package

from golden.machine import CONTROL, control_slowness, cpu_seconds, import_slowness  # noqa: E402

RESULTS = FOLDER / "results.json"
PACKAGES = ("dsgen", "attrs", "cattrs", "click", "ruamel.yaml")

SERIES = 3  # of cold starts, of which the lowest counts
CLEARLY = 0.95  # of a bound: medians of two series differ by less, and so does the control
PAIRS = 15  # of a series; the median is then stable to a few percent
ROUNDS = 15  # of warm renders of every scene
SCENES = (("a100-40g", "7b"), ("t4-16g", "1b"), ("h100-80g", "llama-3.1-70b"), ("mi300x-192g", "mixtral-8x7b"))
SCENARIO = ("--hw", "a100-40g", "--model", "7b")
WALKED, WALKED_ON = ("gemma-3-27b", "llama-3.1-405b", "deepseek-v3", "1t"), "b300-288g"  # of the most modules

# What a person feels: a command that answers at once, a loop over scenarios that does not stall, a matrix in minutes.
# A strategy's memory and time must cost so little that a search may ask for hundreds.
BOUNDS = {
    "cold_start_ratio": 12.0,
    "cold_plan_ratio": 16.5,
    "warm_render_ms": 3.5,
    "strategy_us": 25.0,
    "cost_us": 70.0,
    "first_walk_ms": 33.0,
    "matrix_cpu_s": 90.0,
    "cold_lint_ratio": 13.0,
    "lint_cpu_ms_per_file": 3.5,
}
# What was asked for where a bound is above it. Of a cold plan a quiet machine takes 13.9 to 15.5, and of a first walk
# 28.6 to 29.5 ms, by the machine of the record.
AIMS = {
    "matrix_cpu_s": 60.0,
    "cold_plan_ratio": 15.0,
    "warm_render_ms": 3.0,
    "first_walk_ms": 30.0,
    "cold_lint_ratio": 12.0,
}
OF_STARTS = ("cold_start_ratio", "cold_plan_ratio", "cold_lint_ratio")  # told by a bare interpreter, not in CPU seconds
FLOORS = {"lint_ratio": 300.0}  # times faster per file than asking DeepSpeed
LINTED = FOLDER.parent / "golden" / "configs" / "fp16-t4-one-gpu.json"  # one cold file
LINTS = 5  # runs over the folder; the median counts
STARTS = 3  # of DeepSpeed; it takes seconds each time
# The least that asks DeepSpeed itself: import it and let it parse one file. Initialize and a step come on top.
ASK = "import sys; from deepspeed.runtime.config import DeepSpeedConfig; DeepSpeedConfig(sys.argv[1])"


def cold_start(every: bool) -> dict[str, float]:
    """`dsgen render`, `plan` and `lint` as a person runs them, against `python -c pass`, and the control.

    Args:
        every: Measure all series, as a record has them.
    """
    for command in ("render", "plan"):
        cpu_seconds([_dsgen(), command, *SCENARIO])  # the first one compiles what pip did not
    cpu_seconds([_dsgen(), "lint", str(LINTED)])
    series: list[dict[str, float]] = []
    while len(series) < SERIES:
        series.append(_starts())
        least = min(series, key=lambda one: one["cold_start_ratio"])
        found = {**least, **{name: min(one[name] for one in series) for name in ("cold_plan_ratio", "cold_lint_ratio")}}
        if not every and _clearly(found, _slower(found)):
            break
    return found


def _starts() -> dict[str, float]:
    """One series of cold starts."""
    commands: tuple[Sequence[str], ...] = (
        [sys.executable, "-c", "pass"],
        CONTROL,
        [_dsgen(), "render", *SCENARIO],
        [_dsgen(), "plan", *SCENARIO],
        [_dsgen(), "lint", str(LINTED)],
    )
    rounds = [[cpu_seconds(command) for command in commands] for _ in range(PAIRS)]
    return {
        "python_cpu_ms": statistics.median(bare for bare, *_ in rounds) * 1e3,
        "control_cpu_ms": statistics.median(control for _, control, *_ in rounds) * 1e3,
        "cold_start_cpu_ms": statistics.median(full for _, _, full, *_ in rounds) * 1e3,
        "control_ratio": statistics.median(control / bare for bare, control, *_ in rounds),
        "cold_start_ratio": statistics.median(full / bare for bare, _, full, *_ in rounds),
        "cold_plan_ratio": statistics.median(planned / bare for bare, _, _, planned, _ in rounds),
        "cold_lint_ratio": statistics.median(linted / bare for bare, *_, linted in rounds),
    }


def _dsgen() -> str:
    """The command of the interpreter that runs this."""
    return str(Path(sys.executable).with_name("dsgen"))


def warm_render() -> float:
    """`dsgen.render` from layers to Config, in CPU milliseconds: the slowest scene's median."""
    medians = []
    for hardware, model in SCENES:
        layers = dsgen.profile(hardware) | dsgen.profile(model)
        dsgen.render(layers)
        medians.append(statistics.median(_used(lambda: dsgen.render(layers)) for _ in range(ROUNDS)))  # noqa: B023
    return max(medians) * 1e3


def _warm() -> dict[str, float]:
    """What a process does that has dsgen at hand."""
    return {"warm_render_ms": warm_render(), "first_walk_ms": first_walk(), **estimates_of_strategies()}


def first_walk() -> float:
    """The memory of one strategy of a model that was never asked about, in CPU milliseconds: the slowest model's least.

    ZeRO-3 with checkpointing: every module is walked forward, again and backward, as its tensors are gathered.
    """
    least = []
    for model in WALKED:
        job = dsgen.job(dsgen.profile(WALKED_ON) | dsgen.profile(model))
        layouts = (one for one in strategies.layouts(job) if not isinstance(one, strategies.Rejection))
        layout = next(one for one in layouts if one.stage == 3 and one.checkpointing)
        sizes = choose(job, layout.stage, layout.tp, layout.offload_optimizer, layout.offload_param)
        chosen = strategies.strategy(layout, next(iter(strategies.batches(job, layout))), sizes)
        each = []
        for _ in range(ROUNDS):
            for cached in memory_caches():
                cached.cache_clear()
            each.append(_used(lambda: estimate(job, chosen)))  # noqa: B023
        least.append(min(each))
    return max(least) * 1e3


def estimates_of_strategies() -> dict[str, float]:
    """Memory and time of every strategy that a plan of a scene weighs: the slowest scene's mean, in its best round.

    Of rounds of the same work the lowest counts, as of cold starts: what another takes more is a neighbour's.
    The first time a model's operators are walked through; that is shared by all its strategies and counted apart. A
    cost is remembered by its strategy, and what batches have in common by their layout: both are forgotten each time.
    """
    first, again, costs = [], [], []
    for hardware, model in SCENES:
        job = dsgen.plan(dsgen.profile(hardware) | dsgen.profile(model)).job
        weighed = []
        for layout in strategies.layouts(job):
            triples = () if isinstance(layout, strategies.Rejection) else strategies.batches(job, layout)
            if isinstance(triples, str) or isinstance(layout, strategies.Rejection):
                continue
            sizes = choose(job, layout.stage, layout.tp, layout.offload_optimizer, layout.offload_param)
            weighed += [strategies.strategy(layout, triple, sizes) for triple in triples]
        for cached in memory_caches():
            cached.cache_clear()
        each = [_used(lambda: [estimate(job, one) for one in weighed]) / len(weighed) for _ in range(ROUNDS)]  # noqa: B023
        first.append(each[0])
        again.append(min(each[1:]))
        each = []
        for _ in range(ROUNDS):
            steps._cost.cache_clear()
            layout_work._layout_work.cache_clear()
            each.append(_used(lambda: [steps.cost(job, one) for one in weighed]) / len(weighed))  # noqa: B023
        costs.append(min(each[1:]))
    return {"strategy_us": max(again) * 1e6, "strategy_first_us": max(first) * 1e6, "cost_us": max(costs) * 1e6}


def memory_caches() -> list[Any]:
    """What the memory model remembers of models and layouts."""
    modules = [module for name, module in sys.modules.items() if name.startswith(("dsgen.memory", "dsgen.families"))]
    return [value for module in modules for value in vars(module).values() if hasattr(value, "cache_clear")]


def whole_matrix() -> dict[str, float]:
    """Every row of golden/matrix.csv, on one core."""
    from golden import matrix

    start = time.process_time()
    rows = matrix.text().count("\n") - 1
    return {"matrix_cpu_s": time.process_time() - start, "matrix_rows": rows}


def lint_folder(deepspeed: str) -> dict[str, float]:
    """`dsgen lint` over a folder of configs in one process, against DeepSpeed's own parse of one config."""
    folder = FOLDER.parent / "golden" / "configs"
    files = sum(path.is_file() for path in folder.rglob("*"))
    command = [_dsgen(), "lint", str(folder), "--exit-zero", "--format", "json"]
    cpu_seconds(command)
    seconds = statistics.median(cpu_seconds(command) for _ in range(LINTS))
    one = folder / "fp16-t4-one-gpu.json"  # the batch of one process, as it is parsed in
    asked = statistics.median(cpu_seconds([deepspeed, "-c", ASK, str(one)]) for _ in range(STARTS))
    return {
        "lint_files": files,
        "lint_folder_cpu_s": seconds,
        "lint_cpu_ms_per_file": seconds / files * 1e3,
        "deepspeed_parse_cpu_s": asked,
        "lint_ratio": asked / (seconds / files),
    }


def record(results: dict[str, float], deepspeed: str) -> dict[str, Any]:
    """The results with what they were measured on."""
    asked = [deepspeed, "-c", "from importlib import metadata; print(metadata.version('deepspeed'))"]
    versions = {
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
        "deepspeed": subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip(),
    }
    return {
        "bounds": BOUNDS,
        "aims": AIMS,
        "floors": FLOORS,
        "results": {name: round(value, 1) for name, value in results.items()},
        "versions": versions,
        "machine": {"system": platform.system(), "architecture": platform.machine(), "cores": os.cpu_count()},
    }


def main() -> None:
    """Measure, print, with --update record; exit 1 when a bound is broken."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--update", action="store_true", help=f"write {RESULTS.name}")
    options.add_argument("--deepspeed", default=sys.executable, help="the Python that has DeepSpeed")
    chosen = options.parse_args()
    os.environ.pop("DSGEN_PROFILE_PATH", None)  # a person's own profiles are no part of the matrix
    warm = [_warm()]
    results = cold_start(chosen.update)
    again = chosen.update or not _clearly(warm[0], _slower(results))
    warm += [_warm()] if again else []
    of_files = lint_folder(chosen.deepspeed)
    warm += [_warm()] if again else []
    results |= {name: min(one[name] for one in warm) for name in warm[0]} | of_files
    if chosen.update:
        results |= whole_matrix()
    slower = _slower(results)
    for name, value in results.items():
        print(f"{name:<22} {value:>10,.1f}{_beside(name, value, slower)}")
    if chosen.update:
        RESULTS.write_text(json.dumps(record(results, chosen.deepspeed), indent=2) + "\n", encoding="utf-8")
        print(f"wrote {RESULTS.name}")
    broken = [name for name, bound in BOUNDS.items() if name in results and results[name] > bound * slower[name]]
    broken += [name for name, bound in FLOORS.items() if results[name] < bound]
    if broken:
        sys.exit(f"too slow: {', '.join(broken)}")


def _clearly(results: Mapping[str, float], slower: Mapping[str, float]) -> bool:
    """Whether what is measured by now is clearly within its bounds."""
    return all(value <= CLEARLY * BOUNDS[name] * slower[name] for name, value in results.items() if name in BOUNDS)


def _slower(results: Mapping[str, float]) -> dict[str, float]:
    """By which each bound grows on this machine."""
    recorded = json.loads(RESULTS.read_text(encoding="utf-8"))["results"]
    starts = import_slowness(results["control_ratio"], recorded)
    computes = control_slowness(results["control_cpu_ms"] / 1e3, recorded)
    return {name: starts if name in OF_STARTS else computes for name in BOUNDS}


def _beside(name: str, value: float, slower: Mapping[str, float]) -> str:
    """What a result may be at most or at least here, and is on the machine of the record."""
    if name in FLOORS:
        return f"  at least {FLOORS[name]:g}"
    if name not in BOUNDS:
        return ""
    here = BOUNDS[name] * slower[name]
    said = f"  at most {here:.1f}: {BOUNDS[name]:g} x {slower[name]:.2f}"
    if name not in AIMS:
        return said
    return f"{said}; aim {AIMS[name] * slower[name]:.1f}{': missed' if value > AIMS[name] * slower[name] else ''}"


def _used(action: Callable[[], object]) -> float:
    """CPU seconds of this process."""
    start = time.process_time()
    action()
    return time.process_time() - start


if __name__ == "__main__":
    main()
