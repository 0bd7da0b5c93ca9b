"""What a proof is made of: the config adapted to a few ranks, what must be observed, and the ranks' session."""

from __future__ import annotations

__all__: list[str] = []
