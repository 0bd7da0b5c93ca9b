"""Write the generated docs and the outputs shown in the hand-written ones, or check that they are as committed.

python docs/generate.py --check | --update
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from dsgen.catalog.lookup import KINDS, PATH_VARIABLE
from dsgen.cli import cli
from dsgen.report.reference import commands_page, pages
from dsgen.report.reference.rules import rule_pages
from examples import with_real_outputs  # docs/examples.py, beside this script

DOCS = Path(__file__).resolve().parent
REPOSITORY = DOCS.parent
WRITTEN_BY_HAND = (
    REPOSITORY / "README.md",
    *(
        DOCS / f"{name}.md"
        for name in ("index", "memory", "plan", "calibrate", "diagnose", "frameworks", "hardware", "adopt", "launch")
    ),
    DOCS / "committed.md",
    DOCS / "migrate.md",
)
MOST_DIFF_LINES = 40  # of one stale file; enough to see what changed


def texts() -> dict[Path, str]:
    """Every file this script answers for, and what it must hold."""
    generated = {
        DOCS / name: text for name, text in {**pages(), **rule_pages(), "commands.md": commands_page(cli)}.items()
    }
    return {**generated, **{path: with_real_outputs(path.read_text("utf-8")) for path in WRITTEN_BY_HAND}}


def stale(wanted: Mapping[Path, str]) -> dict[Path, str]:
    """Each file that differs from what it must hold, with the start of the diff; "" for one that must go."""
    found: dict[Path, str] = {}
    for path, text in wanted.items():
        now = path.read_text("utf-8") if path.is_file() else ""
        if now != text:
            lines = difflib.unified_diff(now.splitlines(), text.splitlines(), "committed", "real", lineterm="")
            found[path] = "\n".join(list(lines)[:MOST_DIFF_LINES])
    left_over = {path for kind in (*KINDS, "rules") for path in (DOCS / kind).glob("*.md")} - wanted.keys()
    return {**found, **dict.fromkeys(sorted(left_over), "")}


def main() -> None:
    """Write what is stale, or with --check print it and exit 1."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = options.add_mutually_exclusive_group(required=True)
    mode.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file would change")
    mode.add_argument("--update", action="store_true", help="write the files")
    chosen = options.parse_args()
    os.environ.pop(PATH_VARIABLE, None)  # a person's own profiles are not ours to document
    wanted = texts()
    found = stale(wanted)
    for path, diff in found.items():
        name = path.relative_to(REPOSITORY)
        if chosen.check:
            print(f"stale: {name}\n{diff}" if path in wanted else f"left over: {name}")
        elif path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8", newline="\n")
            print(f"wrote {name}")
        else:
            path.unlink()
            print(f"removed {name}")
    if chosen.check and found:
        sys.exit("The docs are not what the code says. Run: nox -s docs -- update, and look at the diff.")


if __name__ == "__main__":
    main()
