"""A Job to a Plan: every strategy tried, the best that fits taken, and what would help where none does."""

from __future__ import annotations

from dsgen.planning.planner import Plan, plan

__all__ = ["Plan", "plan"]
