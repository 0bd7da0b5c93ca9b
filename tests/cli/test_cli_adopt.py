"""`dsgen adopt` as a person uses it: the scenario, the screen, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import refused, run

JOB = ("--hw", "a100-80g", "--model", "llama-3.1-8b")
CONFIG: dict[str, Any] = {
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": "auto"},
    "gradient_accumulation_steps": 8,
    "train_micro_batch_size_per_gpu": 1,
    "gradient_clipping": "auto",
}


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(CONFIG))
    return str(path)


def test_render_gives_the_same_config(config: str, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    done = run("adopt", config, *JOB, "-o", str(scenario))

    assert (done.code, done.out) == (0, "")
    assert f"wrote {scenario}. Next: dsgen render {scenario}" in done.err
    again = run("render", str(scenario))
    assert json.loads(again.out) == CONFIG
    assert "learning rate" not in again.err  # its schedule is the program's
    assert run("plan", str(scenario)).code == run("memory", str(scenario)).code == 0


def test_the_screen_says_what_runs_and_what_dsgen_would_do(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(config).parent)
    done = run("adopt", Path(config).name, *JOB)

    assert done.code == 0
    assert done.out.startswith("# Written by dsgen adopt.")
    assert "ZeRO-3 + CPU optimizer" in done.err
    assert "dsgen would take ZeRO-" in done.err
    assert "what would make it faster" in done.err
    assert "faster for the same sequences a step" in " ".join(done.err.split())
    assert max(map(len, done.err.splitlines())) <= 80


def test_why_names_the_place(config: str, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    run("adopt", config, *JOB, "-o", str(scenario))
    told = run("why", "zero_optimization.stage", str(scenario)).out

    assert told.startswith("zero_optimization.stage = 3\n")
    assert f"{scenario}:" in told


def test_arguments_of_the_program_are_followed(config: str, tmp_path: Path) -> None:
    arguments = tmp_path / "args.yaml"
    arguments.write_text("gradient_checkpointing: true\nbf16: true\nmax_seq_length: 2048\n")
    done = run("adopt", config, *JOB, "--args", str(arguments))

    assert "checkpointing: full" in done.out
    assert "seq_len: 2048" in done.out
    assert "2048 tokens" in done.err


def test_a_file_that_is_there_is_kept(config: str, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("mine")

    assert "--force" in refused("adopt", config, *JOB, "-o", str(scenario))
    assert scenario.read_text() == "mine"
    assert run("adopt", config, *JOB, "-o", str(scenario), "--force").code == 0
    assert "deepspeed: null" in scenario.read_text()


def test_a_config_that_does_not_start_is_refused_with_its_finding(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{\n  "train_batch_size": 8,\n  "zero_optimization": {"stage": 2, "verbose": true}\n}')
    told = refused("adopt", str(path), *JOB)

    assert told.startswith(f"error: {path}:3:")
    assert "cannot be adopted" in told
    assert "dsgen lint" in told
    assert "dsgen rule DSG" in told


def test_no_model_and_no_config_are_refused(config: str, tmp_path: Path) -> None:
    assert "--model" in refused("adopt", config, "--hw", "a100-80g")
    assert "no such file" in refused("adopt", str(tmp_path / "none.json"), *JOB).lower()


def test_json_has_the_scenario_and_the_numbers(config: str, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    alone = run("adopt", config, *JOB, "--format", "json")
    written = run("adopt", config, *JOB, "--format", "json", "-o", str(scenario))

    told, again = json.loads(alone.out), json.loads(written.out)
    assert (alone.code, alone.err, written.err) == (0, "", "")
    assert again["written_to"] == str(scenario) and told["written_to"] is None
    assert scenario.read_text() == again["scenario"]
    assert told["config"] == CONFIG
    assert told["runs"]["seconds_per_step"] > 0
    assert told["gain"] == pytest.approx(
        told["dsgen_would"]["tokens_per_second_per_gpu"] / told["runs"]["tokens_per_second_per_gpu"] - 1
    )
    assert told["faster"] and isinstance(told["notes"], list)


def test_no_warning_is_of_a_batch_that_the_program_decides(tmp_path: Path) -> None:
    path = tmp_path / "ds_config.json"
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}
    batch = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    path.write_text(json.dumps({**batch, "zero_optimization": zero}))
    job = ("adopt", str(path), "--hw", "rtx3090-24g", "--gpus", "2", "--model", "7b")

    left = run(*job)
    assert (left.code, "sequences takes about" in left.err) == (0, False)
    assert (
        "warning: a step of 256 sequences takes about" in run(*job, "--micro-batch", "1", "--accumulation", "128").err
    )
