"""Where dsgen's own data lies: profiles/ and schema/, in a wheel and in a checkout alike."""

from __future__ import annotations

import functools
from pathlib import Path

from dsgen.shapes.errors import mistake

__all__ = ["data_root"]

_FOLDERS = ("profiles", "schema")


@functools.cache
def data_root() -> Path:
    """The folder that holds `profiles` and `schema`.

    The packed copy comes first: only a wheel has one inside the package. An editable install runs the package from the
    checkout, where there is none, so it never sees a stale copy.

    Raises:
        DsgenError: Neither a checkout nor a packed copy is there.
    """
    package = Path(__file__).resolve().parent.parent
    candidates = (package / "_data", package.parent)
    for folder in candidates:
        if all((folder / name).is_dir() for name in _FOLDERS):
            return folder
    raise mistake(
        f"dsgen's data is missing: neither {candidates[0]} nor {candidates[1]} holds {' and '.join(_FOLDERS)}",
        must="it is part of every wheel and of the repository",
        todo="Install dsgen again: pip install --force-reinstall dsgen",
        code="missing",
    )
