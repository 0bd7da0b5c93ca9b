"""The table that the work is held against, against the real classes as they are installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = (
    "llama/bf16/flash/lora/True/False",
    "gpt2/bf16/eager/full/False/False",
    "mixtral/bf16/flash/full/False/False",
    "llama/bf16/flash/qlora/False/False",
)


@pytest.mark.proof
def test_the_table_is_what_real_classes_do():
    program = [sys.executable, str(ROOT / "benchmarks" / "work.py"), "print", *NAMES]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode == 0, done.stderr
    table = json.loads((ROOT / "tests" / "cost" / "work.json").read_text("utf-8"))
    assert json.loads(done.stdout) == {name: table[name] for name in NAMES}
