"""The comparison of time with a real GPU, as far as it needs none: cases, kernels, cards, rows, records, no GPU."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dsgen import catalog
from dsgen.engine.simulate.requests import filled

REPOSITORY = Path(__file__).resolve().parents[2]
GIB = 2**30
CARD = {"name": "NVIDIA H100 80GB HBM3", "driver": "580.1", "cuda": "13.0", "cores": 16}
VERSIONS = {"torch": "2.13.0", "deepspeed": "0.19.8", "flash_attn": None}
SAID = {"step_seconds": 1.1, "low_seconds": 0.9, "high_seconds": 1.4, "peak_gib": 20.0, "reserved_gib": 22.0}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of benchmarks/ by its name."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    return importlib.import_module


def measured(seconds: float, allocated: int = 0) -> dict[str, Any]:
    peak = {"allocated_bytes": allocated, "reserved_bytes": allocated} if allocated else {}
    return {"card": CARD, "versions": VERSIONS, "step_seconds": [seconds], "median_seconds": seconds, "peak": peak}


def failed(**more: Any) -> dict[str, Any]:
    return {"error": {"type": "OutOfMemoryError", "message": "CUDA out | of memory\nmore", **more}}


def test_every_case_is_a_valid_request_that_dsgen_costs(module: Any) -> None:
    cases = module("gpu_speed_cases")
    made = cases.speed_cases()

    assert len({case.name for case in made}) == len(made) >= 40
    for case in made:
        assert filled(case.request)["world_size"] == 1
        said = cases.predicted(case, "h100-80g", {})
        assert 0 < said["low_seconds"] < said["step_seconds"] < said["high_seconds"]
        assert sum(said["parts"].values()) == pytest.approx(said["step_seconds"])
        assert said["peak_gib"] > 1


def test_the_cases_cover_what_moves_time(module: Any) -> None:
    said = module("gpu_speed_cases").CASES

    assert {one["model"] for one in said} >= {"opt-125m", "llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b"}
    assert {one["stage"] for one in said} == {0, 1, 2, 3}
    assert {one.get("method", "full") for one in said} == {"full", "lora", "qlora"}
    assert {one.get("offload", "") for one in said} == {"", "optimizer", "optimizer+param"}
    assert {one.get("precision", "bf16") for one in said} == {"bf16", "fp16", "fp32"}
    assert {one.get("attention", "sdpa") for one in said} == {"sdpa", "eager"}
    assert {one.get("accumulation", 1) for one in said} >= {1, 4}
    assert {one.get("micro_batch", 1) for one in said} >= {1, 2, 4, 8, 16}
    lengths = {one.get("seq_len", 1024) for one in said}
    assert min(lengths) == 512 and max(lengths) == 16384


def test_what_is_said_is_of_the_machine_at_hand(module: Any) -> None:
    cases = module("gpu_speed_cases")
    offloaded = next(case for case in cases.speed_cases() if "optimizer on the CPU" in case.name)

    whole, few = (cases.predicted(offloaded, "h100-80g", host) for host in ({}, {"cpu_cores": 2}))

    assert few["parts"]["offload"] > whole["parts"]["offload"]


def test_a_case_that_dsgen_refuses_is_a_row_with_its_reason(module: Any) -> None:
    cases = module("gpu_speed_cases")
    bf16 = cases.speed_cases()[0]

    said = cases.predicted(bf16, "v100-16g", {})

    assert "bf16" in said["refused"]
    row = module("gpu_speed_table").case_row(bf16.request, measured(1.0), said)
    assert row["errors"] == {}
    assert "dsgen refuses it" in module("gpu_speed_table").case_words("a", row)


def test_every_kernel_has_a_name_and_a_law(module: Any) -> None:
    kernels = module("gpu_speed_kernels")
    shapes = kernels.kernels()
    node = kernels.node_of("h100-80g", {})

    assert len({kernels.kernel_name(one) for one in shapes}) == len(shapes) >= 70
    assert {one["kind"] for one in shapes} == {"product", "attention", "memory", "host", "copy"}
    assert all(kernels.law_seconds(node, one) > 0 for one in shapes)
    big = next(one for one in shapes if one["kind"] == "product" and one["n"] == 14336 and one["m"] == 8192)
    flops = 2 * big["m"] * big["n"] * big["k"] / kernels.law_seconds(node, big)
    assert 0.5e15 < flops < 0.99e15  # under the peak of an H100
    views, adds = (
        kernels.law_seconds(node, {"kind": "host", "phase": phase, "operators": 100}) for phase in ("views", "forward")
    )
    assert views < adds


@pytest.mark.parametrize(
    ("card", "profile"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-80g"),
        ("NVIDIA H100 PCIe", "h100-80g-pcie"),
        ("NVIDIA H200", "h200-141g"),
        ("NVIDIA H20", "h20-96g"),
        ("NVIDIA A100-SXM4-40GB", "a100-40g"),
        ("NVIDIA A100-SXM4-80GB", "a100-80g"),
        ("NVIDIA A100 80GB PCIe", "a100-80g-pcie"),
        ("NVIDIA L40S", "l40s-48g"),
        ("NVIDIA L4", "l4-24g"),
        ("NVIDIA A10G", "a10g-24g"),
        ("NVIDIA A10", "a10-24g"),
        ("NVIDIA GH200 480GB", "gh200-96g"),
        ("NVIDIA GeForce RTX 4090", "rtx4090-24g"),
        ("Tesla V100-SXM2-32GB", "v100-32g"),
        ("cpu", "cpu"),
    ],
)
def test_a_card_is_known_by_its_name(module: Any, card: str, profile: str) -> None:
    assert module("gpu_speed_profiles").profile_of(card) == profile


def test_every_profile_of_a_card_is_one(module: Any) -> None:
    profiles = module("gpu_speed_profiles")

    assert {profile for _, profile in profiles.NAMES} <= set(catalog.names("hardware"))
    with pytest.raises(Exception, match="no profile is known to be of it"):
        profiles.profile_of("NVIDIA L40")


def test_an_error_is_signed_and_above_0_where_dsgen_says_more(module: Any) -> None:
    row = module("gpu_speed_table").case_row({"model": {}, "seq_len": 8}, measured(1.0, 25 * GIB), SAID)

    assert row["errors"]["step"] == pytest.approx(0.1)
    assert row["errors"]["inside"] is True
    assert row["errors"]["allocated"] == pytest.approx(-0.2)
    assert row["errors"]["reserved"] == pytest.approx(-0.12)
    assert row["request"] == {"seq_len": 8}
    assert "card" not in row["measured"]


def test_what_failed_is_a_row_with_its_reason(module: Any) -> None:
    table = module("gpu_speed_table")
    out = table.case_row({}, failed(out_of_memory=True, phase="backward of step 1"), SAID)
    lost = table.case_row({}, {"error": {"type": "Timeout", "message": "no | answer"}}, SAID)

    assert table.case_words("a", out) == "a: out of memory in backward of step 1"
    assert table.case_words("b", lost) == "b: Timeout in it: no / answer"
    records = {
        "card": CARD, "versions": VERSIONS, "profile": "h100-80g", "dsgen": "0.1.0", "date": "2026-11-23",
        "cases": {"a": out, "b": lost, "c": table.case_row({}, measured(1.0, 25 * GIB), SAID)},
        "kernels": {
            "x": table.kernel_row({"kind": "product", "dtype": "bf16"}, {"seconds": 2.0}, 1.0),
            "y": table.kernel_row({"kind": "product", "dtype": "bf16"}, failed(), 1.0),
        },
    }  # fmt: skip
    text = table.markdown(records)
    assert "| a | – | 1.1 | 0.9 to 1.4 | – | – | 20.0 | – | out of memory in backward of step 1 |" in text
    assert "| c | 1 | 1.1 | 0.9 to 1.4 | +10% | 25.0 | 20.0 | -20.0% |  |" in text
    assert "| product bf16 | 1 | -50% | 50% | -50% | 1 |" in text
    assert "3 runs, 1 compared: median error of a step +10.0%" in text
    assert "Measured on NVIDIA H100 80GB HBM3, driver 580.1, CUDA 13.0" in text
    assert table.markdown({}) == "nothing is recorded"


def start(module: Any, monkeypatch: pytest.MonkeyPatch, *options: str) -> object:
    """The exit code of the program with options; None where it ends by itself."""
    monkeypatch.setattr(sys, "argv", ["gpu_speed.py", *options])
    try:
        module("gpu_speed").main()
    except SystemExit as stopped:
        return stopped.code
    return None


def test_without_a_gpu_it_says_what_was_not_run(
    module: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(module("gpu_speed"), "RESULTS", tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # a machine that has one has none here

    code = start(module, monkeypatch)

    told = capsys.readouterr()
    runs, kernels = len(module("gpu_speed_cases").CASES), len(module("gpu_speed_kernels").kernels())
    assert (code, told.out) == (2, "")
    assert told.err.startswith("error: no GPU answers (")
    assert f"{runs} runs and {kernels} kernels were not measured; a CUDA GPU" in told.err
    assert "--list" in told.err
    assert list(tmp_path.iterdir()) == []


def test_the_list_has_every_case_with_what_dsgen_says(
    module: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(module, monkeypatch, "--list", "--hw", "a100-40g") is None

    lines = capsys.readouterr().out.splitlines()
    cases = module("gpu_speed_cases").speed_cases()
    assert "as dsgen says of a100-40g" in lines[0]
    assert [line.partition(": ")[0] for line in lines[1 : 1 + len(cases)]] == [case.name for case in cases]
    assert any(line.endswith("does not fit") for line in lines)
    assert lines[-1].endswith(" us")
    assert start(module, monkeypatch, "--list", "--only", "gpt9") == 2
    assert "nothing has 'gpt9' in its name" in capsys.readouterr().err
    assert start(module, monkeypatch, "--table") == 2


def test_what_is_measured_is_recorded_once(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A card that is made up, which has no memory for one of the runs; a second start measures nothing."""
    program, asked = module("gpu_speed"), []

    def ask(_: list[str], question: dict[str, Any], limit_seconds: float = 0) -> dict[str, Any]:
        asked.append(question)
        if "kernels" in question:
            return {"card": CARD, "kernels": [{"seconds": 1e-4} for _ in question["kernels"]]}
        if "request" in question:
            stage = question["request"]["config"]["zero_optimization"]["stage"]
            return failed(out_of_memory=True, phase="init") if stage == 2 else measured(0.01, GIB)
        return {"card": CARD, "versions": VERSIONS}

    monkeypatch.setattr(program, "ask", ask)
    monkeypatch.setattr(program, "RESULTS", tmp_path)

    assert start(module, monkeypatch, "--tiny") is None
    first = len(asked)
    assert start(module, monkeypatch, "--tiny") is None

    kept = json.loads((tmp_path / "h100-80g.json").read_text())
    assert (first, len(asked)) == (4, 5)  # the card, kernels and two runs; then the card alone
    assert kept["card"] == CARD
    assert kept["versions"] == VERSIONS
    assert kept["profile"] == "h100-80g"
    assert len(kept["kernels"]) == len(module("gpu_speed_kernels").kernels(True))
    by_stage = {row["request"]["config"]["zero_optimization"]["stage"]: row for row in kept["cases"].values()}
    assert by_stage[0]["measured"]["median_seconds"] == 0.01
    assert set(by_stage[0]["errors"]) == {"step", "inside", "allocated", "reserved"}
    assert by_stage[2]["measured"]["error"]["out_of_memory"] is True
    assert "out of memory in init" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["h100-80g.json"]


def test_nothing_begins_after_the_time_that_there_is(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = module("gpu_speed")
    monkeypatch.setattr(program, "ask", lambda *_: {"card": CARD, "versions": VERSIONS})

    assert start(module, monkeypatch, "--tiny", "--seconds", "1e-9", "--output", str(tmp_path / "x.json")) is None

    told = capsys.readouterr().out
    assert told.count("not run: the time of --seconds is over") == 3
    assert not (tmp_path / "x.json").exists()
