"""Profiles that a test writes, and what the catalog says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsgen import catalog
from dsgen.shapes.errors import DsgenError

__all__ = ["error_of", "value", "write"]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def value(profile: catalog.Profile, path: str) -> object:
    return [override.value for override in profile.layer.overrides if override.path == path][-1]


def error_of(kind: str, name: str) -> str:
    with pytest.raises(DsgenError) as caught:
        catalog.find(kind, name)
    return str(caught.value)
