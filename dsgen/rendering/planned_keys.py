"""One key that the plan writes: its value, its reason, and the wish it follows."""

from typing import Any, NamedTuple

__all__ = ["PlannedKey"]


class PlannedKey(NamedTuple):
    """A DeepSpeed key as the plan decides it.

    Attributes:
        path: Dotted DeepSpeed path, without `deepspeed.`.
        value: A plain JSON value.
        reason: Why this value, with the number where there is one.
        wish: Path of the wish it follows (`training.lr`); its comment and place are shown instead of `planner`.
    """

    path: str
    value: Any
    reason: str
    wish: str | None = None
