"""`dsgen launch` as a person uses it: the folder, the screen, what starts, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from command_line import MAIN, refused, run
from launches_made import FAKE_PYTHON, read_back

NODES = ["--hw", "h100-80g", "--model", "llama-3.1-70b", "--gpus", "32", "--network", "ib-ndr-400g"]
LAUNCHERS = ("deepspeed", "torchrun", "accelerate", "slurm")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with train.py, which is the working directory."""
    folder = tmp_path / "my project"
    folder.mkdir()
    (folder / "train.py").write_text("print('a program')\n")
    monkeypatch.chdir(folder)
    return folder


def launched(*more: str, launcher: str = "torchrun") -> tuple[str, ...]:
    return ("launch", *MAIN, "--with", launcher, "--script", "train.py", *more)


def test_the_screen_names_every_file_and_what_is_next(project: Path) -> None:
    done = run(*launched("-o", "runs/first"))

    folder = project / "runs" / "first"
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("runs/first/\n  ds_config.json  ")
    assert done.out.endswith("Nothing was started. Read RUN.md. Next: bash runs/first/run.sh\n")
    assert sorted(path.name for path in folder.iterdir()) == ["RUN.md", "ds_config.json", "env.sh", "rank.sh", "run.sh"]
    assert json.loads((folder / "ds_config.json").read_text()) == json.loads(run("render", *MAIN, "-q").out)
    assert all(len(line) <= 80 for line in done.out.splitlines())


def test_one_rank_is_called_one_rank(project: Path) -> None:
    done = run(*launched("--gpus", "1", "-o", "one", "--method", "lora"))

    assert "the command: 1 rank with torchrun" in done.out
    assert "# Starts 1 rank with torchrun." in (project / "one" / "run.sh").read_text()


def test_what_stands_behind_the_dashes_is_the_program_s(project: Path) -> None:
    words = ["--hw", "b200", "-o", "x", "a $b 'c' \"d\"\n", "--", "--help"]
    run(*launched("-o", "run", "--", *words))
    python = project / "python"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)

    where, _, script, *given = read_back(project / "run" / "rank.sh", str(python))

    assert (where, script) == (str(project), str(project / "train.py"))
    assert given[-len(words) :] == words


def test_a_module_and_arguments_of_another_name() -> None:
    run("launch", *MAIN, "--with", "torchrun", "--module", "my.train", "-o", "run", "--config-argument", "--ds",
        "--checkpoint-argument", "none")  # fmt: skip
    script = Path("run/rank.sh").read_text()

    assert 'python}" -u -m my.train ' in script
    assert '--ds "$folder/ds_config.json"' in script
    assert "checkpoints" not in script
    assert "The program is told of no folder for checkpoints" in Path("run/RUN.md").read_text()


def test_the_trainer_is_told_what_its_arguments_must_say() -> None:
    run(*launched("-o", "run", "--target", "hf-trainer", "--total-steps", "500"))
    script, config = Path("run/rank.sh").read_text(), json.loads(Path("run/ds_config.json").read_text())

    assert f"--per_device_train_batch_size {config['train_micro_batch_size_per_gpu']}\n" in script
    assert f"--learning_rate {config['optimizer']['params']['lr']}\n" in script
    assert "--bf16 True\n" in script
    assert "--max_steps 500\n" in script


def test_the_trainer_goes_on_from_the_newest_whole_checkpoint(project: Path) -> None:
    run(*launched("-o", "run", "--target", "hf-trainer"))
    python = project / "python"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    script, checkpoints = project / "run" / "rank.sh", project / "run" / "checkpoints"

    assert "--resume_from_checkpoint" not in read_back(script, str(python))
    for number, whole in ((9, True), (10, True), (200, False)):  # by number, not by name; the last one was cut short
        (checkpoints / f"checkpoint-{number}").mkdir(parents=True)
        (checkpoints / f"checkpoint-{number}" / "latest").write_text("")
        if whole:
            (checkpoints / f"checkpoint-{number}" / "trainer_state.json").write_text("{}")
    (checkpoints / "checkpoint-best").mkdir()

    assert read_back(script, str(python))[-2:] == ["--resume_from_checkpoint", str(checkpoints / "checkpoint-10")]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_dry_run_prints_all_and_writes_nothing(launcher: str, project: Path) -> None:
    done = run(*launched("--dry-run", launcher=launcher))

    assert (done.code, done.err) == (0, "")
    assert "==> ds_config.json <== " in done.out
    assert "==> RUN.md <== " in done.out
    assert "Nothing was written or started. The command would be: " in done.out
    assert [path.name for path in project.iterdir()] == ["train.py"]


def test_what_does_nothing_is_said() -> None:
    done = run("launch", *NODES, "--with", "slurm", "--script", "train.py", "-o", "a", "--hostfile", "train.py",
               "--port", "1234")  # fmt: skip
    assert "warning: --hostfile does nothing: slurm knows its machines" in done.err
    assert "warning: --port does nothing: a job of Slurm takes a port by its number" in done.err
    done = run(*launched("-o", "b", "--interface", "eth0", "--directive", "--x", "--image", "y"))
    assert "warning: --image does nothing: torchrun starts no containers" in done.err
    assert "warning: --interface does nothing" in done.err
    assert "warning: --directive does nothing" in done.err


def fake(project: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> Path:
    """A torchrun that notes what it is given."""
    tools = project.parent / "bin"
    tools.mkdir()
    (tools / "torchrun").write_text(f'#!/usr/bin/env bash\nprintf "%s\\n" "$@" > "{tools}/said"\nexit {code}\n')
    (tools / "torchrun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return tools / "said"


def test_it_starts_only_when_asked(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = fake(project, monkeypatch, 0)

    assert run(*launched("-o", "first")).code == 0
    assert not said.exists()
    done = run(*launched("-o", "second", "--start"))
    assert (done.code, "Starting: bash " in done.out) == (0, True)
    words = said.read_text().splitlines()
    assert words[:4] == ["--nnodes", "1", "--nproc-per-node", "8"]
    assert words[-3:-1] == ["bash", f"{project}/second/rank.sh"]


def test_a_start_that_fails_is_code_1(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(project, monkeypatch, 3)

    assert run(*launched("-o", "run", "--start")).code == 1


def test_without_a_launcher_on_path_nothing_is_written(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(project))

    assert refused(*launched("-o", "run", "--start")).startswith("error: no torchrun on PATH; --start runs it\n")
    assert not (project / "run").exists()


@pytest.mark.parametrize(("launcher", "code"), [("torchrun", 127), ("deepspeed", 127), ("accelerate", 127)])
def test_the_command_says_itself_what_is_missing(launcher: str, code: int, project: Path) -> None:
    run(*launched("-o", "run", launcher=launcher))
    bare = project / "bin"
    bare.mkdir()

    done = subprocess.run(
        ["/bin/bash", "run/run.sh"], env={"PATH": str(bare)}, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr.startswith(f"no {launcher} on PATH: pip install")) == (code, True)


def hostfile(text: str) -> str:
    Path("hosts").write_text(text)
    return "hosts"


EIGHT = "".join(f"w{place} slots=8\n" for place in range(4))


def test_several_hosts_are_written_for_deepspeed() -> None:
    folder = Path("/tmp") if " " in str(Path.cwd()) else Path.cwd()
    done = run("launch", *NODES, "--with", "deepspeed", "--script", "train.py", "--dry-run", "-o", str(folder / "r"),
               "--hostfile", hostfile(EIGHT))  # fmt: skip

    assert (done.code, done.err) == (0, "")
    assert f"==> hostfile <== the hosts and the ranks of each\n{EIGHT}" in done.out
    assert "--master_addr w0" in done.out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (EIGHT + "w0 slots=8\n", "hosts:5: host w0 stands twice"),
        (EIGHT[:-11], "3 hosts, and the job runs on 4 nodes"),
        (EIGHT.replace("w1 slots=8", "w1 slots=0"), "hosts:2: host w1 has slots=0"),
        (EIGHT.replace("w1", "fe80::1"), "hosts:2: fe80::1 is an IPv6 address"),
        (
            EIGHT.replace("w3 slots=8", "w3 slots=4"),
            "host w3 has slots=4, and the job runs on 8 GPUs of each node: world 28",
        ),
        ("", "hosts: no host stands in it"),
    ],
)
def test_a_wrong_hostfile_is_refused(text: str, words: str, project: Path) -> None:
    said = refused(
        "launch", *NODES, "--with", "torchrun", "--script", "train.py", "-o", "run", "--hostfile", hostfile(text)
    )

    assert words in said
    assert not (project / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--script", "trian.py"),
            "--script: the script trian.py is not there; every rank runs it\n  did you mean train.py?",
        ),
        (("--script", "."), "--script: the script . is a folder"),
        ((), "no program is named; every rank runs one"),
        (("--script", "train.py", "--module", "x"), "--script train.py and --module x; one program is started"),
        (("--script", "train.py", "--target", "lightening"), "--target: no target 'lightening'; "),
        (
            ("--script", "train.py", "--with", "torchrum"),
            "--with: no launcher 'torchrum'; it must be one of deepspeed, ",
        ),
        (("--script", "train.py", "--port", "70000"), "--port: port 70000 is none; it must be 1 to 65535"),
        (("--script", "train.py", "--hostfile", "none"), "none: it cannot be read (No such file or directory)"),
        (("--script", "train.py", "--dry-run", "--start"), "--start and --dry-run; one of them is meant"),
    ],
)
def test_what_cannot_be_launched_is_refused_in_words(arguments: tuple[str, ...], words: str, project: Path) -> None:
    assert words in refused("launch", *MAIN, "--with", "torchrun", "-o", "run", *arguments)
    assert not (project / "run").exists()


def test_a_folder_must_be_named() -> None:
    assert refused(*launched()).startswith("error: no folder is named; the files of a run go into one\n")


def test_nothing_is_overwritten_without_force(project: Path) -> None:
    run(*launched("-o", "run"))
    (project / "run" / "env.sh").write_text("mine\n")
    (project / "run" / "checkpoints").mkdir()

    said = refused(*launched("-o", "run", "--global-batch", "64"))

    assert "run: the folder holds RUN.md, ds_config.json, env.sh, rank.sh, ...; a run has a folder of its own" in said
    assert (project / "run" / "env.sh").read_text() == "mine\n"
    assert run(*launched("-o", "run", "--force")).code == 0
    assert (project / "run" / "env.sh").read_text() != "mine\n"
    assert (project / "run" / "checkpoints").is_dir()


def test_tensor_parallelism_over_nodes_is_refused() -> None:
    said = refused("launch", *NODES, "--with", "slurm", "--script", "train.py", "-o", "run", "--tp", "16")

    assert "node" in said


FACTORY = """\
model_name_or_path: Qwen/Qwen3-8B
finetuning_type: lora
lora_rank: 8
lora_alpha: 64
dataset: identity
template: qwen3
per_device_train_batch_size: 1
num_train_epochs: 2.0
lr_scheduler_type: cosine
bf16: true
"""
SAID = {"model_name_or_path: Qwen/Qwen3-8B", "template: qwen3", "dataset: identity", "lora_alpha: 64"}


def factory(*more: str) -> tuple[str, ...]:
    return ("launch", "--hw", "4090", "--gpus", "2", "--target", "llama-factory", "--args", "sft.yaml", *more)


@pytest.mark.parametrize(("launcher", "file"), [("torchrun", "llama_factory.yaml"), ("kubernetes", "jobset.yaml")])
def test_what_a_training_file_says_is_in_every_copy_of_its_program_s_file(launcher: str, file: str) -> None:
    Path("sft.yaml").write_text(FACTORY)
    image = ("--image", "mine") if launcher == "kubernetes" else ()

    assert run(*factory("--with", launcher, "-o", "run", *image)).code == 0

    lines = {line.partition("  #")[0].strip() for line in (Path("run") / file).read_text().splitlines()}
    assert {*SAID, "num_train_epochs: 2.0", "lr_scheduler_type: cosine"} <= lines
    assert "FILL_IN" not in (Path("run") / "llama_factory.yaml").read_text()


def test_an_option_comes_before_the_training_file_and_the_name_of_the_model() -> None:
    Path("sft.yaml").write_text(FACTORY)
    said = ("--argument", "dataset=mine", "--argument", "model_name_or_path=/data/qwen")

    assert run(*factory("--with", "torchrun", "-o", "run", "--total-steps", "100", *said)).code == 0

    text = Path("run/llama_factory.yaml").read_text()
    assert "dataset: mine\n" in text and 'model_name_or_path: "/data/qwen"\n' in text
    assert text.count("lr_scheduler_type") == 1  # the config's, whose end is said


def test_a_launch_saves_where_it_resumes_from_whatever_the_training_file_says() -> None:
    Path("sft.yaml").write_text(f"{FACTORY}output_dir: saves/mine\nlogging_steps: 1\n")

    assert run(*factory("--with", "torchrun", "-o", "run")).code == 0

    text = Path("run/llama_factory.yaml").read_text()
    assert "saves/mine" not in text and "/run/checkpoints" in text
    assert "logging_steps: 1\n" in text
