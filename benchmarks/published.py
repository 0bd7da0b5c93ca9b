"""How far the instant memory model agrees with measurements that others published: 1,547 records, each accounted for.

    python benchmarks/published.py [--check]

The measurements lie in benchmarks/data/published.json and published_2.json; docs/published.md is made of them. A record
with a peak is compared by it, or apart where its program held something that dsgen has no word for; one without by its
verdict (it ran, or ran out of memory); and each other one has a reason.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from published_cases import LEFT_OUT, PEAK, VERDICT, cases  # benchmarks/, beside this script
from published_page import page, summary

PAGE = Path(__file__).resolve().parent.parent / "docs" / "published.md"


def main() -> None:
    """Write the page, or with --check compare it; print the summary."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page would change")
    chosen = options.parse_args()
    found = cases()
    print(", ".join(f"{sum(case.kind == kind for case in found)} {kind}" for kind in (PEAK, VERDICT, LEFT_OUT)))
    print("\n".join(summary(found)))
    text = page(found)
    if chosen.check and (not PAGE.is_file() or PAGE.read_text("utf-8") != text):
        sys.exit("docs/published.md is stale. Run: nox -s published")
    if not chosen.check:
        PAGE.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
