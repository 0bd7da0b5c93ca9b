"""Bad input through the real command line: one clear message, exit code 2, nothing on stdout, nothing written."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import MAIN, refused, run

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def target(tmp_path: Path) -> Iterator[str]:
    """A file for -o that must not come into being, in a folder where nothing may."""
    folder = tmp_path / "out"
    folder.mkdir()
    yield str(folder / "ds_config.json")
    assert list(folder.iterdir()) == []


# arguments behind `render`, and the whole message
MESSAGES = [
    (
        ["--hw", "a100-40", "--model", "7b"],
        "error: no hardware profile named 'a100-40'\n"
        "  did you mean a100-40g or a100-40g-pcie or a800-40g?  (dsgen profiles list hardware)\n",
    ),
    (
        ["--hw", "a100-40g", "--model", "lama-2-7b"],
        "error: no model profile named 'lama-2-7b'\n"
        "  did you mean llama-2-7b or llama-2-70b or llama-3-70b?  (dsgen profiles list model)\n",
    ),
    (
        ["--hw", "a100-40g"],
        "error: no model is named; a plan needs hardware and a model\n"
        "  Name it with --model; dsgen profiles list model shows the built-in ones.\n",
    ),
    (
        [],
        "error: no hardware is named; a plan needs hardware and a model\n"
        "  Name it with --hw; dsgen profiles list hardware shows the built-in ones.\n",
    ),
    ([*MAIN, "--gpus", "1.9"], "error: --gpus: cluster.gpus is 1.9; it must be a whole number of at least 1\n"),
    ([*MAIN, "--gpus", "-1"], "error: --gpus: cluster.gpus is -1; it must be a whole number of at least 1\n"),
    ([*MAIN, "--gpus", "0"], "error: --gpus: cluster.gpus is 0; it must be a whole number of at least 1\n"),
    (
        [*MAIN, "--gpus", "1e3"],
        "error: --gpus: cluster.gpus is 1000.0; it must be a whole number of at least 1\n  Write 1000.\n",
    ),
    ([*MAIN, "--gpus", "eight"], "error: --gpus: cluster.gpus is eight; it must be a whole number of at least 1\n"),
    ([*MAIN, "--gpus", ""], 'error: --gpus: cluster.gpus is ""; it must be a whole number of at least 1\n'),
    ([*MAIN, "--gpus", "nan"], 'error: --gpus: cluster.gpus is "nan"; it must be a whole number of at least 1\n'),
    ([*MAIN, "--gpus", "inf"], 'error: --gpus: cluster.gpus is "inf"; it must be a whole number of at least 1\n'),
    (
        [*MAIN, "--gpus", "\u0663"],
        'error: --gpus: cluster.gpus is "\\u0663"; it must be a whole number of at least 1\n',
    ),
    ([*MAIN, "--gpus", "9" * 30], f"error: --gpus: cluster.gpus is {'9' * 30}; it must be at most 1,000,000,000\n"),
    ([*MAIN, "--nodes", "0"], "error: --nodes: cluster.nodes is 0; it must be a whole number of at least 1\n"),
    ([*MAIN, "--zero-stage", "4"], "error: --zero-stage: training.zero_stage is 4; it must be 0, 1, 2 or 3\n"),
    (
        [*MAIN, "--precision", "bf17"],
        "error: --precision: training.precision is bf17; "
        "it must be one of auto, bf16, fp16, fp32; did you mean bf16?\n",
    ),
    (
        [*MAIN, "--gpus", "7", "--nodes", "2"],
        "error: --gpus: 7 GPUs do not share evenly among 2 nodes; gpus must be a multiple of nodes, such as 8\n",
    ),
    (
        [*MAIN, "--gpus", "16", "--nodes", "1"],
        "error: --gpus: 16 GPUs in a node; a node of it has 8\n  Use --nodes 2, or set hardware.gpus_per_node.\n",
    ),
    (
        [*MAIN, "--network", "ib-hdr-200g"],
        "error: network ib-hdr-200g is named for one node; a network joins nodes\n"
        "  Drop it, or say how many nodes there are: --nodes 2.\n",
    ),
    (
        [*MAIN, "--deepspeed", "0.99"],
        "error: DeepSpeed 0.99 is not known; the known releases are 0.14 (up to 0.14.5), 0.15 (up to 0.15.4), "
        "0.16 (up to 0.16.9), 0.17 (up to 0.17.6), 0.18 (up to 0.18.9), 0.19 (up to 0.19.8)\n",
    ),
    (
        [*MAIN, "--zero-stage", "1", "--set", "zero_optimization.stage=2"],
        "error: training.zero_stage = 1 (--zero-stage) and deepspeed.zero_optimization.stage = 2 (--set) "
        "exclude each other; "
        "one stage must win\n  Drop one of the two.\n",
    ),
    (
        [*MAIN, "--seq-len", "1", "--set", "training.seq_len=2"],
        "error: training.seq_len = 1 (--seq-len) and 2 (--set); it can have one value\n  Drop one of the two.\n",
    ),
    (
        [*MAIN, "--set", "zero_optimization.stage=1", "--set", "deepspeed.zero_optimization.stage=2"],
        "error: deepspeed.zero_optimization.stage = 1 (--set) and 2 (--set) have the same rank (user); "
        "one value must win\n"
        "  Drop one of the two; the command line and Python may say a thing once.\n",
    ),
    (
        [*MAIN, "--set", "hardware.gpu_memory=40GX"],
        "error: --set: hardware.gpu_memory is 40GX; 'GX' is not one of its units (B, kB, MB, GB, TB, PB, "
        "KiB, MiB, GiB, TiB); "
        "write 40 GiB\n",
    ),
    ([*MAIN, "--set", "foo"], "error: --set: foo; it must be path=value, such as training.seq_len=8192\n"),
    (
        [*MAIN, "--set", "training.precision=a\x1b[2Jb"],
        'error: --set: training.precision is "a\\u001b[2Jb"; it must be one of auto, bf16, fp16, fp32\n',
    ),
    (
        [*MAIN, "-f", "no\x1b[2J.yaml"],
        "error: no\\x1b[2J.yaml: no such file\n  Check the path; `dsgen profiles list` shows the built-in names.\n",
    ),
    ([*MAIN, "-f", ""], "error: -f names no file; it must name a YAML file\n"),
    (
        [*MAIN, "--hw", "/dev/zero"],
        "error: /dev/zero: it is not a regular file\n"
        "  Check the path; `dsgen profiles list` shows the built-in names.\n",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), MESSAGES)
def test_the_whole_message(arguments: list[str], message: str, target: str) -> None:
    assert refused("render", *arguments, "-o", target) == message


@pytest.mark.parametrize("command", ["render", "plan", "why zero_optimization.stage", "prove"])
def test_every_command_refuses_alike(command: str) -> None:
    assert refused(*command.split(), *MAIN, "--gpus", "1.9") == MESSAGES[4][1]


@pytest.mark.parametrize(
    ("arguments", "both"),
    [
        (["--zero-stage", "1", "--offload", "all"], ["training.zero_stage = 1", "training.offload = all"]),
        (["--zero-stage", "2", "--offload", "nvme"], ["training.zero_stage = 2", "training.offload = nvme"]),
        (
            ["--set", "fp16.enabled=true", "--precision", "bf16"],
            ["deepspeed.fp16.enabled = true", "training.precision = bf16"],
        ),
        (["--gpus", "6", "--tp", "4"], ["training.tp = 4", "6 GPUs"]),
        (["--global-batch", "100", "--micro-batch", "3", "--tp", "1"], ["training.micro_batch = 3", "100"]),
        (["--gpus", "7", "--global-batch", "10"], ["10", "7 GPUs"]),
    ],
)
def test_pins_that_cannot_be_met_name_what_excludes_what(arguments: list[str], both: list[str], target: str) -> None:
    message = refused("render", *MAIN, *arguments, "-o", target)

    assert [part for part in both if part not in message] == []


WAY = re.compile(r"fits with .*?(--(?:set|seq-len|gpus|nodes|training)[ =].+?)(?: \(\d+ nodes\)|\)?)$", re.MULTILINE)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--hw", "t4-16g", "--gpus", "1", "--model", "70b", "--seq-len", "2048"],  # a T4 computes all scores
        ["--hw", "a10-24g", "--gpus", "1", "--model", "13b", "--offload", "none"],
        ["--hw", "a100-40g", "--gpus", "1", "--model", "7b", "--seq-len", "131072"],
    ],
)
def test_a_model_that_fits_nowhere_gets_a_change_that_works(arguments: list[str], target: str) -> None:
    message = refused("render", *arguments, "-o", target)

    assert "fits nowhere" in message
    ways = WAY.findall(message)
    assert ways, message
    for way in ways:
        words = shlex.split(way)
        kept = [*arguments]
        if words[0] in kept:
            at = kept.index(words[0])
            del kept[at : at + 2]
        assert run("render", *kept, *words).code == 0, f"{way}: {message}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rendr"], "error: no command 'rendr'\n  did you mean render?\n  dsgen --help\n"),
        (
            ["profiles", "show", "a100-40"],
            "error: no profile named 'a100-40'\n  did you mean a100-40g or a100-40g-pcie or a800-40g?  "
            "(dsgen profiles list)\n",
        ),
        (
            ["profiles", "new", "hardware", "x", "--extends", "a100-40"],
            "error: no hardware profile named 'a100-40'\n"
            "  did you mean a100-40g or a100-40g-pcie or a800-40g?  (dsgen profiles list hardware)\n",
        ),
        (
            ["diff", "no-a.json", "no-b.json"],
            "error: no-a.json: there is no such file\n",
        ),
        (
            ["prove", "no.json"],
            "error: no.json: there is no such file\n",
        ),
    ],
)
def test_the_other_commands_refuse_as_clearly(arguments: list[str], message: str) -> None:
    assert refused(*arguments) == message


def test_a_wrong_choice_names_the_command_whose_help_helps() -> None:
    message = refused("profiles", "list", "hardwear")

    assert message.endswith("\n  dsgen profiles list --help\n")


@pytest.mark.parametrize("arguments", [[], ["profiles"]])
def test_no_command_shows_the_help_and_calls_nothing_an_error(arguments: list[str]) -> None:
    done = run(*arguments)

    shown = done.out + done.err
    assert shown.startswith("Usage: dsgen")
    assert "error" not in shown


PROGRAM = [sys.executable, "-c", "from dsgen.cli import main; main()", "render", *MAIN, "-q"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY)}


def shell(ending: str) -> subprocess.CompletedProcess[str]:
    """The command in a shell, with an ending that takes stdout away."""
    return subprocess.run(
        ["bash", "-c", f"{shlex.join(PROGRAM)} {ending}"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=60,
        check=False,
    )


UNWRITTEN = "error: the output could not be written ({why}); -o FILE writes it to a file\n"


def test_a_stdout_that_is_full() -> None:
    done = shell("> /dev/full")

    assert (done.returncode, done.stderr) == (2, UNWRITTEN.format(why="No space left on device"))


@pytest.mark.parametrize("command", [["render", *MAIN, "-q"], ["plan", *MAIN], ["profiles", "list"]])
def test_a_stdout_that_nobody_reads(command: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)  # gone before the first byte: the pipe's buffer would take a whole config
    try:
        done = subprocess.run(
            [*PROGRAM[:3], *command],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write)

    assert (done.returncode, done.stderr) == (2, UNWRITTEN.format(why="Broken pipe"))


def test_a_stdout_that_the_shell_has_closed() -> None:
    done = shell(">&-")

    assert (done.returncode, done.stderr) == (2, UNWRITTEN.format(why="Bad file descriptor"))


def test_a_closed_stdout_that_nothing_is_printed_on(tmp_path: Path) -> None:
    done = shell(f"-o {shlex.quote(str(tmp_path / 'ds.json'))} >&-")

    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "ds.json").is_file()


def test_a_pipe_that_nobody_reads(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    done = shell(f"-o {shlex.quote(str(tmp_path / 'pipe'))}")

    assert done.returncode == 2
    assert "it cannot be written (it is a pipe that nobody reads)" in done.stderr


@pytest.mark.parametrize("ending", ["-o {pipe} & cat {pipe}; wait $!", "-o >(cat)", "-o /dev/stdout | cat"])
def test_a_pipe_that_somebody_reads(ending: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    done = shell(ending.format(pipe=shlex.quote(str(tmp_path / "pipe"))))

    assert done.stderr == ""
    assert json.loads(done.stdout)["train_batch_size"]


@pytest.mark.parametrize(("option", "count"), [("--gpus", 1_000_000_000), ("--nodes", 125_001)])
def test_more_gpus_than_there_are(option: str, count: int) -> None:
    done = run("render", *MAIN, option, str(count))

    assert done.code == 2
    assert f"error: {option}: {count * (8 if option == '--nodes' else 1):,} GPUs; at most 1,000,000" in done.err


def test_as_many_gpus_as_there_may_be() -> None:
    assert run("plan", *MAIN, "--gpus", "1000000").code == 0
