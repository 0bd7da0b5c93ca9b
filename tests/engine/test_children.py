"""Forks and fresh processes of the engine's servers: how they end, how long they are waited for, who outlives them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# A program of its own: a fork of the tests' process would have their threads' locks and files.
PREAMBLE = """
import json, os, signal, sys, time
from pathlib import Path
from dsgen.engine.children import end, fork, spawn, wait

folder = Path(sys.argv[1])
log = folder / "child.log"

def yes():
    return True

def soon(children, seconds=30.0, grace=0.0, alive=yes):
    return wait(children, time.monotonic() + seconds, grace, alive)

def tell(**answers):
    print(json.dumps(answers))
"""


def answers(folder: Path, program: str) -> dict[str, Any]:
    """What a program with `PREAMBLE` tells."""
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + program, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize(("work", "code"), [("True", 0), ("False", 1), ("1 / 0", 1)])
def test_a_fork_ends_with_its_works_verdict(tmp_path: Path, work: str, code: int) -> None:
    """An error too ends the fork there: it never returns into the parent's code."""
    told = answers(tmp_path, f"child = fork(lambda: {work}, log)\ntell(in_time=soon([child]), code=child.exit_code)")

    assert told == {"in_time": True, "code": code}


def test_a_fork_has_its_own_group_output_and_an_empty_input(tmp_path: Path) -> None:
    told = answers(
        tmp_path,
        """
def work():
    print("said", flush=True)
    os.system("echo said by C")
    (folder / "facts.json").write_text(json.dumps([os.getpgid(0) == os.getpid(), sys.stdin.read()]))
    return True

child = fork(work, log)
soon([child])
tell(facts=json.loads((folder / "facts.json").read_text()), log=log.read_text())
""",
    )

    assert told == {"facts": [True, ""], "log": "said\nsaid by C\n"}


def test_a_fresh_process_ends_with_its_exit_code(tmp_path: Path) -> None:
    told = answers(
        tmp_path,
        """
child = spawn([sys.executable, "-c", "import os, sys; print(os.getsid(0) == os.getpid()); sys.exit(3)"], log)
soon([child])
tell(code=child.exit_code, log=log.read_text())
""",
    )

    assert told == {"code": 3, "log": "True\n"}


def test_a_child_that_does_not_end_when_told_is_killed(tmp_path: Path) -> None:
    """One heeds SIGTERM, one does not, one has ended before; the codes are in their order."""
    told = answers(
        tmp_path,
        """
def deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (folder / "deaf").touch()
    time.sleep(600)

children = [fork(lambda: time.sleep(600), log), fork(deaf, log), fork(yes, log)]
soon(children[2:])
while not (folder / "deaf").exists():
    time.sleep(0.01)
tell(codes=end(children), again=end(children))
""",
    )

    assert told["codes"] == told["again"] == [-15, -9, 0]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells who is of a session")
def test_what_left_the_group_is_ended_with_the_session(tmp_path: Path) -> None:
    """A compiler that ninja starts has a group of its own; it must not write on into a folder that is gone."""
    told = answers(
        tmp_path,
        """
compiler = "import os, time; os.setpgid(0, 0); open('pid.new', 'w').write(str(os.getpid())); "
compiler += "os.rename('pid.new', 'pid'); time.sleep(600)"
os.chdir(folder)
program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {compiler!r}])"
child = spawn([sys.executable, "-c", program], log)
while not Path("pid").exists():
    time.sleep(0.01)
pid = int(Path("pid").read_text())
end([child])
deadline = time.monotonic() + 10
alive = True
while alive and time.monotonic() < deadline:
    try:
        alive = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        alive = False
tell(alive=alive)
""",
    )

    assert told == {"alive": False}


def test_a_process_that_ends_while_it_is_looked_at_is_nobodys_fault(tmp_path: Path) -> None:
    """Linux answers ESRCH for a file of a process that has just been reaped: of any, not only of ours."""
    told = answers(
        tmp_path,
        """
look = os.stat

def reaped(path, *arguments, **words):
    if str(path).endswith("/stat"):
        raise ProcessLookupError(3, "No such process", str(path))
    return look(path, *arguments, **words)

os.stat = reaped
tell(codes=end([fork(lambda: time.sleep(60) or True, log)]))
""",
    )

    assert told == {"codes": [-15]}


def test_waiting_ends_at_the_deadline(tmp_path: Path) -> None:
    told = answers(
        tmp_path,
        """
child = fork(lambda: time.sleep(600), log)
tell(in_time=soon([child], seconds=0.2), code=child.exit_code, ended=end([child]))
""",
    )

    assert told == {"in_time": False, "code": None, "ended": [-15]}


def test_the_others_have_a_grace_once_one_has_failed(tmp_path: Path) -> None:
    """That is no timeout: the deadline is far, and the one that failed is the reason."""
    told = answers(
        tmp_path,
        """
children = [fork(lambda: time.sleep(600), log), fork(lambda: False, log)]
began = time.monotonic()
in_time = soon(children, seconds=300, grace=0.2)
tell(in_time=in_time, waited=time.monotonic() - began, codes=end(children))
""",
    )

    assert (told["in_time"], told["codes"]) == (True, [-15, 1])
    assert 0.2 <= told["waited"] < 60


def test_nobody_left_to_tell_ends_the_waiting(tmp_path: Path) -> None:
    told = answers(
        tmp_path,
        """
child = fork(lambda: time.sleep(600), log)
try:
    soon([child], alive=lambda: False)
except SystemExit as ended:
    tell(ended=ended.code, codes=end([child]))
""",
    )

    assert told == {"ended": 1, "codes": [-15]}
