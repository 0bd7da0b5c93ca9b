"""The ways to run a Job, and what refuses one of them."""

from __future__ import annotations

from dsgen.strategies.strategies import Layout, Rejection, Strategy, batches, layouts

__all__ = ["Layout", "Rejection", "Strategy", "batches", "layouts"]
