"""What DeepSpeed asks of the CPU is answered as py-cpuinfo does, without the second in which that counts ticks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.proof

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, subprocess, cpuinfo
from dsgen.engine.serving import ask_cpu_once

told = [cpuinfo.get_cpu_info()]
ask_cpu_once()
subprocess.Popen = None  # no program is started any more
told.append(cpuinfo.get_cpu_info())
print(json.dumps([{name: one.get(name) for name in ("arch", "flags", "vendor_id_raw")} for one in told]))
"""


def test_what_deepspeed_reads_is_what_the_package_says() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    plain, once = json.loads(done.stdout)
    assert once == plain
    assert once["arch"]
