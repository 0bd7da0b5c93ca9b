"""`dsgen simulate` tells time: its lines, its data and its trace, from a made-up program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from simulated import ANSWER, CONFIG, MODEL, answering, asked

import dsgen
from dsgen.cli import main
from dsgen.report import simulation as report
from dsgen.report.trace import trace
from dsgen.simulating import Simulation, Timeline, from_config, hardware_of, network_of, simulate

TOKENS = 64
PROGRAM = {
    "entries": [
        ["phase", "input", 1],
        ["phase", "forward", 1],
        ["product", 0, "python", False, 4096, 4096, 4096, 1, "bf16"],
        ["product", 0, "python", True, 4096, 4096, 4096, 1, "bf16"],
        ["collective", 0, 1, "python", "all-gather", 10**9, 16, 8],
        ["join", 0, 0],
        ["traffic", 0, "python", False, "add", "stream", 10**7],
        ["phase", "step", 1],
    ],
    "order": [0, 1, 4, 2, 3, 5, 7, 6],
    "loops": [],
}
TIMED = {**ANSWER, "program": PROGRAM}


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a config and a model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
    return tmp_path


def by_config(here: Path, *arguments: str, answer: Any = TIMED) -> int:
    basis = ("--config", "ds.json", "--model", "config.json", "--world-size", "16", "--seq-len", str(TOKENS))
    return run(*basis, "--python", answering(here, answer), *arguments)


def found(folder: Path, gpu: str = "a100-80g", network: str | None = "ib-hdr-200g") -> Simulation:
    hardware = hardware_of(dsgen.profile(gpu).layers)
    joined = None if network is None else network_of(dsgen.profile(network).layers)
    request = from_config(CONFIG, model=MODEL, world_size=16, hardware=hardware, network=joined)
    return simulate(request, python=answering(folder, TIMED))


def time_of(folder: Path, *names: str) -> Timeline:
    told = found(folder, *names).step_time
    assert told is not None
    return told


def test_time_is_told_where_hardware_and_network_are_known(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = by_config(here, "--hw", "a100-80g", "--network", "ib-hdr-200g")

    page = capsys.readouterr().out
    assert code == 0
    assert asked(here)["time"] is True
    assert "step 2 takes " in page
    assert "tokens/s/GPU" in page and "MFU" in page and "HFU" in page
    assert "products " in page and "all-gather " in page and "the host works for" in page


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--hw", "a100-80g"), "and --network what joins several nodes"), ((), "no limits: --hw or --gpu-memory")],
)
def test_nothing_is_told_that_is_not_known(
    here: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    assert by_config(here, *options, answer=ANSWER) == 0

    page = capsys.readouterr().out
    assert asked(here)["time"] is False
    assert said in " ".join(page.split())
    assert "MFU" not in page


def test_one_node_needs_no_network(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    basis = ("--config", "ds.json", "--model", "config.json", "--world-size", "8", "--seq-len", "64")

    assert run(*basis, "--hw", "a100-80g", "--python", answering(here, TIMED)) == 0

    assert asked(here)["time"] is True
    assert "MFU" in capsys.readouterr().out


def test_the_data_follows_from_the_step(tmp_path: Path) -> None:
    """Two products, one of them recomputed; 1 x 2 x 16 samples of 64 tokens a step, on 16 GPUs."""
    told = report.data(found(tmp_path))["time"]

    seconds, flops = told["step_seconds"], 2 * 4096**3
    assert sum(told["parts"].values()) == pytest.approx(seconds)
    assert told["tokens_per_second_per_gpu"] == pytest.approx(2 * TOKENS / seconds)
    assert told["model_flops_per_second"] == pytest.approx(flops / seconds)
    assert told["mfu"] == pytest.approx(flops / seconds / 312e12)
    assert told["hfu"] == pytest.approx(2 * told["mfu"])
    assert [one["phase"] for one in told["phases"]] == ["input", "forward", "step"]
    json.dumps(told)


def test_one_record_is_timed_on_other_cards_and_networks(tmp_path: Path) -> None:
    base = time_of(tmp_path)
    slower, faster = time_of(tmp_path, "a100-80g", "ethernet-25g"), time_of(tmp_path, "h100-80g", "ib-hdr-200g")

    assert slower.busy["all-gather"] > 4 * base.busy["all-gather"]
    assert slower.busy["products"] == base.busy["products"]
    assert faster.busy["products"] < base.busy["products"] / 1.5


def test_without_time_the_data_says_so(tmp_path: Path) -> None:
    assert report.data(found(tmp_path, network=None))["time"] is None


def test_the_trace_has_a_row_for_each_queue_and_every_interval(tmp_path: Path) -> None:
    time = time_of(tmp_path)

    told = json.loads(trace(time, "a job"))

    events = told["traceEvents"]
    rows = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name"}
    drawn = [one for one in events if one["ph"] == "X"]
    assert next(one for one in events if one["name"] == "process_name")["args"] == {"name": "a job"}
    assert list(rows.values()) == ["phases of the host", "compute", "collectives"]
    assert [one["name"] for one in drawn if one["tid"] == 0] == ["input", "forward", "step"]
    assert [(rows[one["tid"]], one["cat"]) for one in drawn if one["tid"]] == [
        ("compute", "products"), ("compute", "products"), ("compute", "optimizer"), ("collectives", "all-gather")
    ]  # fmt: skip
    last = max(one["ts"] + one["dur"] for one in drawn)
    assert last == pytest.approx(1e6 * time.seconds, abs=0.01)
    assert next(one for one in drawn if one["cat"] == "all-gather")["args"] == {"bytes": 10**9}


def test_the_trace_goes_to_a_file(here: Path) -> None:
    assert by_config(here, "--hw", "a100-80g", "--network", "ib-hdr-200g", "--format", "trace", "-o", "step.json") == 0

    assert json.loads((here / "step.json").read_text("utf-8"))["displayTimeUnit"] == "ms"


def test_a_trace_without_hardware_is_refused_before_anything_runs(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert by_config(here, "--format", "trace") == 2

    assert "--hw a100-40g --network ib-hdr-200g" in capsys.readouterr().err
    assert not (here / "asked.json").exists()


def test_gpu_memory_alone_says_no_speed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--gpu-memory` is a limit; how fast the GPU is stays unknown."""
    basis = ("--config", "ds.json", "--model", "config.json", "--world-size", "8", "--gpu-memory", "80 GiB")

    assert run(*basis, "--python", answering(here)) == 0

    assert asked(here)["time"] is False
    assert "MFU" not in capsys.readouterr().out
