"""What the real programs do with public configs: whether they train two steps with each, or with which error they stop.

    python benchmarks/program_verdicts.py FOLDER PYTHON [--check] [--only PROGRAM] [--workers 2]

FOLDER holds the public configs and their labels.json. PYTHON is the interpreter of an environment with torch (CPU),
deepspeed, transformers, accelerate and lightning. Writes benchmarks/data/program-verdicts.json, which
tests/corpus/test_program_verdicts.py holds lint against, and its checksum; with --check it says which verdicts are
others. It takes a quarter of an hour. `program_runs.py`, beside this script, is what runs in that interpreter.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from transcribe import CHECKSUMS, DATA, PROGRAMS, checksums  # benchmarks/transcribe.py, beside this script

from dsgen.documents.hjson import reader

__all__ = ["NAMES"]

NAMES = ("deepspeed", "hf-trainer", "accelerate", "lightning")
LONGEST = 160  # letters of what a program says
MOST_RANKS = 4096  # a config that asks for more is run on one
_RUNS = Path(__file__).resolve().parent / "program_runs.py"
_DEGREES = (
    "zero_optimization.zero_hpz_partition_size",
    "zero_optimization.mics_shard_size",
    "tensor_parallel.autotp_size",
    "sequence_parallel_size",
)
# What the machine says, and not the config -> why the config is not judged by it.
_MACHINE: Mapping[str, str] = {
    r"No module named|ModuleNotFoundError|pip install": "a package is not installed there",
    r"No API key configured": "a service asks for a login",
    r"Data inconsistency within the TP group": "a process group that only stands in for others cannot compare data",
    r"no answer in|died without": "no answer",
}
Row = dict[str, Any]


def world(config: Any) -> int:
    """Ranks on which the batch sizes of a config can add up; those that a degree of parallelism needs; else one."""
    if not isinstance(config, Mapping):
        return 1
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    whole, micro, steps = (_count(config.get(name)) for name in names)
    if whole and micro:
        ranks, rest = divmod(whole, micro * (steps or 1))
        if not rest and 1 <= ranks <= MOST_RANKS and config.get(names[2]) != "auto":
            return ranks
        return 1
    return max((_count(_at(config, path)) or 1 for path in _DEGREES), default=1)


def _count(value: Any) -> int | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    return int(value) if number and 1 <= value <= 10**9 else None


def _at(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = config.get(name) if isinstance(config, Mapping) else None
    return config


def judged(said: Mapping[str, Any]) -> tuple[str, str]:
    """The verdict of one run, and the error's first line or why none is given."""
    if said["verdict"] == "runs":
        return "runs", ""
    for pattern, why in _MACHINE.items():
        if re.search(pattern, f"{said['error']} {said['where']}"):
            return "not judged", why
    return "stops", said["error"]


def asked(configs: Sequence[Path], python: str, programs: Iterable[str] = NAMES, workers: int = 2) -> list[Row]:
    """One record a program and config, in the order of both."""
    questions = [
        {"program": program, "file": str(path.resolve()), "world": ranks}
        for path, ranks in ((path, world(reader.read(path.read_text("utf-8"), path.name).config)) for path in configs)
        for program in programs
    ]
    shares = [questions[first::workers] for first in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        answers = [row for rows in pool.map(lambda share: list(_answers(share, python)), shares) for row in rows]
    return sorted(answers, key=lambda row: (NAMES.index(row["program"]), row["file"]))


def _answers(questions: Sequence[Mapping[str, Any]], python: str) -> Iterator[Row]:
    """What one child process answers to its share."""
    environment = {**os.environ, "PYTHONPATH": str(_RUNS.parent.parent)}
    with subprocess.Popen(
        [python, str(_RUNS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        releases = json.loads(child.stdout.readline())["releases"]
        for question in questions:
            child.stdin.write(json.dumps(question) + "\n")
            child.stdin.flush()
            yield _row(question, json.loads(child.stdout.readline()), releases)
        child.stdin.close()


def _row(question: Mapping[str, Any], said: Mapping[str, Any], releases: Mapping[str, str]) -> Row:
    path = Path(question["file"])
    verdict, error = judged(said)
    libraries = {"deepspeed": "deepspeed", "hf-trainer": "transformers", "accelerate": "accelerate"}
    library = libraries.get(question["program"], "lightning")
    return {
        "program": question["program"],
        "release": f"{library} {releases[library]}",
        "file": path.stem,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest()[:16],
        "ranks": question["world"],
        "verdict": verdict,
        "error": re.sub(r"(/\S*)?/(tmp|root|work|home)/\S*", "PATH", error)[:LONGEST],
        "told": said["told"],
    }


def written(rows: Iterable[Row]) -> str:
    """A JSON list, one record a line."""
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


def main() -> None:
    """Ask every program, and write or compare."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path, help="where the public configs and labels.json lie")
    options.add_argument("python", help="an interpreter with the programs")
    options.add_argument("--check", action="store_true", help="write nothing; exit 1 where a verdict is another")
    options.add_argument("--only", choices=NAMES, help="ask one program; what is known of the others stays")
    options.add_argument("--workers", type=int, default=2, help="child processes side by side")
    chosen = options.parse_args()
    labels = json.loads((chosen.folder / "labels.json").read_text(encoding="utf-8"))
    programs = (chosen.only,) if chosen.only else NAMES
    rows = asked([chosen.folder / label["file"] for label in labels], chosen.python, programs, chosen.workers)
    path = DATA / PROGRAMS
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    if not chosen.check:
        kept = [row for row in known if row["program"] not in programs]
        every = sorted([*kept, *rows], key=lambda row: (NAMES.index(row["program"]), row["file"]))
        path.write_text(written(every), encoding="utf-8", newline="\n")
        names = {line.split()[-1] for line in (DATA / CHECKSUMS).read_text(encoding="utf-8").splitlines()} | {PROGRAMS}
        texts = {name: (DATA / name).read_text(encoding="utf-8") for name in names}
        (DATA / CHECKSUMS).write_text(checksums(texts), encoding="utf-8", newline="\n")
        return
    before = {(row["program"], row["file"]): row["verdict"] for row in known}
    other = [row for row in rows if before.get((row["program"], row["file"])) != row["verdict"]]
    for row in other:
        print(json.dumps(row))
    if other:
        sys.exit(f"{len(other)} verdicts differ. Run it without --check.")


if __name__ == "__main__":
    main()
