"""`dsgen hardware detect` and `--hw auto` as a person uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import refused, run
from machines import MACHINES, answers, file

from dsgen import detecting


def test_the_profile_goes_to_stdout_and_what_was_seen_to_stderr() -> None:
    done = run("hardware", "detect", "--from", file("rtx4090-desktop"))

    assert done.code == 0
    assert done.out.startswith("# Written by dsgen hardware detect on tower, 2025-06-02.")
    assert done.err.startswith("1 x NVIDIA GeForce RTX 4090 on tower: extends rtx4090-24g\n")
    assert "--measure-drive" in done.err


@pytest.mark.parametrize("name", sorted(set(MACHINES) - {"a100-mig", "mixed", "quadro-rtx4000"}))
def test_what_is_said_has_80_columns_and_the_file_plans(name: str, tmp_path: Path) -> None:
    path = tmp_path / "my-box.yaml"
    done = run("hardware", "detect", "--from", file(name), "-o", str(path))

    assert done.code == 0
    assert max(len(line) for line in done.err.splitlines() if not line.startswith("wrote")) <= 80
    assert f"wrote {path}. Next: dsgen plan --hw {path}" in done.err
    assert run("render", "--hw", str(path), "--model", "1b", "--method", "lora", "--seq-len", "512").code == 0


def test_the_network_of_several_nodes_is_named() -> None:
    assert "--network ib-hdr-1600g" in run("hardware", "detect", "--from", file("dgx-a100-40g")).err
    assert "--network roce-3200g" in run("hardware", "detect", "--from", file("mi300x-8")).err


def test_a_machine_is_recorded_and_asked_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(detecting, "ask", lambda: answers("h100-job"))
    record = tmp_path / "node.json"
    here = run("hardware", "detect", "--record", str(record))

    assert json.loads(record.read_text())["host"] == "h100-01"
    assert run("hardware", "detect", "--from", str(record)) == here


def test_auto_works_on_every_command_that_takes_hw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(detecting, "ask", lambda: answers("h100-job"))
    config = tmp_path / "ds.json"
    config.write_text('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}')

    assert '"train_batch_size"' in run("render", "--hw", "auto", "--model", "1b").out
    assert "1b on 2 auto" in run("plan", "--hw", "auto", "--model", "1b").out
    assert run("memory", "--hw", "auto", "--model", "1b").code == 0
    assert run("lint", str(config), "--hw", "auto", "--model", "1b").code in (0, 1)
    told = run("why", "hardware.cpu_cores", "--hw", "auto", "--model", "1b").out
    assert "dsgen hardware detect" in told
    assert "detected: Linux on h100-01" in told
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("hw: auto\nmodel: 1b\n")
    assert run("render", str(scenario)).out == run("render", "--hw", "auto", "--model", "1b").out
    assert "hardware detect -o my-box.yaml" in refused(
        "calibrate", "--hw", "auto", "--model", "1b", "--step-seconds", "1"
    )


def test_a_machine_without_a_gpu_says_what_to_say_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = answers(
        "rtx4090-desktop", pci=[], nvml={"kernel_module": "", "error": "no package", "driver": "", "gpus": []}
    )
    monkeypatch.setattr(detecting, "ask", lambda: bare)

    for command in (("hardware", "detect"), ("render", "--hw", "auto", "--model", "7b")):
        told = refused(*command)
        assert "no GPU" in told
        assert "--hw a100-40g" in told


@pytest.mark.parametrize(
    ("name", "words"), [("a100-mig", "MIG"), ("mixed", "differ"), ("quadro-rtx4000", "--gpu-memory 8GiB")]
)
def test_what_cannot_be_planned_is_one_error(name: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "box.yaml"

    assert words in refused("hardware", "detect", "--from", file(name), "-o", str(path))
    assert not path.exists()


def test_answers_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    assert "cannot be read" in refused("hardware", "detect", "--from", str(path))
    path.write_text("{}")
    assert "it lacks host" in refused("hardware", "detect", "--from", str(path))
    path.write_text("nonsense")
    assert "cannot be read" in refused("hardware", "detect", "--from", str(path))
    assert "only the machine at hand is measured" in refused("hardware", "detect", "--from", str(path), "--measure")


def test_a_measurement_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dsgen.detecting import measuring

    monkeypatch.setattr(detecting, "ask", lambda: answers("rtx4090-desktop"))
    monkeypatch.setattr(measuring, "_COPY_BYTES", 1 << 20)
    monkeypatch.setattr(measuring.drive_rates, "__defaults__", (1 << 24,))

    done = run("hardware", "detect", "--measure", "--measure-drive", str(tmp_path))

    assert done.code == 0
    assert 'host_memory_bandwidth: "measured on tower' in done.out
    assert f"in {tmp_path}" in done.out
    assert "PCIe was not measured" in done.err
    assert list(tmp_path.iterdir()) == []
    assert "--python does nothing" in run("hardware", "detect", "--python", "x").err
