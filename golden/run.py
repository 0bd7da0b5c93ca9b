"""Check or rewrite everything golden: `python golden/run.py [--update] [--scenarios-only | --matrix-only]`."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from golden.scenes import Scene

__all__ = ["main"]

STARTS = 9  # of the control, before the matrix and behind it
ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str] | None = None) -> int:
    """Compare what is committed with what dsgen says now; exit 1 where they differ and nothing was updated."""
    parser = argparse.ArgumentParser(prog="golden/run.py", description="Check or rewrite the golden files.")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="compare (the default)")
    action.add_argument("--update", action="store_true", help="rewrite what differs")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--scenarios-only", action="store_true", help="leave the matrix alone")
    part.add_argument("--matrix-only", action="store_true", help="leave the scenarios alone")
    said = parser.parse_args(arguments)
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))  # the checkout's dsgen, not an installed one
    from dsgen.linting.rules import READS
    from golden import cells, files, matrix, rule_reads, scenes

    os.environ.pop("DSGEN_PROFILE_PATH", None)  # a person's own profiles are no part of the matrix
    wanted: dict[Path, str] = {}
    folders: list[Path] = []
    if not said.matrix_only:
        broken: list[str] = []
        rendered = [scene for name in scenes.names() if (scene := _rendered(name, broken)) is not None]
        if broken:
            print("\n".join([*broken, f"golden: {len(broken)} scenarios have no config; nothing was compared"]))
            return 1
        for scene in rendered:
            wanted |= scenes.texts(scene)
        wanted[READS] = rule_reads.text(scene.config for scene in rendered)
        folders += [scenes.CONFIGS, scenes.EXPLANATIONS]
    if not said.scenarios_only:
        before = _controls()
        start = time.process_time()
        configs: dict[str, str] = {}
        wanted[scenes.FOLDER / matrix.FILE_NAME] = matrix.text(configs)
        wanted[scenes.FOLDER / cells.FILE_NAME] = cells.text(configs)
        taken = time.process_time() - start
    differences = files.compare(wanted, folders)
    if not differences:
        print(f"golden: {len(wanted)} files are as committed")
        return 0 if said.scenarios_only else _in_time(taken, [*before, *_controls()])
    print(files.report(differences, ROOT))
    if said.update:
        files.update(differences)
        print("golden: updated; the diff is the review")
        return 0
    print("If the change is meant: python golden/run.py --update, and commit the diff.")
    return 1


def _in_time(taken: float, controls: Sequence[float]) -> int:
    """Whether the matrix took no more CPU seconds than it may; benchmarks/bench.py sets and records the bound.

    The bound is of the machine that it was recorded on. One that is slower, or that other work keeps busy, takes more
    for the same work, and for the control as well: the bound grows by that, and is never less.
    """
    from golden.machine import control_slowness

    recorded = json.loads((ROOT / "benchmarks" / "results.json").read_text("utf-8"))
    slower = control_slowness(statistics.median(controls), recorded["results"])
    most = recorded["bounds"]["matrix_cpu_s"] * slower
    print(f"golden: the matrix took {taken:.1f} CPU seconds, at most {most:.0f}: {slower:.2f} times as slow a machine")
    return 0 if taken <= most else 1


def _controls() -> list[float]:
    """CPU seconds of a few starts of the control."""
    from golden.machine import CONTROL, cpu_seconds

    return [cpu_seconds(CONTROL) for _ in range(STARTS)]


def _rendered(name: str, broken: list[str]) -> Scene | None:
    """One scenario; what is wrong with it goes to `broken`."""
    from dsgen.shapes.errors import DsgenError
    from golden import scenes

    try:
        return scenes.scene(name)
    except DsgenError as error:
        broken.append(f"golden/scenarios/{name}.yaml: {error}")
        return None


if __name__ == "__main__":
    sys.exit(main())
