"""How often a run saves: so often that a failure costs no more than half an hour of work."""

from __future__ import annotations

__all__ = ["AT_RISK_SECONDS", "KEPT", "save_steps"]

AT_RISK_SECONDS = 1800  # of work that a failure may cost: a checkpoint is due so often
KEPT = 2  # checkpoints that are kept: the newest may be cut short by a crash


def save_steps(step_seconds: float) -> int:
    """Optimizer steps between two checkpoints."""
    return max(1, round(AT_RISK_SECONDS / step_seconds))
