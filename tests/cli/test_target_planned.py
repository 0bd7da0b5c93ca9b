"""With a target every command plans for what that program does: how it loads the model, and Liger's kernels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsgen.cli import main

MAIN = ("--hw", "rtx3090-24g", "--gpus", "1", "--model", "llama-3.1-8b", "--method", "lora", "--seq-len", "2048")
LIGER = ("--chunked-loss",)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """Standard output and error of a command that ends well."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    out, err = capsys.readouterr()
    assert ended.value.code == 0, err
    return out, err


def places(text: str) -> list[str]:
    """What a summary says of the GPU and of the node's RAM: GiB of GiB."""
    return re.findall(r"^(?:GPU|host) +([\d.]+ of [\d.]+) GiB", text, re.MULTILINE)


def test_render_says_what_memory_says_of_the_trainer(capsys: pytest.CaptureFixture[str]) -> None:
    told, _ = run(capsys, "memory", *MAIN, *LIGER, "--target", "hf-trainer")
    _, trainer = run(capsys, "render", *MAIN, *LIGER, "--target", "hf-trainer")
    _, alone = run(capsys, "render", *MAIN, *LIGER)

    assert places(trainer) == places(told)
    assert places(alone) != places(trainer)
    assert speed(trainer) > 1.05 * speed(alone)  # the Trainer brings Liger's other kernels with its loss


def speed(text: str) -> float:
    """Tokens/s/GPU of a summary."""
    line = next(line for line in text.splitlines() if "tokens/s/GPU" in line)
    return float(line.partition("about ")[2].split()[0].replace(",", ""))


def test_a_run_folder_says_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ("--with", "torchrun", "--script", "train.py", "--target", "hf-trainer")
    (tmp_path / "train.py").write_text("pass\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        run(capsys, "launch", *MAIN, *LIGER, *asked, "-o", "run")
        _, trainer = run(capsys, "render", *MAIN, *LIGER, "--target", "hf-trainer")
    assert f"{speed(trainer):,.0f}" in (tmp_path / "run" / "RUN.md").read_text()
