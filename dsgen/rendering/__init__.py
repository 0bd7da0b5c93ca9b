"""A Plan to a Config: the DeepSpeed dictionary, and for every key who decided it and why."""

from __future__ import annotations

from dsgen.rendering.configs import Config, Explanation, render

__all__ = ["Config", "Explanation", "render"]
