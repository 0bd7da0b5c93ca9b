"""What the installed DeepSpeed reads: its keys, defaults and classes, dumped from its own source."""

from __future__ import annotations
