"""Real proofs that are cut off, by Ctrl-C or SIGKILL, go on where they stopped; a terminal sees how far they are."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},  # no operator to build
}
NAMES = [f"stage{stage}.json" for stage in range(4)]
NEXT = re.compile(r"1 of 4, about \d+ s left: stage1\.json")  # the bar behind the first
MOST_SECONDS = 240.0

pytestmark = pytest.mark.proof


def start(folder: Path, *said: str, stderr: int) -> subprocess.Popen[str]:
    """`dsgen prove` of all configs, with a record."""
    return subprocess.Popen(
        [sys.executable, "-m", "dsgen", "prove", *NAMES, "--record", "proofs.jsonl", "--device", "cpu", *said],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )


def kept(folder: Path) -> int:
    """Whole lines in the record."""
    file = folder / "proofs.jsonl"
    return file.read_text("utf-8").count("\n") if file.exists() else 0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + MOST_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)


def read_all(terminal: int, into: list[bytes]) -> None:
    """What a terminal is sent, until its last writer is gone."""
    while True:
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # as Linux says that nobody writes any more
            return
        if not data:
            return
        into.append(data)


def test_a_run_that_is_cut_off_goes_on_where_it_stopped(tmp_path: Path) -> None:
    for stage, name in enumerate(NAMES):
        config = {**CONFIG, "zero_optimization": {"stage": stage}}
        (tmp_path / name).write_text(json.dumps(config), encoding="utf-8")

    # Ctrl-C behind the first, before somebody's eyes.
    terminal, end = pty.openpty()
    process = start(tmp_path, stderr=end)
    os.close(end)
    sent: list[bytes] = []
    reader = threading.Thread(target=read_all, args=(terminal, sent), daemon=True)
    reader.start()
    wait_until(lambda: kept(tmp_path) > 0 and NEXT.search(b"".join(sent).decode(errors="replace")) is not None)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=MOST_SECONDS)
    reader.join(MOST_SECONDS)
    os.close(terminal)
    seen, first = b"".join(sent).decode(), kept(tmp_path)
    assert process.returncode == 130
    assert "starting DeepSpeed" in seen
    assert NEXT.search(seen)
    assert f"interrupted: {first} of 4 had ended; what was proved is in proofs.jsonl" in seen
    assert [line for line in printed.splitlines() if line in NAMES] == NAMES[:first]
    assert "\r" not in printed
    assert "\033" not in printed

    # SIGKILL behind the next, amid a line of the record.
    process = start(tmp_path, stderr=subprocess.DEVNULL)
    wait_until(lambda: kept(tmp_path) > first)
    process.kill()
    process.communicate()
    before = kept(tmp_path)
    assert before < len(NAMES)
    with (tmp_path / "proofs.jsonl").open("a", encoding="utf-8") as file:
        file.write((tmp_path / "proofs.jsonl").read_text("utf-8").splitlines()[0][:1000])

    # The rest, in a pipe, which sees no bar.
    process = start(tmp_path, "--format", "json", "--junit", "proofs.xml", stderr=subprocess.PIPE)
    printed, told = process.communicate(timeout=MOST_SECONDS)
    records = json.loads(printed)
    cases = ElementTree.parse(tmp_path / "proofs.xml").getroot().findall("testcase")
    assert process.returncode == 0, told
    assert told.splitlines() == [
        "proofs.jsonl: 1 line is no whole record of a proof, and not taken for one",
        f"{before} of 4: proven already and unchanged (proofs.jsonl), not started again",
    ]
    assert [record["outcome"] for record in records.values()] == ["proved"] * 4
    assert ["not started again" in str(record["notes"]) for record in records.values()] == [
        place < before for place in range(4)
    ]
    assert [case.get("name") for case in cases] == NAMES
    assert kept(tmp_path) == len(NAMES) + 1  # and the half of one
