"""What real releases of DeepSpeed say of public configs, as they are and as `dsgen migrate` leaves them.

    python benchmarks/releases.py FOLDER PYTHON [PYTHON ...] [--check]

FOLDER holds the public configs and their labels.json. Each PYTHON is the interpreter of an environment with one release
of DeepSpeed and torch 2.13.0. Writes benchmarks/data/deepspeed-releases.json, which tests/corpus/test_releases.py holds
`migrate` against, and its checksum; with --check it says which verdicts are others. A release takes about a minute.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from transcribe import CHECKSUMS, DATA, RELEASES, checksums  # benchmarks/transcribe.py, beside this script

from dsgen.effective import Effective, load_many
from dsgen.linting.asked import lint
from dsgen.linting.migrations import migrated
from dsgen.linting.sources import documents

__all__ = ["asked", "written"]

LONGEST = 160  # letters of what DeepSpeed says
Row = dict[str, str | bool | None]


def asked(configs: Sequence[Path], python: str) -> Iterator[Row]:
    """One record a config, as it is and then, where `migrate` changes it for that release, as it leaves it."""
    programs = {path: next(iter(documents([str(path)]))).target for path in configs}
    plain = _loaded(programs, python)
    release = plain[0].deepspeed
    yield from _rows(release, plain, moved=False)
    with tempfile.TemporaryDirectory() as folder:
        made: dict[Path, str] = {}
        for path, program in programs.items():
            move = migrated(lint(str(path), deepspeed=release, severity="info"))
            if move.applied:
                copy = Path(folder, f"{path.stem}.json")
                copy.write_text(move.text, encoding="utf-8")
                made[copy] = program
        yield from _rows(release, _loaded(made, python), moved=True)


def _loaded(programs: Mapping[Path, str], python: str) -> list[Effective]:
    """What a release makes of configs, each handed over by its program."""
    loaded: list[Effective] = []
    for program in sorted(set(programs.values())):
        loaded += load_many(
            [path for path, other in programs.items() if other == program], target=program, python=python
        )
    return loaded


def _rows(release: str, loaded: Iterable[Effective], *, moved: bool) -> Iterator[Row]:
    for one in sorted(loaded, key=lambda one: one.name):
        refused = one.refused and f"{one.refused.kind}: {one.refused.message}".splitlines()[0][:LONGEST]
        yield {"release": release, "file": Path(one.name).stem, "moved": moved, "refused": refused}


def written(rows: Iterable[Row]) -> str:
    """A JSON list, one record a line."""
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


def main() -> None:
    """Ask every release, and write or compare."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path, help="where the public configs and labels.json lie")
    options.add_argument("python", nargs="+", help="an interpreter with one release of DeepSpeed")
    options.add_argument("--check", action="store_true", help="write nothing; exit 1 where a verdict is another")
    chosen = options.parse_args()
    labels = json.loads((chosen.folder / "labels.json").read_text(encoding="utf-8"))
    configs = [chosen.folder / label["file"] for label in labels]
    rows = [row for python in chosen.python for row in asked(configs, python)]
    if not chosen.check:
        (DATA / RELEASES).write_text(written(rows), encoding="utf-8", newline="\n")
        names = [line.split()[-1] for line in (DATA / CHECKSUMS).read_text(encoding="utf-8").splitlines()]
        texts = {name: (DATA / name).read_text(encoding="utf-8") for name in names}
        (DATA / CHECKSUMS).write_text(checksums(texts), encoding="utf-8", newline="\n")
        return
    releases = {row["release"] for row in rows}
    known = [row for row in json.loads((DATA / RELEASES).read_text(encoding="utf-8")) if row["release"] in releases]
    other = [row for row in rows if row not in known] + [row for row in known if row not in rows]
    for row in other:
        print(json.dumps(row))
    if other:
        sys.exit(f"{len(other)} records differ. Run it without --check, with an interpreter for each release.")


if __name__ == "__main__":
    main()
