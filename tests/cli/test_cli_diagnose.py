"""`dsgen diagnose` as a person uses it: the screen, the JSON, the exit codes, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import MAIN, refused, run

OOM = """dist_world_size=8
[rank3]: Traceback (most recent call last):
[rank3]:   File "/x/torch/_tensor.py", line 492, in backward
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 3 has a total capacity of \
39.39 GiB of which 320.00 MiB is free. Including non-PyTorch memory, this process has 39.06 GiB memory in use. Of the \
allocated memory 28.02 GiB is allocated by PyTorch, and 10.10 GiB is reserved by PyTorch but unallocated.
[rank0]:[E] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, \
Timeout(ms)=600000) ran for 600061 milliseconds before timing out.
"""
QUIET = "epoch 1\nepoch 2\nall is well\n"


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A run that ran out of memory."""
    path = tmp_path / "slurm-812.out"
    path.write_text(OOM)
    return str(path)


def test_a_training_file_says_what_ran(log: str, tmp_path: Path) -> None:
    told = tmp_path / "sft.yaml"
    told.write_text("model_name_or_path: Qwen/Qwen2.5-7B\nfinetuning_type: lora\nper_device_train_batch_size: 4\n")
    card = ("--hw", "a100-40g", "--gpus", "8", "--format", "json")

    by_file = json.loads(run("diagnose", log, "--args", str(told), "--target", "llama-factory", *card).out)
    alone = json.loads(run("diagnose", log, "--format", "json").out)

    assert any("micro_batch" in change["options"] for change in by_file["next"])
    assert (alone["next"], alone["predicted"]) == ([], None)
    assert "--target does nothing: nothing is said of the job" in run("diagnose", log, "--target", "hf-trainer").err


def test_the_screen_without_a_job(log: str) -> None:
    done = run("diagnose", log)

    assert (done.code, done.err) == (1, "")
    lines = done.out.splitlines()
    assert lines[0] == "out of GPU memory on rank 3 in backward (line 4): 2.0 GiB asked, 0.31 free of"
    assert lines[-1] == "  also: a collective did not end in time (line 5): it follows"
    assert max(map(len, lines)) <= 80


def test_the_screen_with_a_scenario(log: str, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("hw: a100-40g\nmodel: 7b\n")

    done = run("diagnose", log, str(scenario))

    told = " ".join(done.out.split())
    assert done.code == 1
    assert "this job was predicted to reserve 34.6 GiB, 28.7 of it allocated: the difference is fragmentation" in told
    assert "next PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True up to -10.1 GiB, free" in told
    assert "or --micro-batch 1 --accumulation 32 -1.8 GiB, 5% slower" in told
    assert run("diagnose", log, *MAIN).out == done.out


def test_a_config_says_what_ran(log: str, tmp_path: Path) -> None:
    config = tmp_path / "ds.json"
    config.write_text(json.dumps({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}))

    done = run("diagnose", log, *MAIN, "--config", str(config), "--checkpointing", "full")

    assert "predicted not to fit" in " ".join(done.out.split())
    assert "--zero-stage 2" in done.out


def test_the_json_has_all_of_it(log: str) -> None:
    done = run("diagnose", log, *MAIN, "--format", "json")
    data = json.loads(done.out)

    assert done.code == 1
    assert (data["code"], data["cause"]["rank"], data["cause"]["phase"]) == ("gpu-out-of-memory", 3, "backward")
    assert data["cause"]["facts"]["total_bytes"] == int(39.39 * 2**30)
    assert [one["code"] for one in data["also"]] == ["nccl-timeout"]
    assert all({"options", "saved_bytes", "slower", "enough"} <= set(one) for one in data["next"])
    assert data["log"]["lines"] == 5 and data["log"]["world"] == 8
    assert data["predicted"]["gpu_limit_bytes"] > 39 * 2**30


def test_a_log_without_anything_wrong(tmp_path: Path) -> None:
    path = tmp_path / "fine.log"
    path.write_text(QUIET)

    done = run("diagnose", str(path))

    assert done.code == 0
    assert done.out.startswith("nothing wrong is known of in 3 lines\n  last line: all is well\n")
    assert json.loads(run("diagnose", str(path), "--format", "json").out)["code"] is None


def test_an_error_that_nobody_knows_is_quoted(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(
        "Traceback (most recent call last):\nmypackage.SadError: the dog ate it\nexits with return code = 1\n"
    )

    done = run("diagnose", str(path))

    assert done.code == 1
    assert done.out.startswith(
        "an error that dsgen does not know (line 2)\n  log: mypackage.SadError: the dog ate it\n"
    )


def test_what_is_refused(log: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.log"
    empty.write_text("")

    assert "no such file" in refused("diagnose", str(tmp_path / "no.log"))
    assert "it is empty" in refused("diagnose", str(empty))
    assert "a folder" in refused("diagnose", str(tmp_path))
    assert "Missing argument 'LOG'" in refused("diagnose")
    assert "no model" in refused("diagnose", log, "--hw", "a100-40g")
    assert "did you mean a100-40g" in refused("diagnose", log, "--hw", "a100-40", "--model", "7b")
    assert "no hardware" in refused("diagnose", log, "--world-size", "8")


def test_a_log_comes_by_a_pipe() -> None:
    words = [sys.executable, "-m", "dsgen", "diagnose", "-"]

    done = subprocess.run(words, input=OOM.encode("latin-1"), capture_output=True, check=False, env={**os.environ})

    assert done.returncode == 1
    assert done.stdout.startswith(b"out of GPU memory on rank 3")
    assert done.stderr == b""


def test_a_scenario_in_the_place_of_the_log_is_refused(log: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text("hw: a100-40g\nmodel: 7b\n")

    for names in ([str(path)], [str(path), log]):
        assert f"{path}: it is a scenario; the log comes first" in refused("diagnose", *names)
