"""How many small faults in rules, memory and planner the tests notice: a sample, the same every time.

    python benchmarks/mutants.py [--count 200] [--seed 13] [--processes 2] [--only N ...] [--tests PATH ...]

Each mutant is a copy of the package with one node changed. First all tests run once without a fault, and the lines
that each runs are recorded (covering.py). A mutant then gets the tests that run its statement, and is killed when one
of them fails: first the quickest of each test function for some seconds, those that have its module's name before the
others; then of the rest as many of every function as some more seconds allow, those of its room before the others. What
survives is printed; more than one in twenty ends the run with an error, unless EQUIVALENT says why no test can tell.
`--only 3 7 --tests tests/memory` asks whether new tests kill two of them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import attrs

BENCHMARKS = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCHMARKS))

from mutations import Mutation, mutations  # noqa: E402

ROOT = BENCHMARKS.parent
PARTS = {"dsgen/linting/rules": 0.4, "dsgen/memory": 0.4, "dsgen/planning": 0.2}  # of the sample
LEAST = 0.95  # of the mutants die
# What concerns the three; the tests of rooms below them run none of their lines.
TESTS = ["tests/asking", "tests/cli", "tests/cost", "tests/house/test_api.py", "tests/house/test_golden.py",
         "tests/jobs", "tests/linting", "tests/memory", "tests/planning", "tests/rendering", "tests/report",
         "tests/simulating", "tests/strategies"]  # fmt: skip
FIRST_SECONDS = 3.0  # of tests that a mutant gets first; starting pytest takes about two
REST_SECONDS = 60.0  # of the others that it gets, a spread of them: what they leave alive counts as a survivor
HOME_SECONDS = 40.0  # of those at most in its room's own tests
PATIENCE = 10.0  # how much longer than without a fault tests may take; a fault that makes them longer has been noticed
SECONDS = 600.0  # for whole files
START_SECONDS = 60.0  # and as much for starting them, on a busy machine
MEMORY_BYTES = 8 << 30  # of a process: a fault may make a loop endless
NOT_COPIED = (".git", ".nox", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", "build", "dist")
SURVIVES = "SURVIVES"  # all tests that run a fault pass with it
NOT_FOUND = 4  # pytest's exit code where a test that is named is not there
# (path, line's text, fault) -> why no test can tell it from the original.
EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "dsgen/planning/planner.py",
        "counts = (count for count in range(job.world, 0, -1) if total % count == 0 and (count <= full or count % full == 0))",  # noqa: E501
        "count < full",
    ): "a node that is full is also a multiple of a node",
    (
        "dsgen/linting/rules/batch_sizes.py",
        "divides = subject.version >= SEQUENCE_ALONE or (",
        "subject.version > SEQUENCE_ALONE",
    ): "a release has three numbers, and (0, 17, 0), the least that begins with these two, is above (0, 17)",
    (
        "dsgen/planning/planner.py",
        "near = [item for item in ranked if _trusted(item.strategy, item.speed) >= best * (1 - TIE)]",
        "_trusted(item.strategy, item.speed) > best * (1 - TIE)",
    ): "a speed is a quotient of sums of floats: none is exactly 95 % of another",
    (
        "dsgen/planning/planner.py",
        "near = [item for item in ranked if item.speed * MEMORY_PRICE >= fastest.speed]",
        "item.speed * MEMORY_PRICE > fastest.speed",
    ): "no speed is exactly half of another",
    (
        "dsgen/planning/planner.py",
        "if chosen.cost.communication_share > WAITING:",
        "chosen.cost.communication_share >= WAITING",
    ): "no share of a step is exactly a half",
    (
        "dsgen/planning/candidates.py",
        "if tried and spent.tokens_per_second_per_gpu < ENOUGH * tried[0][1].tokens_per_second_per_gpu:",
        "spent.tokens_per_second_per_gpu <= ENOUGH * tried[0][1].tokens_per_second_per_gpu",
    ): "no speed is exactly 98 % of another",
    (
        "dsgen/memory/fits.py",
        "return 1 if layout.stage == 3 else 3 if job.model.tied_embeddings else 2",
        "4",
    ): "memory is the same from that pass on: a test holds it",
    (
        "dsgen/planning/planner.py",
        "@attrs.frozen(kw_only=True, slots=False)",
        "True",
    ): "attrs gives a class with slots its cached properties too, only slower",
    (
        "dsgen/planning/candidates.py",
        "@attrs.frozen(kw_only=True, slots=False)",
        "True",
    ): "attrs gives a class with slots its cached properties too, only slower",
    (
        "dsgen/memory/loose.py",
        "place = (one.block, one.place) if beside else (BEFORE, -1)",
        "2",
    ): "before the blocks there is one place, whatever its number",
    (
        "dsgen/memory/asked.py",
        "def felt(buffers: Buffers, stage: int, loose: bool = False) -> Buffers:",
        "True",
    ): "who leaves it out asks for what is held all the time, which reads no contiguous_gradients",
    (
        "dsgen/memory/buckets.py",
        "begin = end = 0",
        "1",
    ): "they are read where a bucket is filled, and what fills it has set them",
    (
        "dsgen/memory/trained.py",
        "@attrs.frozen(eq=False, repr=False)",
        "True",
    ): "equal ones give equal answers, from a cache too; comparing them is only slower",
    (
        "dsgen/memory/muon_matrices.py",
        "most = max(most, before + more + kept.taking((clones, 1, through)))",
        "2",
    ): "all buffers kept there are of one kind, whatever its number",
    (
        "dsgen/memory/asked.py",
        "max_reuse=buffers.max_reuse if gathers else 0,",
        "1",
    ): "a stage that gathers nothing reads no max_reuse",
    (
        "dsgen/memory/overheads.py",
        "_HBM = 600e9  # bytes/s: V100 has 900, T4 has 320",
        "600000000001.0",
    ): "no card has exactly as many bytes a second",
    (
        "dsgen/memory/activations/whole.py",
        "backward=course.backward(last, runs, plus(rest, blocks), ends, waiting, leaf if embeddings else 0),",
        "1",
    ): "a gradient of one byte fits into every bucket, so it never waits",
}  # fmt: skip


@attrs.frozen
class Record:
    """What a run without a fault has shown.

    Attributes:
        seconds: By test.
        lines: Path of a source -> line -> the tests that run it.
    """

    seconds: dict[str, float]
    lines: dict[str, dict[int, set[str]]]

    def covering(self, mutation: Mutation) -> set[str]:
        """The tests that run a mutant's statement; where importing alone does, those that run anything of its file."""
        lines = self.lines.get(name(mutation), {})
        return set().union(*(lines.get(line, set()) for line in mutation.statement)) or set().union(*lines.values())

    def total(self, tests: Iterable[str]) -> float:
        """Seconds of tests together."""
        return sum(self.seconds[test] for test in tests)


def name(mutation: Mutation) -> str:
    """The path of its source in the repository."""
    return mutation.path.relative_to(ROOT).as_posix()


def sample(count: int, seed: int) -> list[Mutation]:
    """Mutants of all three rooms, those whose digests come first: editing a line changes no other line's mutants."""
    drawn: list[Mutation] = []
    for package, share in PARTS.items():
        same: Counter[str] = Counter()
        digests: list[tuple[str, Mutation]] = []
        for fault in (fault for path in sorted((ROOT / package).rglob("*.py")) for fault in mutations(path)):
            said = f"{seed} {name(fault)} {text_of(fault)} {fault.before} {fault.after}"
            same[said] += 1
            digests.append((hashlib.sha256(f"{said} {same[said]}".encode()).hexdigest(), fault))
        drawn += [fault for _, fault in sorted(digests, key=lambda one: one[0])[: round(count * share)]]
    return drawn


def text_of(mutation: Mutation) -> str:
    """The line on which the node begins."""
    return mutation.path.read_text("utf-8").splitlines()[mutation.line - 1].strip()


def excused(mutation: Mutation) -> bool:
    """Whether a mutant is known to do what the original does."""
    return (name(mutation), text_of(mutation), mutation.after) in EQUIVALENT


def batches(mutation: Mutation, record: Record) -> Iterator[list[str]]:
    """Tests that run the mutant's statement: some seconds of the quickest, then a spread of the rest.

    A test comes the later, the longer it takes and the more of its function have come: a table of a hundred quick
    cases tells more than one slow test. Of the rest, those of the room that the mutant lies in come first.
    """
    own = mutation.path.stem.replace("_", "-")  # a rule's tests have its name
    room = f"tests/{mutation.path.relative_to(ROOT / 'dsgen').parts[0]}/"
    tests = sorted(record.covering(mutation), key=lambda test: record.seconds[test])
    ranks = _ranks(tests)
    ranked = sorted(tests, key=lambda test: (own not in test.replace("_", "-"), ranks[test]))
    first = next((upto for upto in range(1, len(tests)) if record.total(ranked[:upto]) > FIRST_SECONDS), len(tests))
    rest = sorted(ranked[first:], key=lambda test: hashlib.sha256(test.encode()).digest())
    ranks, total, spread = _ranks(rest), 0.0, []
    for test in sorted(rest, key=lambda test: (not test.startswith(room), ranks[test] * record.seconds[test])):
        if total + record.seconds[test] <= (HOME_SECONDS if test.startswith(room) else REST_SECONDS):
            total += record.seconds[test]
            spread.append(test)
    yield from (batch for batch in (ranked[:first], spread) if batch)


def _ranks(tests: list[str]) -> dict[str, int]:
    """Which case of its function each test is, in the order given."""
    functions: Counter[str] = Counter()
    ranks = {}
    for test in tests:
        function = test.partition("[")[0]
        functions[function] += 1
        ranks[test] = functions[function]
    return ranks


def pytest(home: Path, *arguments: str, timeout: float | None = None, **environment: str) -> int:
    """The exit code of pytest in a copy of the repository."""
    paths = os.pathsep.join([str(home), str(BENCHMARKS)])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not proof and not launch", *arguments],
        cwd=home,
        env={**os.environ, "PYTHONPATH": paths, "CI": "true", **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=timeout,
        check=False,
    )
    return done.returncode


def recorded(home: Path, tests: list[str]) -> Record:
    """Run tests without a fault, and note what each runs. A test that fails here is a RuntimeError."""
    to = home / "covered.json"
    folders = os.pathsep.join(str(home / package) for package in PARTS)
    # The only run that writes bytecode: a mutant is read from its source.
    without = {"COVERED_TO": str(to), "COVERED_FOLDERS": folders, "PYTHONDONTWRITEBYTECODE": ""}
    if pytest(home, "-p", "covering", *tests, **without) != 0:
        raise RuntimeError(f"tests fail without a fault: {' '.join(tests)}")
    said = json.loads(to.read_text())
    lines = {
        Path(file).relative_to(home).as_posix(): {int(line): set(by) for line, by in of_file.items()}
        for file, of_file in said["lines"].items()
    }
    return Record(said["seconds"], lines)


def fate(mutation: Mutation, record: Record, home: Path) -> str:
    """What becomes of a mutant in a copy of the repository: "dies", "late" (dies by the clock alone) or SURVIVES."""
    file = home / name(mutation)
    original, written = file.read_bytes(), file.stat()
    file.write_text(mutation.text, encoding="utf-8")
    try:
        for tests in batches(mutation, record):
            longest = START_SECONDS + PATIENCE * record.total(tests)
            code = pytest(home, "-x", *tests, timeout=longest, PYTHONDONTWRITEBYTECODE="1")
            if code == NOT_FOUND:  # a fault may rename a case, or break an import: their files tell
                files = sorted({test.partition("::")[0] for test in tests})
                code = pytest(home, "-x", *files, timeout=SECONDS, PYTHONDONTWRITEBYTECODE="1")
            if code != 0:
                return "dies"
    except subprocess.TimeoutExpired:
        return "late"
    finally:
        file.write_bytes(original)
        os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))  # its bytecode is right again
    return SURVIVES


def main() -> None:
    """Run the sample; print what survives, and the share that dies."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=200)
    options.add_argument("--seed", type=int, default=13)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--only", type=int, nargs="*", help="numbers of the sample, as they are printed")
    options.add_argument("--tests", nargs="*", default=TESTS, help="what may notice a fault; all that may by default")
    said = options.parse_args()
    began = time.monotonic()
    drawn = list(enumerate(sample(said.count, said.seed)))
    chosen = [(number, one) for number, one in drawn if not excused(one) and (not said.only or number in said.only)]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder) / "0"
        shutil.copytree(ROOT, first, ignore=shutil.ignore_patterns(*NOT_COPIED))
        record = recorded(first, said.tests)
        print(f"{len(record.seconds)} tests recorded in {time.monotonic() - began:.0f} s", flush=True)
        homes: Queue[Path] = Queue()
        homes.put(first)
        for process in range(1, said.processes):
            homes.put(shutil.copytree(first, Path(folder) / str(process)))

        def run(numbered: tuple[int, Mutation]) -> str:
            number, mutation = numbered
            home = homes.get()
            start = time.monotonic()
            try:
                ended = fate(mutation, record, home)
            finally:
                homes.put(home)
            what = f"{name(mutation)}:{mutation.line}: {mutation.before} -> {mutation.after}"
            taken = f"{time.monotonic() - start:5.1f} s"
            print(f"{ended:<8} {number:>3} {taken} {what}", flush=True)
            return ended

        with ThreadPoolExecutor(said.processes) as pool:
            fates = Counter(pool.map(run, chosen))
    dead = len(chosen) - fates[SURVIVES]
    share = dead / max(1, len(chosen))
    late = f", {fates['late']} of them by the clock" if fates["late"] else ""
    print(f"{dead} of {len(chosen)} mutants die{late}, {share:.1%}; {len(drawn) - len(chosen)} left out")
    print(f"{time.monotonic() - began:.0f} s in all")
    if share < LEAST:
        sys.exit(f"too many survive: at least {LEAST:.0%} must die")


if __name__ == "__main__":
    main()
