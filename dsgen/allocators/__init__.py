"""PyTorch's caching allocator for CUDA, as arithmetic: for the simulated engine and for the instant model."""

from __future__ import annotations

from dsgen.allocators.caching import Allocator
from dsgen.allocators.expandable import Expandable

__all__ = ["Allocator", "Expandable"]
