"""`dsgen effective`: what is handed to DeepSpeed, and by which program."""

from __future__ import annotations

import io
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from lint_samples import GOOD, put

from dsgen.effective import Effective
from dsgen.shapes.errors import mistake

ACCELERATE = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: {zero_stage: 3}\n"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[Any, dict[str, Any]]]:
    """What was asked of DeepSpeed, which is not started."""
    calls: list[tuple[Any, dict[str, Any]]] = []

    def load(source: Any, **options: Any) -> None:
        calls.append((source, options))
        raise mistake("not started")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(import_module("dsgen.asking.handovers"), "load", load)
    return calls


@pytest.mark.parametrize("name", ["ds.json", "ds.yaml"])
def test_deepspeed_opens_a_file_itself(asked: list[Any], name: str) -> None:
    put(name, GOOD if name == "ds.json" else "train_batch_size: 8\nbf16:\n  enabled: true\n")

    assert run("effective", name).err == "error: not started\n"
    assert [(source, options["target"]) for source, options in asked] == [(name, "deepspeed")]


def test_what_a_file_of_accelerate_means_is_handed_over(asked: list[Any]) -> None:
    put("accelerate.yaml", ACCELERATE)
    run("effective", "accelerate.yaml")
    run("effective", "accelerate.yaml", "--target", "hf-trainer", "--world-size", "4")

    (source, options), (_, chosen) = asked
    assert source["zero_optimization"] == {"stage": 3}
    assert (options["target"], options["world_size"]) == ("accelerate", 8)
    assert (chosen["target"], chosen["world_size"]) == ("hf-trainer", 4)


@pytest.mark.parametrize("name", ["accelerate.yaml", "-"])
def test_the_answer_is_named_after_the_file_that_holds_the_config(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    def load(source: Any, **options: Any) -> Effective:
        assert isinstance(source, dict)  # what the file means, which has no name of its own
        return Effective(
            name="<config>", deepspeed="0.19.8", target=options["target"], world_size=8, implied=False, refused=None
        )

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(import_module("dsgen.asking.handovers"), "load", load)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{train_batch_size: 8}")))
    put("accelerate.yaml", ACCELERATE)

    assert run("effective", name).out.startswith(f"{'<stdin>' if name == '-' else name} in DeepSpeed 0.19.8 at 8 GPUs")


def test_the_standard_input_is_handed_over(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{train_batch_size: 8}")))
    run("effective", "-")

    assert asked[0][0] == {"train_batch_size": 8}
