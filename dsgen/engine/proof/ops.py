"""Build the DeepSpeed operators that a config needs, before any rank waits for them."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from dsgen.engine.proof import locks

__all__ = ["build", "extensions_root", "load"]


def extensions_root() -> Path:
    """The folder under which torch builds operators for this interpreter."""
    named = os.environ.get("TORCH_EXTENSIONS_DIR")
    if named:
        return Path(named)
    import torch
    from torch.utils.cpp_extension import get_default_build_root

    if torch.version.hip is not None:
        platform = f"rocm{torch.version.hip.replace('.', '')}"
    elif torch.version.cuda is not None:
        platform = f"cu{torch.version.cuda.replace('.', '')}"
    else:
        platform = "cpu"
    # As torch/utils/cpp_extension.py `_get_build_directory` names it.
    return (
        Path(get_default_build_root()) / f"py{sys.version_info.major}{sys.version_info.minor}{sys.abiflags}_{platform}"
    )


def build(names: list[str], timeout_seconds: float, report: Path) -> None:
    """Build operators one after the other and write what came of it.

    Args:
        names: Builder classes of DeepSpeed: "CPUAdamBuilder".
        timeout_seconds: How long to wait for another dsgen that builds.
        report: JSON file to write: `cleared` (stale locks removed), `failed` (builder -> the engine's words) and
            `seconds` (builder -> build time).
    """
    root = extensions_root()
    result: dict[str, Any] = {"cleared": [], "failed": {}, "seconds": {}, "root": str(root)}
    try:
        with locks.build_lock(root, timeout_seconds):
            result["cleared"] = locks.clear_stale(root, timeout_seconds)
            for name in names:
                began = time.monotonic()
                try:
                    load(name)
                except BaseException as error:
                    result["failed"][name] = f"{type(error).__name__}: {error}"
                result["seconds"][name] = round(time.monotonic() - began, 2)
    except (OSError, TimeoutError) as error:
        result["failed"] = dict.fromkeys(names, f"{type(error).__name__}: {error}")
    report.write_text(json.dumps(result), encoding="utf-8")


def load(name: str) -> None:
    """Load one operator, building it where it is not built yet.

    Raises:
        RuntimeError: It cannot be built here; DeepSpeed's own words.
    """
    from deepspeed.accelerator import get_accelerator

    builder = get_accelerator().create_op_builder(name)
    if builder is None:
        raise RuntimeError(f"{name} is not known to this DeepSpeed")
    builder.load(verbose=False)
