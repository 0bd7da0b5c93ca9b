"""A program of tests/helpers in a process of its own, which answers in JSON; it imports torch once for all asked."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["answer"]

HELPERS = Path(__file__).resolve().parent
ROOT = HELPERS.parents[1]
# The instructions that every x86 host has. Products of bf16 by wider ones (AVX-512, AMX) round sums of another length
# otherwise: on a host with AMX stage 3 resumed 0.014 away from the losses of the run that went on, with these 0.0001.
# They are read when torch is first used; other processors have nothing that hears of them.
INSTRUCTIONS = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "COMPATIBLE"}


def answer(program: str, *words: str, asked: Any = None, seconds: float = 600) -> Any:
    """What a program prints.

    Args:
        program: A file of this folder, without its ending.
        words: Its arguments.
        asked: What it reads as JSON; None for nothing.
        seconds: It may take at most.
    """
    done = subprocess.run(
        [sys.executable, str(HELPERS / f"{program}.py"), *words],
        input=None if asked is None else json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        env={
            **os.environ,
            **(INSTRUCTIONS if platform.machine() in ("x86_64", "AMD64") else {}),
            "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
