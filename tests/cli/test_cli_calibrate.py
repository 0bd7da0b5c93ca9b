"""`dsgen calibrate` as a person uses it: the profile, the screen, what later commands say, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import MAIN, refused, run

from dsgen.asking.calibrating import PEAKS
from dsgen.cli import calibrate as command

MEASURED = [*MAIN, "--step-seconds", "45.2"]


def predicted() -> float:
    """Seconds of a step as a plan for the same job says, which is not measured."""
    return float(json.loads(run("plan", *MAIN, "--format", "json").out)["chosen"]["cost"]["seconds_per_step"])


@pytest.fixture
def box(tmp_path: Path) -> str:
    """The profile of a measured box."""
    path = tmp_path / "my-box.yaml"
    assert run("calibrate", *MEASURED, "--peak-gib", "31", "-o", str(path)).code == 0
    return str(path)


def test_the_screen_compares_and_names_what_is_next(tmp_path: Path) -> None:
    path = tmp_path / "box.yaml"
    done = run("calibrate", *MEASURED, "--peak-gib", "31", "-o", str(path))

    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("7b on 8 GPUs: ZeRO-2, checkpointing, micro-batch 2 x 16")
    assert re.search(r"^step  measured 45\.2 s, predicted 41\.\d+ s: x 1\.0\d$", done.err, re.M)
    assert re.search(r"^GPU   measured 31 GiB allocated, predicted 28\.\d+ GiB: tensors x 1\.0\d$", done.err, re.M)
    assert f"wrote {path}. Next: dsgen plan --hw {path}" in done.err


def test_without_o_the_profile_goes_to_stdout_and_is_a_profile(tmp_path: Path) -> None:
    done = run("calibrate", *MEASURED)
    path = tmp_path / "piped.yaml"
    path.write_text(done.out)

    assert done.code == 0
    assert 'name: "a100-40g-measured"' in done.out
    assert run("render", "--hw", str(path), "--model", "7b").code == 0


def test_later_commands_say_what_it_changed(box: str) -> None:
    rendered = run("render", "--hw", box, "--model", "7b")
    planned = run("plan", "--hw", box, "--model", "7b")
    told = " ".join(rendered.err.split())

    assert re.search(r"calibrated: measured 45\.2 s against predicted 41\.\d+ s, x 1\.09 \(\S*my-box\.yaml:\d+\)", told)
    assert "measured 31 GiB allocated against predicted 28.75 GiB" in told
    assert "plan not changed" in told
    assert "plan not changed" in " ".join(planned.out.split())
    assert "calibrated: measured 45.2 s" in " ".join(run("memory", "--hw", box, "--model", "7b").out.split())
    assert "calibrated" not in run("render", *MAIN).err
    assert all(len(line) <= 80 for line in rendered.err.splitlines() if box not in line)


def test_the_config_as_it_is_uses_it_too(box: str, tmp_path: Path) -> None:
    config = tmp_path / "ds.json"
    config.write_text(
        json.dumps({"train_batch_size": 64, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}})
    )

    def seconds(hardware: str) -> float:
        asked = ["--config", str(config), "--hw", hardware, "--model", "7b", "--format", "json"]
        return float(json.loads(run("plan", *asked).out)["now"]["cost"]["seconds_per_step"])

    assert seconds(box) / seconds("a100-40g") == pytest.approx(45.2 / predicted(), rel=1e-3)


def test_json_has_the_ratios_and_the_plan_without_them(box: str) -> None:
    told = json.loads(run("plan", "--hw", box, "--model", "7b", "--format", "json").out)
    plain = json.loads(run("plan", *MAIN, "--format", "json").out)

    assert "calibration" not in plain
    assert told["calibration"]["step_time_ratio"] == pytest.approx(45.2 / predicted(), rel=1e-3)
    assert told["calibration"]["changed"] is False
    assert told["calibration"]["strategy_without"].startswith("ZeRO-2")
    assert told["chosen"]["cost"]["seconds_per_step"] == pytest.approx(45.2, rel=1e-4)


def test_why_shows_the_fact_its_line_and_its_source(box: str) -> None:
    told = run("why", "hardware.step_time_ratio", "--hw", box, "--model", "7b").out

    assert "measured 45.2 s against predicted" in " ".join(told.split())
    assert "source: dsgen calibrate, dsgen" in told
    key = run("why", "zero_optimization.stage", "--hw", box, "--model", "7b", "--format", "json").out
    assert json.loads(key)["calibration"].endswith("plan not changed")


def test_another_measurement_is_added_to_the_file(box: str) -> None:
    done = run("calibrate", "--hw", box, "--model", "7b", "--zero-stage", "3", "--step-seconds", "47", "-o", box)

    assert done.code == 0
    assert "with 1 earlier: step x 1.09" in done.err
    assert Path(box).read_text().count("- date:") == 2
    assert 'extends: "a100-40g"' in Path(box).read_text()


def test_a_config_that_ran_is_taken_as_it_is(tmp_path: Path) -> None:
    config = tmp_path / "ds.json"
    config.write_text('{"train_batch_size": 64, "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}}')
    done = run("calibrate", *MAIN, "--config", str(config), "--step-seconds", "11")

    assert done.code == 0
    assert re.search(r"ZeRO-1.*64 sequences a step", " ".join(done.err.split()))


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "inf", "2000", "0.001"])
def test_nothing_is_written_of_what_no_run_has(tmp_path: Path, seconds: str) -> None:
    path = tmp_path / "box.yaml"
    refused("calibrate", *MAIN, "--step-seconds", seconds, "-o", str(path))

    assert list(tmp_path.iterdir()) == []


def test_refusals_say_what_to_do(box: str, tmp_path: Path) -> None:
    assert "--force" in refused("calibrate", *MEASURED, "-o", box)
    assert "box.yaml" in refused("calibrate", *MEASURED, "-o", str(tmp_path / "box.json"))
    assert "Missing option '--step-seconds S'" in refused("calibrate", *MAIN)
    assert "--config" in refused("calibrate", *MEASURED, "--zero-stage", "0")
    assert "no hardware" in refused("calibrate", "--model", "7b", "--step-seconds", "3")
    assert "cannot be written" in refused("calibrate", *MEASURED, "-o", str(tmp_path / "no" / "box.yaml"))


def test_the_options_kinds_of_peak_are_those_that_are_known() -> None:
    (option,) = (one for one in command.command.params if one.name == "peak_of")

    assert tuple(PEAKS) == tuple(option.type.choices)


def test_what_ran_is_what_a_training_program_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "from transformers import AutoModelForCausalLM, TrainingArguments\n"
        "args = TrainingArguments(per_device_train_batch_size=2, gradient_accumulation_steps=3, bf16=True)\n"
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B", attn_implementation="sdpa")\n',
        encoding="utf-8",
    )
    Path("ds.json").write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}', encoding="utf-8")
    ran = ("calibrate", "--args", "train.py", "--hw", "4090", "--gpus", "2", "--seq-len", "1024", "--step-seconds", "2")

    alone, beside = run(*ran), run(*ran, "--config", "ds.json")

    assert (alone.code, beside.code) == (0, 0)
    assert "qwen3-0.6b on 2 GPUs" in alone.err and "micro-batch 2 x 3, 12 sequences a step" in alone.err
    assert "ZeRO-2, micro-batch 2 x 3, 12 sequences" in " ".join(beside.err.split())
    by_hand = (
        *("calibrate", "--model", "qwen3-0.6b", "--hw", "4090", "--gpus", "2", "--seq-len", "1024", "--attention"),
        *("sdpa", "--micro-batch", "2", "--accumulation", "3", "--checkpointing", "none", "--step-seconds", "2"),
    )
    assert run(*by_hand).out == alone.out
