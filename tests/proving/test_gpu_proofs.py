"""The starts on a GPU, as far as they need none: the cases are golden configs, and what was not run is said by name."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsgen.shapes.errors import Code, mistake

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
PLACES = {"none", "cpu", "nvme"}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """benchmarks/gpu_proofs.py."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu_proofs")


def test_cases_cover_stages_offloads_and_types(module: Any) -> None:
    configs = [json.loads((module.CONFIGS / f"{name}.json").read_text("utf-8")) for name in module.CASES]
    zeros = [config.get("zero_optimization", {}) for config in configs]

    assert len(set(module.CASES)) == len(module.CASES)
    assert {zero.get("stage", 0) for zero in zeros} == {0, 1, 2, 3}
    assert {zero.get("offload_optimizer", {}).get("device", "none") for zero in zeros} == PLACES
    assert {zero.get("offload_param", {}).get("device", "none") for zero in zeros} == PLACES
    for section in ("bf16", "fp16"):
        assert any(config.get(section, {}).get("enabled") for config in configs)


def test_what_is_recorded_was_proved_on_cuda(module: Any) -> None:
    record = json.loads((BENCHMARKS / "gpu_proofs.json").read_text("utf-8"))

    assert record["proofs"].keys() <= {*module.CASES, *module.ADAPTERS}
    assert len(record["proofs"]) >= 37
    assert {(one["outcome"], one["device"]) for one in record["proofs"].values()} == {("proved", "cuda")}
    assert all(one["held"] == one["checks"] > 20 for one in record["proofs"].values())


def test_what_is_rendered_otherwise_since_then_is_said(module: Any) -> None:
    record = json.loads((BENCHMARKS / "gpu_proofs.json").read_text("utf-8"))
    page = (BENCHMARKS.parent / "docs" / "gpu.md").read_text("utf-8")
    old = module.changed(record["proofs"])

    assert re.findall(r"rendered otherwise since: (.*)\.", page) == ([", ".join(old)] if old else [])
    for name in record["proofs"]:
        record["proofs"][name]["config_sha256"] = "another"
    assert module.changed(record["proofs"]) == [*record["proofs"]]


def asked(*options: str) -> subprocess.CompletedProcess[str]:
    """The script on a machine without a GPU."""
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(BENCHMARKS / "gpu_proofs.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, env=hidden, check=False)


@pytest.mark.proof
def test_without_a_gpu_every_case_is_said_not_to_have_been_run(module: Any) -> None:
    done = asked()

    assert done.returncode == 0, done.stderr
    assert [line.removeprefix("not run: ") for line in done.stdout.splitlines()[1:]] == [
        *module.CASES,
        *module.ADAPTERS,
    ]
    assert "torch sees no GPU" in done.stdout.splitlines()[0]


@pytest.mark.proof
def test_where_a_gpu_is_required_nothing_run_is_a_failure() -> None:
    done = asked("--required")

    assert done.returncode == 1
    assert "torch sees no GPU" in done.stdout.splitlines()[0]


@pytest.mark.parametrize(("code", "ended"), [("missing-package", 1), ("lost", 1), ("bad-value", 0)])
def test_a_broken_environment_is_a_failure_and_no_gpu_is_none(
    module: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: Code, ended: int
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise mistake("what is wrong", code=code)

    monkeypatch.setattr(module, "prove_many", fail)
    monkeypatch.setattr(sys, "argv", ["gpu_proofs.py"])
    with pytest.raises(SystemExit) as stopped:
        module.main()

    assert int(stopped.value.code or 0) == ended
    assert capsys.readouterr().out.startswith("not run: what is wrong\n")
