"""YAML with places: a reader of plain types, and a writer that keeps the comment beside each key."""

from __future__ import annotations
