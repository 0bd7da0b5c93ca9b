"""How far the speed model agrees with what others measured: 1,547 records, each accounted for.

    python benchmarks/published_speed.py [--check] [--json FILE [--held-back]]

The measurements lie in benchmarks/data/published.json and published_2.json; docs/speed.md is made of them. A third of
the rows, chosen by a hash of their names, is held back: the page has only their sums, so that a change that was made
while looking at the others can be judged by them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from published_speed_cases import LEFT_OUT, SpeedCase, speed_cases  # benchmarks/, beside this script
from published_speed_page import page, summary

PAGE = Path(__file__).resolve().parent.parent / "docs" / "speed.md"


def main() -> None:
    """Write the page, or with --check compare it; print the summary; with --json write the rows."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page would change")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, and no page")
    options.add_argument("--held-back", action="store_true", help="with --json: those that are held back, too")
    chosen = options.parse_args()
    found = speed_cases()
    print("\n".join(summary(found)))
    if chosen.json:
        said = [case for case in found if case.kind != LEFT_OUT and (chosen.held_back or not case.held_back)]
        chosen.json.write_text(rows(said), encoding="utf-8", newline="\n")
        return
    text = page(found)
    if chosen.check and (not PAGE.is_file() or PAGE.read_text("utf-8") != text):
        sys.exit("docs/speed.md is stale. Run: nox -s published")
    if not chosen.check:
        PAGE.write_text(text, encoding="utf-8", newline="\n")


def rows(cases: Iterable[SpeedCase]) -> str:
    """The rows as a JSON list, one a line: measured and predicted tokens/s/GPU, and the parts of a step in seconds."""
    return "[\n" + ",\n".join(json.dumps(_row(case)) for case in cases) + "\n]\n"


def _row(case: SpeedCase) -> dict[str, Any]:
    assert case.ours is not None
    return {
        "id": case.name,
        "source": case.source,
        "kind": case.kind,
        "reason": case.reason,
        "grade": case.grade,
        "system": case.system,
        "held_back": case.held_back,
        "measured": case.measured,
        "predicted": case.speed,
        "low": case.ours.low,
        "high": case.ours.high,
        "error": case.error,
        "measured_seconds": case.ours.seconds * case.speed / case.measured,
        "step_seconds": case.ours.seconds,
        "parts": dict(case.ours.parts),
        "assumed": case.assumed,
        "setup": dict(case.setup),
    }


if __name__ == "__main__":
    main()
