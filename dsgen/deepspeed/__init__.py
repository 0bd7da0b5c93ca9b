"""What a DeepSpeed release reads: keys and their types, what it turns values into, and the environment it asks.

The environment is taken from `dsgen.deepspeed.environment`: a config is rendered without it.
"""

from __future__ import annotations

from dsgen.deepspeed.surface import Effect, Key, Surface, known_versions, load

__all__ = ["Effect", "Key", "Surface", "known_versions", "load"]
