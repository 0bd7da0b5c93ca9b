"""What a DeepSpeed release reads: keys and their types, what it turns values into, and the environment it asks."""

from __future__ import annotations

from dsgen.deepspeed.environment import Variables, launcher_options, variables
from dsgen.deepspeed.surface import Effect, Key, Surface, known_versions, load

__all__ = ["Effect", "Key", "Surface", "Variables", "known_versions", "launcher_options", "load", "variables"]
