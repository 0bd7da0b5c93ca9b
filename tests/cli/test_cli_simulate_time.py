"""`dsgen simulate` tells time: its lines, its data and its trace, from a made-up program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from simulated import ANSWER, CONFIG, MODEL, answering, asked

import dsgen
from dsgen import catalog
from dsgen.cli import main
from dsgen.kernels import rates
from dsgen.report import simulation as report
from dsgen.report.trace import trace
from dsgen.simulating import Simulation, Timeline, from_config, hardware_of, network_of, simulate
from dsgen.simulating.replay import replay

TOKENS = 64
PROGRAM: dict[str, Any] = {
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
    assert "products " in page and "all-gather, infiniband " in page and "the host works for" in page


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

    assert slower.busy["all-gather, ethernet"] > 4 * base.busy["all-gather, infiniband"]
    assert slower.busy["products"] == base.busy["products"]
    assert faster.busy["products"] < base.busy["products"] / 1.5


@pytest.mark.parametrize("gpu", catalog.names("hardware"))
def test_every_card_has_a_time(gpu: str) -> None:
    hardware = hardware_of(dsgen.profile(gpu).layers)
    network = network_of(dsgen.profile("ib-hdr-200g").layers)

    node = min(8, hardware.gpus_per_node)
    entries = [[*one[:-1], node] if one[0] == "collective" else one for one in PROGRAM["entries"]]

    ways = {"ranks_per_node": node, "stage": 2, "launcher": "torchrun", "kernel": "flash2"}
    told = replay({**PROGRAM, "entries": entries}, rates(hardware, network), **ways)

    assert 0 < told.seconds < 60
    assert sum(told.parts.values()) == pytest.approx(told.seconds)


def test_without_time_the_data_says_so(tmp_path: Path) -> None:
    assert report.data(found(tmp_path, network=None))["time"] is None


def test_the_trace_has_a_row_for_each_queue_and_every_interval(tmp_path: Path) -> None:
    time = time_of(tmp_path)

    told = json.loads(trace(time, "a job"))

    events = told["traceEvents"]
    rows = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name"}
    drawn = [one for one in events if one["ph"] == "X"]
    assert next(one for one in events if one["name"] == "process_name")["args"] == {"name": "a job"}
    assert list(rows.values()) == ["phases of the host", "compute", "inter-node"]
    assert [one["name"] for one in drawn if one["tid"] == 0] == ["forward", "step"]  # the host's input takes no time
    assert [(rows[one["tid"]], one["cat"]) for one in drawn if one["tid"]] == [
        ("compute", "products"), ("compute", "products"), ("compute", "optimizer"),
        ("inter-node", "all-gather, infiniband"),
    ]  # fmt: skip
    last = max(one["ts"] + one["dur"] for one in drawn)
    assert last == pytest.approx(1e6 * time.seconds, abs=0.01)
    assert next(one for one in drawn if one["cat"] == "all-gather, infiniband")["args"] == {"bytes": 10**9}


def test_the_trace_goes_to_a_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert by_config(here, "--hw", "a100-80g", "--network", "ib-hdr-200g", "--format", "trace", "-o", "step.json") == 0

    assert json.loads((here / "step.json").read_text("utf-8"))["displayTimeUnit"] == "ms"
    assert "wrote step.json; open it in ui.perfetto.dev" in capsys.readouterr().err


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


@pytest.mark.parametrize("form", ["trace", "html", "svg", "json", "text"])
def test_a_folder_is_refused_before_anything_runs(here: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    (here / "out").mkdir()
    timed = ("--hw", "a100-80g", "--network", "ib-hdr-200g")

    assert by_config(here, *timed, "--format", form, "-o", "out") == 2

    assert "out" in (said := capsys.readouterr().err) and "it is a folder" in said
    assert "Name a file in it." in said
    assert not (here / "asked.json").exists()
    assert list((here / "out").iterdir()) == []


def test_other_networks_are_told_from_one_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As if the engine had run with each of them."""
    timed = ("--hw", "a100-80g", "--network", "ib-hdr-200g", "--format", "json")

    assert by_config(here, *timed, "--what-if", "network=ethernet-25g, ib-ndr-400g") == 0
    told = json.loads(capsys.readouterr().out)["what_if"]

    assert [one["network"] for one in told] == ["ethernet-25g", "ib-ndr-400g"]
    for one in told:
        assert by_config(here, "--hw", "a100-80g", "--network", one["network"], "--format", "json") == 0
        assert json.loads(capsys.readouterr().out)["time"] == one["time"]


def test_other_networks_stand_below_the_text(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timed = ("--hw", "a100-80g", "--network", "ib-hdr-200g")

    assert by_config(here, *timed, "--what-if", "network=ethernet-25g") == 0

    head, *rows = capsys.readouterr().out.split("what if the network were another")[1].splitlines()[1:]
    assert head.split() == ["network", "step", "change", "tokens/s/GPU", "MFU", "communication"]
    assert rows[0].strip().startswith("as simulated")
    assert rows[1].split()[0] == "ethernet-25g" and "+" in rows[1]


@pytest.mark.parametrize(
    ("world", "options", "words"),
    [
        ("16", ("--network", "ib-hdr-200g", "--what-if", "gpus=8"), "it must name networks"),
        ("16", ("--network", "ib-hdr-200g", "--what-if", "network=,"), "it must name networks"),
        ("16", ("--network", "ib-hdr-200g", "--what-if", "network=ib-hdr-200"), "did you mean"),
        ("16", ("--network", "ib-hdr-200g", "--what-if", "netwrok=ib-hdr-200g"), "did you mean network=ib-hdr-200g?"),
        ("16", ("--network", "ib-hdr-200g", "--what-if", "netwrok"), "did you mean network=ethernet-25g,ib-ndr-400g?"),
        ("16", ("--network", "ib-hdr-200g", "--what-if", "seq_len=1"), "of other fields dsgen plan --what-if tells"),
        ("16", ("--network", "ib-hdr-200g", "--what-if", "network=single-node"), "fabric is none"),
        ("16", ("--what-if", "network=ethernet-25g"), "--network ib-hdr-200g"),
        ("8", ("--what-if", "network=ethernet-25g"), "all 8 GPUs are in one node"),
    ],
)
def test_what_if_is_refused_in_words_before_anything_runs(
    here: Path, capsys: pytest.CaptureFixture[str], world: str, options: tuple[str, ...], words: str
) -> None:
    basis = ("--config", "ds.json", "--model", "config.json", "--world-size", world, "--hw", "a100-80g")

    assert run(*basis, "--python", answering(here, TIMED), *options) == 2

    assert words in " ".join(capsys.readouterr().err.split())
    assert not (here / "asked.json").exists()


def test_what_if_says_where_it_does_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timed = ("--hw", "a100-80g", "--network", "ib-hdr-200g", "--format", "trace")

    assert by_config(here, *timed, "--what-if", "network=ethernet-25g") == 0

    assert "--what-if does nothing" in capsys.readouterr().err
