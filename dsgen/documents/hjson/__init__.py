"""JSON and HJSON as the package hjson reads them, which is how DeepSpeed reads its config."""

from __future__ import annotations
