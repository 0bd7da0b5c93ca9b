"""`dsgen prove`: a config or a scenario goes to the prover; what comes of it is shown, and is the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import MAIN

from dsgen.proving import prover

pytestmark = pytest.mark.usefixtures("elsewhere")
Run = Callable[..., tuple[int, str, str]]
CONFIG = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}
SCENARIO = "hw: a100-40g\nmodel: 7b\n"


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What the prover is asked: (config, options); it proves stage 2 and no other."""
    asked: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def prove(config: Mapping[str, Any], **options: Any) -> prover.Proof:
        asked.append((dict(config), options))
        good = config["zero_optimization"]["stage"] == 2
        return prover.Proof(
            outcome=prover.PROVED if good else prover.FAILED, phase="checkpoint" if good else "initialize",
            error=None if good else "AssertionError: no", site=None, todo=None, adaptations=(), checks=(), notes=(),
            losses=(), ranks=2, device="cpu", versions={"deepspeed": "0.19.8", "torch": "2.13.0"}, seconds=1.0,
            config_sha256="0",
        )  # fmt: skip

    monkeypatch.setattr(prover, "prove", prove)
    return asked


@pytest.mark.parametrize(("stage", "code"), [(2, 0), (3, 1)])
def test_the_outcome_is_the_exit_code(run: Run, tmp_path: Path, stage: int, code: int) -> None:
    config = {**CONFIG, "zero_optimization": {"stage": stage}}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")

    ended, shown, _ = run("prove", "ds.json")
    told, record, _ = run("prove", "ds.json", "--format", "json")

    assert (ended, told) == (code, code)
    assert shown.splitlines()[0].startswith("proved" if code == 0 else "failed")
    assert json.loads(record)["outcome"] == (prover.PROVED if code == 0 else prover.FAILED)


def test_a_config_is_proved_as_it_is_written(run: Run, tmp_path: Path, asked: Any) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG), encoding="utf-8")

    run("prove", "ds.json", "--ranks", "4", "--device", "cpu", "--steps", "5", "--timeout", "60")

    assert asked == [(CONFIG, {"ranks": 4, "device": "cpu", "steps": 5, "timeout_seconds": 60})]


def test_options_and_a_scenario_file_are_rendered_first(run: Run, tmp_path: Path, asked: Any) -> None:
    """What is proved is what `dsgen render` writes for the same."""
    run("prove", *MAIN)
    _, rendered, _ = run("render", *MAIN)
    assert asked.pop()[0] == json.loads(rendered)

    (tmp_path / "job.yaml").write_text(SCENARIO, encoding="utf-8")
    run("prove", "job.yaml", "--zero-stage", "3")
    assert asked.pop()[0]["zero_optimization"]["stage"] == 3


def test_a_config_with_a_scenarios_options_is_refused(run: Run, tmp_path: Path, asked: Any) -> None:
    """Which of the two is to be proved, nobody could say."""
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG), encoding="utf-8")

    code, _, words = run("prove", "ds.json", "--model", "7b")

    assert code == 2
    assert "ds.json is a DeepSpeed config, and --model describes a scenario" in words
    assert asked == []
