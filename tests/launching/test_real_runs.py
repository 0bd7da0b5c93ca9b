"""Real runs of what was written: DeepSpeed on the CPU by every launcher, on one host, on two, and under Slurm.

`nox -s launch` runs these: they need torch and deepspeed, root, and Debian's slurm-wlm, munge, openssh-server, pdsh and
iproute2. Every run trains the same data in the same order, so that losses are equal where nothing was lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import run as dsgen
from network_hosts import INTERFACE, NetworkHost, network_hosts
from slurm_cluster import SlurmCluster, slurm_cluster

pytestmark = pytest.mark.launch

HELPERS = Path(__file__).parents[1] / "helpers"
PROGRAM, TRAINER = HELPERS / "launched_program.py", HELPERS / "launched_trainer.py"
ACCELERATE, LIGHTNING = HELPERS / "launched_accelerate.py", HELPERS / "launched_lightning.py"
STEPS = 5
NOTE = "a $HOME 'b' \"c\" `d`\n\\ *"
SECONDS = 480  # of one run, which takes 20 alone; beside three others on two cores it took 105
# The optimizer is torch's, so that nothing is built; two processors, whatever the profile says.
JOB = ["--hw", "cpu", "--model", "qwen2.5-0.5b", "--seq-len", "32", "--micro-batch", "4", "--accumulation", "1",
       "--zero-stage", "2", "--precision", "fp32", "--total-steps", "12", "--set", "optimizer.params.torch_adam=true",
       "--set", "optimizer.params.lr=0.01", "--set", "hardware.cpu_cores=2"]  # fmt: skip
ONE, TWO = ["--gpus", "2"], ["--gpus", "4", "--nodes", "2", "--network", "ethernet-25g"]
TOOLS = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": ""}
DONE = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


def written(folder: Path, launcher: str, *more: str, program: tuple[str, ...] = ()) -> Path:
    """The folder of a launch; the program's log is log.jsonl in it."""
    given = ["--steps", str(STEPS), "--log", str(folder / "log.jsonl"), "--note", NOTE, *program]
    own = ["--port", str(free_port())]  # others on this machine may have the usual one
    done = dsgen(
        "launch", *JOB, *own, *more, "--with", launcher, "--script", str(PROGRAM), "-o", str(folder), "--", *given
    )
    assert done.code == 0, done.err
    return folder


def free_port() -> int:
    """A port that nothing listens at now, below those that the kernel gives away."""
    for port in range(20_000 + os.getpid() % 5_000, 30_000):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("", port))
            return port
    raise AssertionError("no port is free")


def steps(folder: Path) -> list[dict[str, Any]]:
    """What rank 0 noted at every step."""
    log = folder / "log.jsonl"
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []


def losses(folder: Path) -> dict[int, float]:
    """Step -> loss."""
    return {line["step"]: line["loss"] for line in steps(folder)}


def start(command: list[str]) -> subprocess.Popen[str]:
    """Start a command in a session of its own."""
    return subprocess.Popen(
        command, env={**os.environ, **TOOLS}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip


def ended(running: list[subprocess.Popen[str]]) -> list[str]:
    """Wait until all have ended well; their output. What takes too long is killed."""
    over = time.monotonic() + SECONDS
    try:
        told = [one.communicate(timeout=max(1, over - time.monotonic()))[0] for one in running]
    finally:
        for one in running:
            if one.poll() is None:
                os.killpg(one.pid, 9)
    assert [one.returncode for one in running] == [0] * len(running), "\n".join(text[-3000:] for text in told)
    return told


def started(*commands: list[str]) -> list[str]:
    """Run commands beside each other to their end; their output."""
    return ended([start(command) for command in commands])


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of two ranks that the deepspeed launcher starts from a folder with a blank in its name."""
    folder = written(tmp_path_factory.mktemp("one") / "the run", "deepspeed", *ONE)
    started(["bash", str(folder / "run.sh")])
    told = steps(folder)
    assert [line["step"] for line in told] == list(range(STEPS))
    assert {line["note"] for line in told} == {NOTE}
    assert {line["DEEPSPEED_TIMEOUT"] for line in told} == {"30"}
    assert (folder / "checkpoints" / "latest").exists()
    return losses(folder)


def test_deepspeed_goes_on_from_its_checkpoint(alone: dict[int, float], tmp_path: Path) -> None:
    folder = written(tmp_path / "run", "deepspeed", *ONE, program=("--stop-after", "2"))
    started(["bash", str(folder / "run.sh")])
    assert [line["step"] for line in steps(folder)] == [0, 1, 2]

    written(folder, "deepspeed", *ONE, "--force")
    started(["bash", str(folder / "run.sh")])

    assert [line["from"] for line in steps(folder)] == [0, 0, 0, 3, 3]
    assert losses(folder) == alone


def test_torchrun_starts_ranks_again_and_they_go_on(alone: dict[int, float], tmp_path: Path) -> None:
    folder = written(tmp_path / "the run", "torchrun", *ONE, program=("--die-at", "3"))

    started(["bash", str(folder / "run.sh")])

    assert [line["from"] for line in steps(folder)] == [0, 0, 0, 3, 3]
    assert losses(folder) == alone


def test_accelerate_starts_the_same(alone: dict[int, float], tmp_path: Path) -> None:
    folder = written(tmp_path / "the run", "accelerate", *ONE)

    started(["bash", str(folder / "run.sh")])

    assert losses(folder) == alone


def test_the_trainer_agrees_with_the_config_and_goes_on_from_its_newest_whole_checkpoint(tmp_path: Path) -> None:
    folder, log = tmp_path / "the run", tmp_path / "log.jsonl"
    given = ("--log", str(log), "--save_steps", "2", "--logging_steps", "1", "--report_to", "none", "--use_cpu", "True")
    own = ("--port", str(free_port()), "--total-steps", "4", "--target", "hf-trainer", "--script", str(TRAINER))
    done = dsgen("launch", *JOB, *ONE, *own, "--with", "torchrun", "-o", str(folder), "--", *given)
    assert done.code == 0, done.err
    said = started(["bash", str(folder / "run.sh")])
    whole = logged(log)
    assert [line["step"] for line in whole] == [1, 2, 3, 4], said[0][-5000:]  # torchrun tells of ranks that it restarts

    (folder / "checkpoints" / "checkpoint-4" / "trainer_state.json").unlink()  # as a crash while it was written
    log.unlink()
    again = started(["bash", str(folder / "run.sh")])

    assert logged(log) == whole[2:], again[0][-5000:]


def logged(log: Path) -> list[dict[str, Any]]:
    """The lines of a log, one a step: torchrun starts ranks again that fail, and a step that is done again is equal."""
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    first = {line["step"]: line for line in reversed(lines)}
    assert [line for line in lines if line != first[line["step"]]] == []
    return [first[step] for step in sorted(first)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NetworkHost]]:
    """Two hosts that a wire joins."""
    told = {
        "PATH": TOOLS["PATH"],
        "TORCH_EXTENSIONS_DIR": os.environ.get("TORCH_EXTENSIONS_DIR", "/tmp/dsgen-extensions"),
    }
    with network_hosts(tmp_path_factory.mktemp("network"), 2, told) as hosts:
        yield hosts


def over_two(folder: Path, launcher: str, hosts: list[NetworkHost], program: tuple[str, ...] = ()) -> Path:
    """A folder for the two hosts, two ranks on each."""
    named = folder.parent / "hosts"
    named.write_text("".join(f"{host.name} slots=2\n" for host in hosts))
    return written(folder, launcher, *TWO, "--hostfile", str(named), "--interface", INTERFACE, program=program)


@pytest.fixture(scope="module")
def four(pair: list[NetworkHost], tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of 2 hosts x 2 ranks that the deepspeed launcher starts with pdsh over ssh."""
    folder = over_two(tmp_path_factory.mktemp("two") / "run", "deepspeed", pair)
    started(pair[0].command(["bash", str(folder / "run.sh")]))
    told = steps(folder)
    assert told[0]["where"] == [f"{host.name}:{rank}" for host in pair for rank in range(2)]
    assert {line["note"] for line in told} == {NOTE}  # pdsh and two shells lie between
    assert {line["DEEPSPEED_TIMEOUT"] for line in told} == {"30"}
    assert list(losses(folder)) == list(range(STEPS))
    return losses(folder)


@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_other_launchers_start_two_hosts_alike(
    launcher: str, four: dict[int, float], pair: list[NetworkHost], tmp_path: Path
) -> None:
    folder = over_two(tmp_path / "run", launcher, pair)
    number = [[str(place)] if launcher == "accelerate" else [] for place in range(2)]

    started(*(host.command(["bash", str(folder / "run.sh"), *number[place]]) for place, host in enumerate(pair)))

    assert {where.partition(":")[0] for where in steps(folder)[0]["where"]} == {host.name for host in pair}
    assert losses(folder) == four


def test_torchrun_takes_back_a_host_that_was_away(
    four: dict[int, float], pair: list[NetworkHost], tmp_path: Path
) -> None:
    folder = over_two(tmp_path / "run", "torchrun", pair, program=("--pause", "1"))
    commands = [host.command(["bash", str(folder / "run.sh")]) for host in pair]
    running = [start(command) for command in commands]
    until(lambda: len(steps(folder)) > 1, SECONDS)
    pair[1].cut_off()
    running[1].communicate(timeout=30)

    running[1] = start(commands[1])

    ended(running)
    assert steps(folder)[-1]["from"] > 1
    assert losses(folder) == four


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A Slurm of three nodes on this machine."""
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), 3) as made:
        yield made


def until(what: Callable[[], bool], seconds: float) -> None:
    over = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < over
        time.sleep(0.3)


def output(folder: Path) -> str:
    return "\n".join(path.read_text("utf-8", "replace")[-3000:] for path in folder.glob("slurm-*.out"))


def test_slurm_runs_to_the_end_and_a_killed_node_costs_no_step(
    cluster: SlurmCluster, four: dict[int, float], tmp_path: Path
) -> None:
    folder = written(tmp_path / "the run", "slurm", *TWO, "--interface", "lo")
    number = cluster.submit(folder / "job.sbatch", TOOLS)
    over = cluster.wait(number, lambda job: job["JobState"] in DONE, SECONDS)
    assert over["JobState"] == "COMPLETED", output(folder)
    assert (over["NumNodes"], over["NumTasks"], over["Restarts"]) == ("2", "4", "0")
    assert losses(folder) == four

    cut = written(tmp_path / "cut", "slurm", *TWO, "--interface", "lo", program=("--pause", "1"))
    number = cluster.submit(cut / "job.sbatch", TOOLS)
    until(lambda: len(steps(cut)) > 1, SECONDS)
    assert cluster.job(number)["NodeList"] == "n[1-2]"
    cluster.kill_node("n2")
    over = cluster.wait(number, lambda job: job["JobState"] in DONE, SECONDS)

    assert over["JobState"] == "COMPLETED", output(cut)
    assert (over["Restarts"], over["NodeList"]) == ("1", "n[1,3]")
    assert steps(cut)[-1]["from"] > 1
    assert losses(cut) == four


def finished(cluster: SlurmCluster, folder: Path) -> None:
    """Submit the job of a folder and wait for its good end."""
    over = cluster.wait(cluster.submit(folder / "job.sbatch", TOOLS), lambda job: job["JobState"] in DONE, SECONDS)
    assert over["JobState"] == "COMPLETED", output(folder)


def test_slurm_runs_accelerate_and_goes_on(cluster: SlurmCluster, four: dict[int, float], tmp_path: Path) -> None:
    folder = tmp_path / "the run"
    own = ["--target", "accelerate", "--with", "slurm", "--interface", "lo", "-o", str(folder)]

    def launched(*more: str) -> None:
        given = ["--log", str(folder / "log.jsonl"), *more]
        done = dsgen("launch", *JOB, *TWO, *own, "--force", "--script", str(ACCELERATE), "--", *given)
        assert done.code == 0, done.err
        finished(cluster, folder)

    launched("--stop-after", "2")
    launched()

    assert [(line["step"], line["from"], line["world"]) for line in steps(folder)] == [
        (0, 0, 4), (1, 0, 4), (2, 0, 4), (3, 3, 4), (4, 3, 4),
    ]  # fmt: skip
    assert losses(folder) == four


def test_slurm_runs_lightning_and_goes_on(cluster: SlurmCluster, tmp_path: Path) -> None:
    folder, log = tmp_path / "the run", tmp_path / "log.jsonl"
    job = [*JOB, *TWO, "--total-steps", "4", "--target", "lightning"]
    rendered = dsgen("render", *job, "-q", "-o", str(tmp_path / "ds_config.json"))
    assert rendered.code == 0, rendered.err
    file = tmp_path / "trainer.py"
    file.write_text(file.read_text().replace("every_n_train_steps=4,", "every_n_train_steps=2,"))
    given = ["--trainer", str(tmp_path), "--log", str(log)]
    done = dsgen("launch", *job, "--with", "slurm", "--interface", "lo", "-o", str(folder), "--script",
                 str(LIGHTNING), "--", *given)  # fmt: skip
    assert done.code == 0, done.err

    finished(cluster, folder)
    whole = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["step"], line["world"]) for line in whole] == [(0, 4), (1, 4), (2, 4), (3, 4)], output(folder)
    (folder / "checkpoints" / "step=4.ckpt" / "latest").unlink()  # as a crash while it was written
    log.unlink()
    finished(cluster, folder)

    assert [json.loads(line) for line in log.read_text().splitlines()] == whole[2:]


def test_slurm_does_not_queue_again_what_was_cancelled(cluster: SlurmCluster, tmp_path: Path) -> None:
    folder = written(tmp_path / "run", "slurm", *ONE, program=("--pause", "1"))
    number = cluster.submit(folder / "job.sbatch", TOOLS)
    until(lambda: len(steps(folder)) > 0, SECONDS)

    cluster.command("scancel", number)
    over = cluster.wait(number, lambda job: job["JobState"] in DONE, SECONDS)
    time.sleep(5)  # in which it could be queued again

    assert (over["JobState"], over["Restarts"]) == ("CANCELLED", "0")
    assert cluster.job(number)["JobState"] == "CANCELLED"


def test_slurm_does_not_queue_again_what_fails_at_once(cluster: SlurmCluster, tmp_path: Path) -> None:
    folder = written(tmp_path / "run", "slurm", *ONE, "--config-argument", "--nonsense")
    number = cluster.submit(folder / "job.sbatch", TOOLS)

    over = cluster.wait(number, lambda job: job["JobState"] in DONE, SECONDS)

    assert (over["JobState"], over["Restarts"]) == ("FAILED", "0")
    assert "not queued again" in output(folder)
