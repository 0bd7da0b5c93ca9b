"""Text to findings and fixes: what DeepSpeed refuses, ignores or does otherwise than written, and what mends it."""

from __future__ import annotations
