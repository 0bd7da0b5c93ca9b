"""`python -m dsgen` is `dsgen`."""

from __future__ import annotations

from dsgen.cli import main

__all__: list[str] = []

main()
