"""What turning a checkpoint into another takes: the formula, what needs say of it, and both conversions for real."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dsgen
from dsgen.frameworks.conversions import as_one_file, as_universal
from dsgen.frameworks.needs import needs

PROGRAM = Path(__file__).parent / "programs" / "saves.py"
MIB = 2**20
RANKS = 2
WIDE, NARROW = 1024, 32  # of 20 layers
TRAINED = 20 * (WIDE * WIDE + WIDE)
# Of the measured peaks: what a process takes beside tensors changes by some MiB from run to run.
TOLERANCE, SLACK_BYTES = 0.15, 24 * MIB
SECONDS = 0.01  # between two looks


def test_the_formula_at_the_size_of_a_7b_model() -> None:
    seven = 7 * 10**9

    assert as_universal(seven, 8, 3) == (42 * 10**9, 178_500_000_000, 94_500_000_000)
    assert as_universal(seven, 8, 2) == (42 * 10**9, 168 * 10**9, 98 * 10**9)
    assert as_universal(seven, 2, 3).ram_bytes == 84 * 10**9  # as many workers as there are files
    assert as_one_file(seven, 2) == (28 * 10**9,) * 3
    assert as_one_file(seven, 3).ram_bytes == 5 * 10**9


def said(**more: object) -> dict[str, tuple[str, str]]:
    plan = dsgen.plan({"hw": "a100-80g", "model": "llama-3.1-8b", "gpus": 8, "zero_stage": 3, **more})
    return {item.code: (item.words, item.snippet) for item in needs(plan, str(more.get("target", "deepspeed")))}


def test_needs_say_the_commands_and_what_they_take() -> None:
    words, code = said()["universal"]

    assert words.endswith("44.9 GiB of RAM and 191 of disk while it is made, 101 after")
    assert "--inject_missing_state" not in code
    assert "--input_folder checkpoints/$(cat checkpoints/latest) --output_folder checkpoints/universal" in code
    assert '"checkpoint": {"load_universal": true}' in code
    assert "4.7 GiB of RAM and 29.9 of disk" in said()["one-file"][0]
    assert "29.9 GiB of RAM" in said(zero_stage=2)["one-file"][0]
    assert "--inject_missing_state" in said(zero_stage=2)["universal"][1]


@pytest.mark.parametrize("more", [{"method": "lora"}, {"gpus": 1, "zero_stage": 2}, {"optimizer": "Lion"}])
def test_it_is_not_said_where_the_script_does_not_do_it(more: dict[str, object]) -> None:
    assert "universal" not in said(**more)


def family(pid: int) -> list[int]:
    """A process and those below it."""
    try:
        said = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # it has just ended
        return [pid]
    return [pid, *(one for text in said for child in text.split() for one in family(int(child)))]


def own_bytes(pid: int) -> int:
    """Memory of a process that no file backs, its share of what it shares."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss_Anon"))


def size(folder: Path) -> int:
    """Bytes of the files in a folder, of those that stay while they are counted."""
    try:
        return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    except OSError:  # one was just taken away
        return 0


def peaks(words: list[str], output: Path) -> tuple[int, int]:
    """The most RAM and disk that a command takes."""
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen(
        [sys.executable, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        ram = disk = 0
        while run.poll() is None:
            ram = max(ram, sum(map(own_bytes, family(run.pid))))
            disk = max(disk, size(output))
            time.sleep(SECONDS)
    assert run.returncode == 0
    return ram, disk


def start(folder: Path, stage: int, width: int, ranks: int, *more: str) -> None:
    words = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d",
             "--rdzv-endpoint=localhost:0", str(PROGRAM), str(folder), str(stage), str(width), *more]  # fmt: skip
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.proof
@pytest.mark.parametrize("stage", [2, 3])
def test_both_conversions_take_what_is_said_and_load(tmp_path: Path, stage: int) -> None:
    inject = [] if stage == 3 else ["--inject_missing_state"]
    measured = {}
    for width in (NARROW, WIDE):
        folder = tmp_path / str(width)
        start(folder, stage, width, RANKS)
        tag = (folder / "latest").read_text().strip()
        universal, whole = folder / "universal", tmp_path / f"whole-{width}"
        words = ["-m", "deepspeed.checkpoint.ds_to_universal", *inject]
        paths = ["--input_folder", str(folder / tag), "--output_folder", str(universal)]
        measured[width] = (
            *peaks([*words, *paths], universal),
            size(universal),
            *peaks(["-m", "deepspeed.utils.zero_to_fp32", str(folder), str(whole)], whole),
            size(whole),
        )
    base, large = measured[NARROW], measured[WIDE]
    made, one = as_universal(TRAINED, RANKS, stage), as_one_file(TRAINED, stage)
    # Workers hold a file each, and whether all do at one moment is up to the machine: at least one of them does.
    workers = large[0] - base[0]
    assert made.ram_bytes / RANKS * (1 - TOLERANCE) < workers < made.ram_bytes * (1 + TOLERANCE) + SLACK_BYTES
    expected = (made.disk_bytes, made.left_bytes, one.ram_bytes, one.disk_bytes, one.left_bytes)
    for before, after, said_bytes in zip(base[1:], large[1:], expected, strict=True):
        assert after - before == pytest.approx(said_bytes, rel=TOLERANCE, abs=SLACK_BYTES)

    import torch

    start(tmp_path / str(WIDE), stage, WIDE, 1, str(tmp_path / "loaded.pt"))
    loaded = torch.load(tmp_path / "loaded.pt")
    for file in (tmp_path / f"whole-{WIDE}").glob("*.bin"):
        for name, tensor in torch.load(file).items():
            assert torch.equal(loaded[name], tensor.bfloat16().float())
