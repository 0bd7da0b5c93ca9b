"""The program: `dsgen`, which is `python -m dsgen`."""

from __future__ import annotations

import atexit
import gc
from typing import NoReturn

__all__ = ["OBJECTS", "main"]

# New objects between two searches for garbage: Python's own 700 take a fifth of a run that makes little garbage, and a
# single search after 100,000 takes 28 ms of the 280 of a plan with its offers, which makes up to 300,000.
OBJECTS = 500_000


def main() -> NoReturn:
    """Run the command line with garbage searched for rarely, from before the first import on, and exit."""
    gc.set_threshold(max(OBJECTS, gc.get_threshold()[0]))
    atexit.register(gc.freeze)  # else the interpreter searches everything for garbage as it ends: a sixth of a render
    from dsgen.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
