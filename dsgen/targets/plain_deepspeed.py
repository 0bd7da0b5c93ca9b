"""Plain DeepSpeed: a program that hands the file or the map to deepspeed.initialize as it is.

Read in DeepSpeed 0.19.8: runtime/config.py (`DeepSpeedConfig.__init__`) takes a path, a map or base64 text, and reads a
file with hjson; it fills nothing in.
"""

from __future__ import annotations

from dsgen.targets.target import Target

__all__ = ["PLAIN_DEEPSPEED"]

PLAIN_DEEPSPEED = Target(name="deepspeed", title="plain DeepSpeed")
