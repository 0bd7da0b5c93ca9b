"""Axolotl, LLaMA-Factory and ms-swift as what is launched: their file, their module, and what only a person knows."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import run as dsgen
from launches_made import FAKE_PYTHON, read_back
from ruamel.yaml import YAML

JOB = ["--hw", "a100-40g", "--model", "7b", "--gpus", "2"]
FILES = {"axolotl": "axolotl.yaml", "llama-factory": "llama_factory.yaml", "ms-swift": "ms_swift.yaml"}
OPEN = {
    "axolotl": ["base_model", "datasets"],
    "llama-factory": ["model_name_or_path", "template", "dataset"],
    "ms-swift": ["model", "dataset"],
}
SAID = {
    "axolotl": ["--argument", "base_model=/m/x", "--argument", "datasets=[{path: a.jsonl, type: chat_template}]"],
    "llama-factory": [
        "--argument",
        "model_name_or_path=/m/x",
        "--argument",
        "template=qwen",
        "--argument",
        "dataset=a",
    ],
    "ms-swift": ["--argument", "model=/m/x", "--argument", "dataset=[a.jsonl, b.jsonl]"],
}


@pytest.fixture(autouse=True)
def _here(elsewhere: None) -> None:
    """An empty folder to run in."""


def launched(target: str, launcher: str, *more: str, code: int = 0) -> Any:
    done = dsgen("launch", *JOB, "--target", target, "--with", launcher, "-o", "the run", *more)
    assert done.code == code, done.err
    return done


def file_of(target: str) -> dict[str, Any]:
    """The framework's file as it reads it."""
    told: dict[str, Any] = YAML(typ="safe").load(Path("the run", FILES[target]).read_text())
    return told


def tool(name: str, text: str) -> dict[str, str]:
    """The environment of a shell in which a program of that name is ours."""
    Path("bin").mkdir(exist_ok=True)
    made = Path("bin", name)
    made.write_text(text)
    made.chmod(made.stat().st_mode | stat.S_IXUSR)
    return {**os.environ, "PATH": f"{Path('bin').absolute()}:{os.environ['PATH']}"}


@pytest.mark.parametrize("target", FILES)
def test_what_only_a_person_knows_is_named_where_it_is_filled_in_and_stops_a_start(target: str) -> None:
    said = launched(target, "torchrun").out
    named = " ".join(said.split())
    assert f"Fill in {', '.join(OPEN[target])} in the run/{FILES[target]}: it does not start before." in named
    assert all(len(line) <= 80 for line in said.splitlines())
    lines = Path("the run", FILES[target]).read_text().splitlines()
    assert [line.partition(":")[0] for line in lines if ": " in line and "FILL_IN" in line and line[0] != "#"] == (
        OPEN[target]
    )

    environment = tool("torchrun", "#!/usr/bin/env bash\necho started\n")
    done = subprocess.run(
        ["bash", "the run/run.sh"], env=environment, capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.returncode, done.stdout) == (2, "")
    for name in OPEN[target]:
        assert f"{name}: " in done.stderr
    file = Path("the run", FILES[target])
    file.write_text(file.read_text().replace("FILL_IN", "mine"))
    done = subprocess.run(
        ["bash", "the run/run.sh"], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "started\n")


@pytest.mark.parametrize("target", FILES)
def test_a_job_of_slurm_ends_before_its_ranks(target: str) -> None:
    launched(target, "slurm")
    environment = tool("srun", "#!/usr/bin/env bash\necho started\n")

    done = subprocess.run(
        ["bash", "the run/job.sbatch"], env=environment, capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert f"{FILES[target]} is not filled in yet; nothing was started" in done.stderr


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize("launcher", ["deepspeed", "torchrun", "accelerate", "slurm"])
def test_every_rank_runs_the_framework_s_own_program_with_its_file(target: str, launcher: str) -> None:
    launched(target, launcher, *SAID[target], "--", "--a", "b c")
    folder = Path("the run").absolute()
    told = file_of(target)
    assert told["deepspeed"] == str(folder / "ds_config.json")
    assert told["output_dir"] == str(folder / "checkpoints")
    assert told["save_strategy"] == "steps"
    assert told["save_steps"] > 0

    python = Path("python")
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    numbers = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}
    shell = {**os.environ, **numbers, "NPROC_PER_NODE": "2"}
    script = folder / "rank.sh"
    script.write_text(script.read_text().replace('"${1:-python}"', str(python.absolute())))
    path = str(folder / FILES[target])
    first = {
        "axolotl": ["-m", "axolotl.cli.train", path],
        "llama-factory": ["-m", "llamafactory.launcher", path],
        "ms-swift": ["-m", "swift.cli.main", "sft", path],
    }[target]

    assert read_back(script, environment=shell) == [str(Path.cwd()), "-u", *first, "--a", "b c"]

    for number in (2, 10, 30):  # the last was cut short
        one = folder / "checkpoints" / f"checkpoint-{number}"
        one.mkdir(parents=True)
        (one / "latest").write_text("x")
        if number < 30:
            (one / "trainer_state.json").write_text("{}")
    newest = f"resume_from_checkpoint={folder}/checkpoints/checkpoint-10"
    last = newest if target == "llama-factory" else f"--{newest}"
    assert read_back(script, environment=shell)[-1] == last


@pytest.mark.parametrize("target", FILES)
def test_what_a_person_says_stands_in_the_file_and_stays_when_it_is_written_anew(target: str) -> None:
    launched(target, "torchrun", *SAID[target], "--argument", "seed=7")
    assert "FILL_IN" not in str(file_of(target))
    assert file_of(target)["seed"] == 7
    assert file_of(target)[OPEN[target][0]] == "/m/x"

    launched(target, "torchrun", "--force", "--zero-stage", "3")

    assert file_of(target)[OPEN[target][0]] == "/m/x"
    assert "FILL_IN" not in str(file_of(target))


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize("launcher", ["kubernetes", "skypilot"])
def test_a_cluster_that_copies_the_file_is_told_all_at_once(target: str, launcher: str) -> None:
    image = ["--image", "registry.example/image:1"]

    told = " ".join(launched(target, launcher, *image, code=2).err.split())
    assert f"{target} is not told {', '.join(OPEN[target])}" in told
    assert not Path("the run").exists()

    launched(target, launcher, *image, *SAID[target])
    job = Path("the run", "jobset.yaml" if launcher == "kubernetes" else "task.yaml").read_text()
    assert FILES[target] in job
    assert file_of(target)["deepspeed"] == "/dsgen/run/ds_config.json"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--script", "train.py"], "--script train.py and --target axolotl; axolotl is the program"),
        (["--config-argument", "--x"], "its file says the config and the checkpoints"),
        (["--argument", "learning_rate=1"], "--argument learning_rate: the plan says 2.0e-05"),
        (["--argument", "x"], "--argument x names nothing; it must be NAME=VALUE"),
        (["--argument", "seed=1", "--argument", "seed=2"], "--argument seed is said twice"),
        (["--argument", "seed=[1"], "--argument seed: '[1' is no value of YAML"),
    ],
)
def test_a_mistake_is_said_and_nothing_written(options: list[str], says: str) -> None:
    assert says in " ".join(launched("axolotl", "torchrun", *options, code=2).err.split())

    assert list(Path().iterdir()) == []


def test_values_of_a_file_are_for_those_that_have_one() -> None:
    done = dsgen("launch", *JOB, "--target", "hf-trainer", "--with", "torchrun", "--module", "my.train",
                 "--argument", "a=1", "-o", "x")  # fmt: skip

    assert done.code == 2
    assert "--argument is of axolotl, llama-factory, ms-swift" in done.err
