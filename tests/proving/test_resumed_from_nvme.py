"""What DeepSpeed brings back of an optimizer on NVMe: that which the rule optimizer-on-nvme-not-resumed says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.proof

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "helpers" / "resumed_from_nvme.py"
LARGE, SMALL = ["large.bias", "large.weight"], ["small.bias", "small.weight"]


def asked(*words: str) -> dict[str, Any]:
    """The answer of a fresh process."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvme")
    assert asked("train", str(folder)) == {"steps": [4, 4]}
    return folder


def test_a_new_process_gets_the_swapped_weights_and_no_moments_nor_those_of_a_small_sub_group(saved: Path) -> None:
    """The day it is right, the rule, the need and docs/proven.md are out of date."""
    assert asked("resume", str(saved), "0") == {
        "loaded": True,
        "global_steps": 4,
        "steps": [0, 0],
        "as_saved": LARGE,
        "as_made": SMALL,
    }


def test_beside_another_model_nothing_comes_back_and_the_load_says_that_it_did(saved: Path) -> None:
    told = asked("resume", str(saved), "1")

    assert told == {"loaded": True, "global_steps": 4, "steps": [0, 0], "as_saved": [], "as_made": LARGE + SMALL}
