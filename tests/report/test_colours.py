"""Colours at a terminal: what gets them, and that they change nothing else."""

from __future__ import annotations

import functools
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import dsgen
from dsgen.launching import screen
from dsgen.report import colours, contests, deadlines, diff, findings, memory, plan, speedups, summary, what_ifs, why

ROOT = Path(__file__).resolve().parents[2]
ANSI = re.compile(r"\x1b\[[0-9;]*m")
JOB = {"hw": "a100-40g", "model": "7b"}
OFFLOADED = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8, "bf16": {"enabled": True},
             "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}  # fmt: skip
TIGHT = {**JOB, "zero_stage": 0, "checkpointing": "full"}


def launched() -> str:
    """The screen of a launch."""
    written = dsgen.launch(JOB, launcher="torchrun", folder="runs/a", module="my.train")
    return screen.written_text(written, "runs/a") + screen.dry_text(written, "runs/a")


@functools.cache
def rendered() -> dsgen.Config:
    """The config of the job, which several reports are about."""
    return dsgen.render(JOB)


# Name -> kind of a report, and what makes its text.
TEXTS: dict[str, tuple[str, Callable[[], str]]] = {
    "plan": ("plan", lambda: plan.text(rendered().plan, True)),
    "narrow plan": ("plan", lambda: plan.text(rendered().plan, False, 60)),
    "memory": ("memory", lambda: memory.text(dsgen.memory(JOB, every=True))),
    "does not fit": ("memory", lambda: memory.text(dsgen.memory(TIGHT), 120)),
    "summary": ("summary", lambda: summary.text(rendered(), "/tmp/[red]x[/red] :smile:.json")),
    "why": ("why", lambda: why.text(dsgen.why(JOB, "zero_optimization.stage"))),
    "diff": ("diff", lambda: diff.text(dsgen.diff(rendered(), {"train_batch_size": 8}))),
    "config": ("json", lambda: rendered().to_json()),
    "long lines": ("table", lambda: "x" * 500 + "\n" + "y " * 300 + "\n\n  end  \n"),
    "speedups": ("speedups", lambda: speedups.text(dsgen.speedups(JOB, OFFLOADED))),
    "contest": ("contest", lambda: contests.text(dsgen.compare(JOB, "zero0", "zero3", "zero1,tp=3"))),
    "what-if": ("what-if", lambda: what_ifs.text(dsgen.what_if(JOB, "seq_len", [1024, 8192, 65_536]))),
    "budget": ("budget", lambda: deadlines.text(dsgen.fewest_gpus(JOB, "30B", "30d"))),
    "launch": ("launch", lambda: launched().replace("runs/a", "runs/[red]a", 1)),
    "no line break": ("proof", lambda: "failed: 1 check does not hold"),
}


@functools.cache
def said(name: str) -> tuple[str, str]:
    """Kind and text of a report."""
    kind, text = TEXTS[name]
    return kind, text()


@pytest.mark.parametrize("name", TEXTS)
def test_colours_only_add_to_a_report(name: str) -> None:
    kind, text = said(name)

    painted = colours.painted(text, kind)

    assert painted != text
    assert ANSI.sub("", painted) == text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("plan", "\x1b[32m 1 ZeRO-2"),
        ("speedups", "\x1b[1m   what would make it faster"),
        ("speedups", "\x1b[32mfits\x1b[0m"),
        ("contest", "\x1b[31mdoes not fit\x1b[0m"),
        ("contest", "zero1,tp=3: \x1b[31mcannot run\x1b[0m:"),
        ("what-if", "\x1b[1mwhere the winner changes\x1b[0m"),
        ("budget", "\x1b[32m> "),
        ("summary", "\x1b[32mfits\x1b[0m"),
        ("does not fit", "\x1b[31mDOES NOT FIT\x1b[0m:"),
        ("does not fit", "\x1b[31mdoes not fit\x1b[0m"),
        ("why", "\x1b[1mzero_optimization.stage = 2\x1b[0m"),
        ("diff", "\x1b[32m+\x1b[0m"),
        ("config", '\x1b[1;34m"train_batch_size"\x1b[0m'),
        ("launch", "\x1b[1;36mNothing was started.\x1b[0m"),
        ("no line break", "\x1b[31mfailed\x1b[0m"),
    ],
)
def test_what_matters_has_its_colour(name: str, words: str) -> None:
    kind, text = said(name)

    assert words in colours.painted(text, kind)


def test_words_of_a_role_are_styled_as_lint_prints_them() -> None:
    assert findings.coloured("error", "error") == colours.styled("error", "error") == "\x1b[1;31merror\x1b[0m"


def at_a_terminal(folder: Path, *arguments: str, **environment: str) -> str:
    """What a command prints where stdout and stderr are a terminal of 80 columns."""
    mine, its = pty.openpty()
    own = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    env = {**own, "TERM": "xterm", "COLUMNS": "80", "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-m", "dsgen", *arguments]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=its, stderr=its, env=env, cwd=folder)
    os.close(its)
    said = b""
    while True:
        try:
            more = os.read(mine, 4096)
        except OSError:  # the terminal is closed with its last program
            break
        if not more:
            break
        said += more
    child.wait()
    os.close(mine)
    return said.decode().replace("\r\n", "\n")


def piped(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same command in a pipe."""
    env = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "dsgen", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, check=False)


OPTIONS = ("--hw", "a100-40g", "--model", "7b")
COMMANDS = {
    "plan": ("plan", *OPTIONS),
    "plan of a config": ("plan", "--config", "slow.json", *OPTIONS),
    "plan of two": ("plan", *OPTIONS, "--compare", "zero3", "zero1,tp=4"),
    "plan of lengths": ("plan", *OPTIONS, "--what-if", "seq_len=2048,4096"),
    "plan of a deadline": ("plan", *OPTIONS, "--gpus", "auto", "--tokens", "1B", "--deadline", "30d"),
    "plan as JSON": ("plan", *OPTIONS, "--format", "json"),
    "memory": ("memory", *OPTIONS, "--zero-stage", "0"),
    "memory as JSON": ("memory", *OPTIONS, "--format", "json"),
    "render": ("render", *OPTIONS),
    "why": ("why", "zero_optimization.stage", *OPTIONS),
    "why as JSON": ("why", "zero_optimization.stage", *OPTIONS, "--format", "json"),
    "diff": ("diff", "a.json", "b.json"),
    "diff as JSON": ("diff", "a.json", "b.json", "--format", "json"),
    "lint": ("lint", "a.json"),
    "lint --diff": ("lint", "--diff", "a.json"),
    "migrate": ("migrate", "--to", "0.19", "old.json"),
    "profiles list": ("profiles", "list", "network"),
    "profiles show": ("profiles", "show", "7b"),
    "rule": ("rule", "DSG102"),
    "survey": ("survey", "a.json"),
    "schema": ("schema", "scenario"),
    "a mistake": ("render", "--hw", "a100-40", "--model", "7b"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.json").write_text(json.dumps({"train_batch_size": 8, "gradient_clip": 1}))
    (tmp_path / "old.json").write_text(json.dumps({"train_batch_size": 8, "zero_optimization": {"cpu_offload": 1}}))
    (tmp_path / "slow.json").write_text(json.dumps(OFFLOADED))
    (tmp_path / "b.json").write_text(json.dumps({"train_batch_size": 16}))
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_colour_at_a_terminal_and_plain_elsewhere(
    name: str, folder: Path, run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    painted = at_a_terminal(folder, *COMMANDS[name])
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    _, out, err = run(*COMMANDS[name])

    assert "\x1b" not in out + err
    assert "\x1b[" in painted
    assert sorted(ANSI.sub("", painted).splitlines()) == sorted((out + err).splitlines())


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_may_refuse_colours(environment: dict[str, str], folder: Path) -> None:
    said = at_a_terminal(folder, *COMMANDS["render"], **environment)

    assert "train_batch_size" in said
    assert "\x1b" not in said


def test_a_file_gets_no_colours_from_the_terminal_beside_it(folder: Path) -> None:
    assert "wrote out.txt" in at_a_terminal(folder, "lint", "a.json", "-o", "out.txt")

    assert (folder / "out.txt").read_text() == piped(folder, "lint", "a.json").stdout


@pytest.mark.parametrize("name", ["plan", "memory", "render", "why", "diff", "a mistake"])
def test_a_pipe_is_plain_and_does_not_load_rich(name: str, folder: Path) -> None:
    program = (
        "import sys\nfrom dsgen.cli import main\n"
        f"try: main({list(COMMANDS[name])!r})\nfinally: print('rich' in sys.modules, file=sys.stderr)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=folder, env=env, check=False
    )

    assert done.stderr.splitlines()[-1] == "False"
    assert "\x1b" not in done.stdout + done.stderr
