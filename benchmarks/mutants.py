"""How many small faults in rules, memory and planner the tests notice: a sample, the same every time.

    python benchmarks/mutants.py [--count 200] [--seed 13] [--processes 2] [--only N ...]

Each mutant is a copy of the package with one node changed. It is killed when a test fails: first the tests of its own
room, a rule's own before the others, and the golden scenarios with an eighth of the matrix; then those of neighbours.
What survives is printed; more than one in twenty ends the run with an error, unless EQUIVALENT says why no test can
tell.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

sys.path.insert(0, str(Path(__file__).resolve().parent))

from mutations import Mutation, mutations

ROOT = Path(__file__).resolve().parent.parent
PARTS = {"dsgen/linting/rules": 0.4, "dsgen/memory": 0.4, "dsgen/planning": 0.2}  # of the sample
LEAST = 0.95  # of the mutants die
SECONDS = 600.0  # for the tests of one mutant; a fault that makes them longer has been noticed
COPIED = ("dsgen", "tests", "golden", "profiles", "schema", "docs", "benchmarks", "pyproject.toml", "noxfile.py",
          "README.md", "CHANGELOG.md", ".github", ".pre-commit-config.yaml", "CONTRIBUTING.md")  # fmt: skip
_NO_TESTS = 5  # pytest's exit code where none has the name of a module
# (path, line's text, fault) -> why no test can tell it from the original.
EQUIVALENT: dict[tuple[str, str, str], str] = {}


def sample(count: int, seed: int) -> list[Mutation]:
    """Mutants of all three rooms, drawn at random from the faults of all files of each."""
    drawn: list[Mutation] = []
    for package, share in PARTS.items():
        every = [fault for path in sorted((ROOT / package).rglob("*.py")) for fault in mutations(path)]
        drawn += random.Random(seed).sample(every, min(round(count * share), len(every)))
    return drawn


def stages(mutation: Mutation) -> list[list[str]]:
    """Arguments of pytest, one run after the other, until a test fails."""
    name = mutation.path.relative_to(ROOT).as_posix()
    golden = ["tests/house/test_golden.py", "-k", "renders_as_committed or matrix or structures"]
    if name.startswith("dsgen/linting"):
        rules = sorted(f"tests/linting/{path.name}" for path in (ROOT / "tests/linting").glob("test_rules*.py"))
        # A rule's own tests have its name, which is its module's.
        return [["tests/linting", "-k", mutation.path.stem.replace("_", "-")], rules, ["tests/linting", "tests/report"]]
    if name.startswith("dsgen/planning"):
        return [["tests/planning"], golden, ["tests/rendering", "tests/jobs", "tests/asking"]]
    return [golden, ["tests/memory"], ["tests/asking", "tests/planning"]]


def survives(mutation: Mutation, home: Path) -> bool:
    """Whether all tests pass with the fault, in a copy of the repository."""
    file = home / mutation.path.relative_to(ROOT)
    original = file.read_bytes()
    environment = {**os.environ, "PYTHONPATH": str(home), "CI": "true", "PYTHONDONTWRITEBYTECODE": "1"}
    file.write_text(mutation.text, encoding="utf-8")
    began = time.monotonic()
    try:
        for arguments in stages(mutation):
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not proof"]
            done = subprocess.run(
                [*command, *arguments],
                cwd=home,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=max(1.0, SECONDS - (time.monotonic() - began)),
                check=False,
            )
            if done.returncode not in (0, _NO_TESTS):
                return False
    except subprocess.TimeoutExpired:
        return False
    finally:
        file.write_bytes(original)
    return True


def excused(mutation: Mutation) -> bool:
    """Whether a mutant is known to do what the original does."""
    line = mutation.path.read_text("utf-8").splitlines()[mutation.line - 1].strip()
    return (mutation.path.relative_to(ROOT).as_posix(), line, mutation.after) in EQUIVALENT


def main() -> None:
    """Run the sample; print what survives, and the share that dies."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=200)
    options.add_argument("--seed", type=int, default=13)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--only", type=int, nargs="*", help="numbers of the sample, as they are printed")
    said = options.parse_args()
    drawn = list(enumerate(sample(said.count, said.seed)))
    chosen = [(number, one) for number, one in drawn if not excused(one) and (not said.only or number in said.only)]
    homes: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory() as folder:
        for process in range(said.processes):
            home = Path(folder) / str(process)
            home.mkdir()
            for name in COPIED:
                copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
                copy(ROOT / name, home / name)
            homes.put(home)

        def run(numbered: tuple[int, Mutation]) -> Mutation | None:
            number, mutation = numbered
            home = homes.get()
            try:
                lives = survives(mutation, home)
            finally:
                homes.put(home)
            where = f"{mutation.path.relative_to(ROOT)}:{mutation.line}"
            fault = f"{mutation.before} -> {mutation.after}"
            print(f"{'SURVIVES' if lives else 'dies':<8} {number:>3} {where}: {fault}", flush=True)
            return mutation if lives else None

        with ThreadPoolExecutor(said.processes) as pool:
            alive = [one for one in pool.map(run, chosen) if one]
    share = 1 - len(alive) / max(1, len(chosen))
    print(f"{len(chosen) - len(alive)} of {len(chosen)} mutants die, {share:.1%}; {len(drawn) - len(chosen)} left out")
    if share < LEAST:
        sys.exit(f"too many survive: at least {LEAST:.0%} must die")


if __name__ == "__main__":
    main()
