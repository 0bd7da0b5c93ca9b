"""Simulations through the real engine: both ways in, DeepSpeed's own refusals, and what a large one costs."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import simulations
from simulated import MODEL

import dsgen
from dsgen import simulating
from dsgen.cli import main
from dsgen.memory.evaluating import evaluation
from dsgen.shapes.errors import DsgenError
from dsgen.simulating import Options, child, from_config

pytestmark = pytest.mark.proof

STAGE_3: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
}
CPU_SECONDS = 30.0  # 13 s on a machine of its own; a shared one counts up to twice that for the same work
MEMORY_BYTES = 10**9


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server is asked, which answers as a process of its own does (engine/test_simulate_real.py)."""

    def ask(request: dict[str, Any], python: str, timeout_seconds: float) -> dict[str, Any]:
        return simulations.simulate({**request, "config": child.apart(request["config"], str(tmp_path))})

    monkeypatch.setattr(child, "ask", ask)


def test_a_scenario_runs_from_its_profiles_to_the_peak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
    more = ("--global-batch", "16", "--micro-batch", "1", "--seq-len", "32", "--steps", "1", "--format", "json")

    code = run("--hw", "a100-40g", "--model", str(tmp_path), *more)

    told = json.loads(capsys.readouterr().out)
    assert (code, told["verdict"]) == (0, "fits")
    assert (told["engine"]["model"], told["engine"]["accumulation"]) == ("LlamaForCausalLM", 2)
    assert [one["phase"] for one in told["phases"]] == [
        "load", "init", "forward", "backward", "forward", "backward", "step"
    ]  # fmt: skip
    for place in ("gpu", "host"):
        assert sum(told[place]["parts"].values()) == told[place]["peak_bytes"]
    assert told["gpu"]["peak_bytes"] <= told["gpu"]["allocated_bytes"] <= told["gpu"]["reserved_bytes"]
    time = told["time"]
    assert sum(time["parts"].values()) == pytest.approx(time["step_seconds"])
    assert time["parts"]["host-bound"] > time["step_seconds"] / 2  # 64 wide: the GPU waits for the host
    assert time["tokens_per_second_per_gpu"] == pytest.approx(2 * 32 / time["step_seconds"])
    assert [one["phase"] for one in time["phases"]] == [*["input", "forward", "backward", "step"] * 2]


@pytest.mark.usefixtures("served")
def test_an_evaluation_runs_behind_every_step_and_takes_what_the_instant_model_says() -> None:
    """A larger batch than that of training, whose logits no backward asks for."""
    rendered = dsgen.render({"hw": "a100-80g", "model": "qwen2.5-0.5b", "zero_stage": 3, "seq_len": 512})

    done = dsgen.simulate(rendered, evaluation=5)

    behind = [one for one in done.estimate.phases if one.phase == "evaluate"]
    assert [one.step for one in behind] == [1, 2]
    ours = evaluation(rendered.plan.job, rendered.plan.chosen.strategy, 5)
    assert ours is not None
    assert ours.peak_bytes == pytest.approx(behind[-1].gpu_bytes, rel=0.002)
    assert ours.parts["gathered parameters"] == pytest.approx(behind[-1].gpu["gathered parameters"], rel=0.002)


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize(("stage", "kept", "sets"), [(2, 4, 8), (3, 4, 8), (3, 1, 1)])
def test_logits_that_an_evaluation_keeps_are_those_of_all_ranks_twice(stage: int, kept: int, sets: int) -> None:
    """Those of before, the last, and the tensor that is made of both, beside what stage 3 leaves gathered."""
    rendered = dsgen.render(
        {"hw": "a100-80g", "gpus": 8, "model": "qwen2.5-0.5b", "zero_stage": stage, "seq_len": 512, "micro_batch": 1}
    )
    job, chosen = rendered.plan.job, rendered.plan.chosen.strategy

    done = dsgen.simulate(rendered, evaluation=2, kept=kept, steps=1)

    (behind,) = [one for one in done.estimate.phases if one.phase == "evaluate"]
    ours = evaluation(job, chosen, 2, kept)
    assert ours is not None
    assert behind.gpu["kept logits"] == ours.parts["kept logits"] == sets * 8 * 2 * 512 * job.model.vocab_size * 2
    assert ours.peak_bytes == pytest.approx(behind.gpu_bytes, rel=0.001)
    if stage == 3:
        assert ours.parts["gathered parameters"] == pytest.approx(behind.gpu["gathered parameters"], rel=0.001)


@pytest.mark.usefixtures("served")
def test_a_config_runs_with_what_the_trainer_fills_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Offloaded states of 2 x 4 bytes and master weights of 4 for each element of a rank's share, on the node."""
    (tmp_path / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": True}, "reduce_bucket_size": "auto"}
    written = {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": zero}
    file = tmp_path / "ds.json"
    file.write_text(json.dumps(written), encoding="utf-8")

    code = run("--config", str(file), "--model", str(tmp_path), "--world-size", "16", "--format", "json", "--rank", "9")

    told = json.loads(capsys.readouterr().out)
    assert (code, told["rank"], told["verdict"]) == (0, 9, None)
    assert told["engine"]["micro_batch"] == 8
    held = told["phases"][-1]["host"]["end_parts"]
    share = 8 * told["engine"]["parameters"] / 16
    assert held["optimizer states"] == pytest.approx(8 * share, rel=0.01)
    assert held["fp32 master weights"] == pytest.approx(4 * share, rel=0.01)
    assert told["host"]["pinned_bytes"] > 0
    assert {one["key"] for one in told["filled"]} == {
        "train_micro_batch_size_per_gpu", "bf16.enabled", "zero_optimization.reduce_bucket_size", "optimizer.type"
    }  # fmt: skip


@pytest.mark.usefixtures("served")
def test_files_on_the_drives_are_counted() -> None:
    """Stage 3 swaps master weights, two moments and the gradient, 4 bytes each; a tensor below 1 MiB stays."""
    swap = {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 12}
    zero = {"stage": 3, "offload_optimizer": swap, "sub_group_size": 4 * 10**6}
    larger = {**MODEL, "hidden_size": 1024, "intermediate_size": 2048, "vocab_size": 8192}
    request = from_config({**STAGE_3, "zero_optimization": zero}, model=larger, world_size=4, options=Options(steps=1))

    found = simulating.simulate(request)

    assert found.estimate.nvme.parts == {"optimizer states": found.estimate.nvme.peak_bytes}
    assert 3 * 4 < found.estimate.nvme.peak_bytes / found.engine["parameters"] <= 4 * 4 * 1.05


@pytest.mark.usefixtures("served")
def test_deepspeeds_own_refusal_names_phase_and_place() -> None:
    request = from_config({**STAGE_3, "train_batch_size": 7}, model=MODEL, world_size=8)

    with pytest.raises(DsgenError) as told:
        simulating.simulate(request)

    assert "DeepSpeed refuses it in " in str(told.value)
    assert "deepspeed/runtime/config.py:" in str(told.value)
    assert "dsgen lint: train_batch_size 7" in str(told.value)


@pytest.mark.usefixtures("served")
def test_an_unknown_model_type_is_no_traceback() -> None:
    request = from_config(STAGE_3, model={**MODEL, "model_type": "lama"}, world_size=8)

    with pytest.raises(DsgenError, match=r"has no model_type lama\n  did you mean llama"):
        simulating.simulate(request)


def test_7b_on_64_gpus_is_cheap() -> None:
    """The published count of Llama 2 7B is 6,738,415,616 parameters."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)

    found = dsgen.simulate(STAGE_3, model="7b", world_size=64, hardware="a100-40g", seq_len=2048, checkpointing="full")

    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert found.engine["parameters"] == 6_738_415_616
    assert found.process_bytes < MEMORY_BYTES
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < CPU_SECONDS


@pytest.mark.usefixtures("served")
def test_a_lora_run_holds_states_of_the_adapters_alone() -> None:
    found = simulating.simulate(
        from_config(STAGE_3, model=MODEL, world_size=4, options=Options(method="lora", lora_rank=4, steps=1))
    )

    end = found.ends[-1].gpu
    trained = 2 * 4 * 4 * (64 + 64) + 2 * 4 * 3 * (64 + 128)
    assert end["optimizer states"] < 2 * 4 * trained  # of 4 ranks one holds a quarter, padded


def test_a_killed_command_leaves_no_child_and_no_folder(tmp_path: Path) -> None:
    """A kill gives the command no time to end its child: the child looks for it itself, and removes its folder."""
    command = [sys.executable, "-m", "dsgen", "simulate", "--hw", "a100-40g", "--model", "70b", "--gpus", "8"]
    own = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=own)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 120
    while not (started := children.read_text().split()):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child = Path(f"/proc/{started[0]}")
    while b"simulate" not in (child / "cmdline").read_bytes():
        time.sleep(0.05)
    time.sleep(2)  # until it runs
    assert list(tmp_path.glob("dsgen-simulate-*"))

    process.kill()
    process.wait()

    deadline = time.monotonic() + 15  # it would run for longer
    while time.monotonic() < deadline and child.exists():
        if (child / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break  # dead, and waited for by nobody here
        time.sleep(0.05)
    assert time.monotonic() < deadline
    assert not list(tmp_path.iterdir())
