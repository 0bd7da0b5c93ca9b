"""What the page on speeds says in words: what each source's number means, how a run is said, and causes of errors."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CAUSES", "HOW", "MEANINGS"]

MEANINGS: Mapping[str, str] = {}
HOW: tuple[str, ...] = ()
CAUSES: tuple[str, ...] = ()
