"""A server whose parent is killed: however late the kernel hands it on, the folder of its parent goes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SERVERS, SECONDS = 20, 30.0

SERVER = """
import sys
from dsgen.engine.serving import serve
sys.exit(serve(lambda setup: {"greeted": True}, lambda question: question, lambda: None))
"""
# Of each server the parent has the greeting before it says that all are idle.
PARENT = """
import json, os, subprocess, sys, time
from pathlib import Path
root, server = Path(sys.argv[1]), sys.argv[2]
idle = []
for number in range(int(sys.argv[3])):
    folder = root / f"dsgen-{number}"
    folder.mkdir()
    process = subprocess.Popen([sys.executable, "-c", server], cwd=folder, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, env={**os.environ, "DSGEN_PARENT": str(os.getpid())},
                               start_new_session=True)
    process.stdin.write(json.dumps({"folder": str(folder)}).encode() + b"\\n")
    process.stdin.flush()
    idle.append(process)
for process in idle:
    process.stdout.readline()
print("idle", flush=True)
time.sleep(600)
"""


def test_a_killed_parent_s_folders_are_removed(tmp_path: Path) -> None:
    """Servers at rest see the end of their pipe before they see that their parent is gone."""
    said = [sys.executable, "-c", PARENT, str(tmp_path), SERVER, str(SERVERS)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(said, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "idle\n"
        assert len(list(tmp_path.iterdir())) == SERVERS
    finally:
        parent.kill()
        parent.communicate()

    deadline = time.monotonic() + SECONDS
    while list(tmp_path.iterdir()):
        assert time.monotonic() < deadline, f"left: {sorted(path.name for path in tmp_path.iterdir())}"
        time.sleep(0.05)
