"""What the installed DeepSpeed makes of a config: parsed, held and chosen."""

from __future__ import annotations
