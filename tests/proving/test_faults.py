"""What goes wrong around a proof: killed ranks and parents, full disks, no compiler; each ends clearly, and cleanly."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(sys.platform != "linux", reason="the faults are Linux's: signals, mounts, /proc"),
]

MOST_SECONDS = 60.0  # from the fault to the answer; of proofs that nobody kills from their start on
SHARED_MEMORY = Path("/dev/shm")
OF_A_JOB = re.compile(r"deepspeed_.+_(\d+)\d{4}_\d+")  # files of its collectives: their server, then the job
CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},  # no operator to build
    "zero_optimization": {"stage": 2},
}
BUILT = {**CONFIG, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}  # FusedAdam is compiled
PARTED = {**CONFIG, "tensor_parallel": {"autotp_size": 2}}  # its parts are summed in shared memory
PROVE = """
import json, sys
from dsgen.asking import proofs
from dsgen.proving import prover
configs = [json.loads(sys.argv[1])] * int(sys.argv[3])
if sys.argv[2]:
    proved = prover.prove_many(configs, device="cpu", timeout_seconds=300, trained=proofs.trained(sys.argv[2]))
else:
    proved = proofs.proven([proofs.asked(config) for config in configs], device="cpu", timeout_seconds=300)
print(json.dumps([proof.to_dict() for proof in proved]))
"""
# Starts in a world of twins, one after the other, of which the first is said to have begun.
START = """
import json, os, sys
from pathlib import Path
from dsgen.proving.worlds import WorldStart, open_world
model = {"model_type": "llama", "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 4}
one = WorldStart(config=json.loads(sys.argv[1]), model=model, world=16, local_ranks=8, rank=0)
with open_world() as world:
    assert world.start(one).error is None
    Path(os.environ["FAULT_MARK"]).write_text("started")
    while True:
        world.start(one)
"""
# Read by every Python that starts beside it.
JUMPS = """
import os, time
from pathlib import Path
clock = time.time
time.time = lambda: clock() + (172800 if int(2 * time.monotonic()) % 2 else -172800)
Path(__file__).with_name(f"{os.getpid()}.jumped").touch()
"""
# A person's own model whose rank 1 stands still, or stumbles, where a test wants it to.
MODEL = """
import io, os, time
from pathlib import Path

import torch

WHERE, MARK = Path(os.environ["FAULT_WHERE"]), Path(os.environ["FAULT_MARK"])


def here(phase):
    if WHERE.read_text() == phase and os.environ["RANK"] == "1":
        MARK.write_text(str(os.getpid()))
        time.sleep(600)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

    def forward(self, x):
        here("step")
        if WHERE.read_text() == "clock":
            clock = time.time
            time.time = lambda: clock() + (86400 if os.environ["RANK"] == "1" else -86400)
            if os.environ["RANK"] == "1":
                raise ValueError("rank 1 stumbled first")
        return self.second(torch.relu(self.first(x))).square().mean()

    def state_dict(self, *given, **named):
        here("checkpoint")
        return super().state_dict(*given, **named)


def save(value, path, *given, **named):
    # It stands still with half of the bytes on the disk.
    whole = io.BytesIO()
    kept(value, whole, *given, **named)
    half = len(whole.getvalue()) // 2
    with open(path, "wb") as file:
        file.write(whole.getvalue()[:half])
        file.flush()
        here("write")
        file.write(whole.getvalue()[half:])


kept, torch.save = torch.save, save


def make():
    here("initialize")
    return Model(), lambda samples: {"x": torch.randn(samples, 64, dtype=torch.bfloat16)}
"""


class Place:
    """A folder of its own for everything that proofs leave, and how they are started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.mark, self.where = folder / "mark", folder / "where"
        self.servers: set[str] = set()  # process ids of all that were ours, each of which may have been a server
        self.where.write_text("", encoding="utf-8")
        (folder / "faulty.py").write_text(MODEL, encoding="utf-8")

    def start(
        self,
        *before: str,
        config: dict[str, Any] = CONFIG,
        model: str = "",
        count: int = 1,
        script: str = PROVE,
        **variables: str,
    ) -> subprocess.Popen[str]:
        """Proofs in a process of their own; `before` is what stands before its command."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")]))),
            "TMPDIR": str(self.temporary),
            "FAULT_MARK": str(self.mark),
            "FAULT_WHERE": str(self.where),
            **variables,
        }
        return subprocess.Popen(
            [*before, sys.executable, "-c", script, json.dumps(config), model, str(count)],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def prove(self, *before: str, config: dict[str, Any] = CONFIG, **variables: str) -> dict[str, Any]:
        """The proof of a process that is waited for."""
        return self.ended(self.start(*before, config=config, **variables))[0]

    def ended(self, process: subprocess.Popen[str]) -> list[dict[str, Any]]:
        """What proofs say when their process ends, which is soon."""
        try:
            shown, words = process.communicate(timeout=MOST_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
        assert process.returncode == 0, words
        records: list[dict[str, Any]] = json.loads(shown)
        return records

    def written(self) -> list[Path]:
        """The files of a checkpoint that lie in the proofs' folders."""
        return [path for path in self.temporary.glob("dsgen-*/**/*.pt") if path.is_file()]

    def marked(self) -> int:
        """The process id of the rank that stands still, once it does."""
        wait_until(lambda: self.mark.is_file() and self.mark.read_text() != "", 120)
        return int(self.mark.read_text())

    def left_over(self) -> list[str]:
        """Processes whose environment is ours, folders of proofs, and shared memory of the collectives of either."""
        mine = f"FAULT_MARK={self.mark}".encode()
        processes = []
        for file in Path("/proc").glob("[0-9]*/environ"):
            try:
                ours = mine in file.read_bytes().split(b"\0")
                living = ours and "Z" not in (file.parent / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if living:
                processes.append(f"process {file.parent.name}")
                self.servers.add(file.parent.name)
        folders = [str(path) for path in self.temporary.glob("dsgen-*")]
        return [*processes, *folders, *(str(path) for path in self.shared_memory())]

    def shared_memory(self) -> list[Path]:
        """What the collectives of our servers keep in memory; a server is known once `left_over` has seen it."""
        files = [(OF_A_JOB.match(path.name), path) for path in SHARED_MEMORY.glob("deepspeed_*")]
        return [path for said, path in files if said is not None and said[1] in self.servers]


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Poll until it holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place in which nothing is left when the test ends."""
    place = Place(tmp_path)
    yield place
    try:
        wait_until(lambda: not place.left_over(), MOST_SECONDS)
    except AssertionError:
        pytest.fail(f"left over: {place.left_over()}")


# Where a rank stands still -> the phase that a proof says; "write" is in the middle of a file of the checkpoint.
PHASES = {"initialize": "initialize", "step": "step", "checkpoint": "checkpoint", "write": "checkpoint"}


def test_a_rank_that_is_killed_is_named(place: Place) -> None:
    """As the kernel does when memory runs out: which rank, in which phase, by which signal.

    That is no verdict about the config, and no hole of lint. And one that stumbles first is the cause, though its clock
    is two days before the others': no time of day counts.
    """
    faults = [*((phase, signal.SIGKILL) for phase in PHASES), ("step", signal.SIGSEGV), ("step", signal.SIGTERM)]
    place.where.write_text(faults[0][0], encoding="utf-8")
    process = place.start(model="faulty:make", count=len(faults) + 1)
    half_written: list[int] = []
    for (_, number), following in zip(faults, (*(phase for phase, _ in faults[1:]), "clock"), strict=True):
        rank = place.marked()
        place.left_over()  # it learns which processes are ours
        half_written.append(len(place.written()))
        place.mark.unlink()
        place.where.write_text(following, encoding="utf-8")
        os.kill(rank, number)

    *killed, stumbled = place.ended(process)

    assert half_written[3] > 0  # of "write", the fourth

    for (phase, number), proof in zip(faults, killed, strict=True):
        assert (proof["outcome"], proof["phase"]) == ("failed", PHASES[phase])
        assert proof["error"].startswith(f"rank 1 was ended by {number.name}")
        assert ("memory" in proof["todo"]) is (number is signal.SIGKILL)
        assert (proof["is_verdict"], proof["foreseen"]) == (False, None)
        assert proof["seconds"] < MOST_SECONDS
    assert (stumbled["outcome"], stumbled["phase"]) == ("failed", "step")
    assert stumbled["error"] == "ValueError: rank 1 stumbled first"


def test_a_parent_that_is_killed_leaves_nothing(place: Place) -> None:
    """Its ranks, its server and its folder go, in the middle of a save too."""
    place.where.write_text("checkpoint", encoding="utf-8")
    process = place.start(model="faulty:make")
    place.marked()
    assert len(list(place.temporary.glob("dsgen-prove-*"))) == 1
    assert len(place.left_over()) > 3  # there is something to leave

    process.kill()
    process.communicate()

    wait_until(lambda: not place.left_over(), MOST_SECONDS)


@pytest.mark.parametrize("twins", [False, True])
def test_a_parent_that_is_killed_early_leaves_nothing(place: Place, twins: bool) -> None:
    """While its server imports torch, and while a world of twins starts."""
    early = place.start(script=START if twins else PROVE)
    wait_until(lambda: place.mark.is_file() if twins else len(place.left_over()) > 1, MOST_SECONDS)

    early.kill()
    early.communicate()

    wait_until(lambda: not place.left_over(), MOST_SECONDS)


def test_a_parent_that_is_killed_leaves_no_shared_memory(place: Place) -> None:
    """Nor do the collectives with which ranks of AutoTP sum their parts."""
    process = place.start(config=PARTED, count=20)  # it is killed while one of them is under way
    wait_until(lambda: bool(place.left_over()) and bool(place.shared_memory()), 120)

    process.kill()
    process.communicate()

    wait_until(lambda: not place.left_over(), MOST_SECONDS)


def apart() -> tuple[str, ...]:
    """What a command runs under in a mount namespace of its own: as root, or as a user who is root in there."""
    for way in (("unshare", "-m"), ("unshare", "-r", "-m")):
        if shutil.which("unshare") and not subprocess.run([*way, "true"], check=False, capture_output=True).returncode:
            return way
    lacking = "this machine lets nobody make a mount namespace"
    if os.environ.get("CI"):  # whose workflow allows it
        pytest.fail(lacking)
    pytest.skip(lacking)


def test_a_full_disk_while_saving_is_said(place: Place) -> None:
    """The half-written checkpoint is none: the proof fails in that phase, with the system's words.

    The small disk is a tmpfs in a mount namespace, so that it is gone with the proof, whatever becomes of this test.
    """
    small = 'mount -t tmpfs -o size=800k none "$TMPDIR" && "$@"; code=$?; ls -A "$TMPDIR" > left; exit $code'

    proof = place.prove(*apart(), "sh", "-c", small, "sh")

    assert (proof["outcome"], proof["phase"]) == ("failed", "checkpoint")
    assert "TMPDIR" in proof["todo"]
    assert (proof["is_verdict"], proof["foreseen"]) == (False, None)
    assert (place.folder / "left").read_text("utf-8") == ""
    assert str(place.temporary) not in Path("/proc/mounts").read_text("utf-8")


def test_without_shared_memory(place: Place) -> None:
    """A container without /dev/shm: the sums of AutoTP on a CPU have no place; it is said, and nothing hangs."""
    hide = 'mount -t tmpfs -o ro none /dev/shm && exec "$@"'
    began = time.monotonic()

    proof = place.prove(*apart(), "sh", "-c", hide, "sh", config=PARTED)

    assert time.monotonic() - began < MOST_SECONDS
    assert proof["outcome"] == "not run"
    assert "/dev/shm, which cannot be written" in proof["error"]
    assert "mount a tmpfs there" in proof["todo"]


def test_without_autotp_no_shared_memory_is_needed(place: Place) -> None:
    """Nor its operator: a proof of ranks with whole models starts in such a container, and builds nothing."""
    hide = 'mount -t tmpfs -o ro none /dev/shm && exec "$@"'

    proof = place.prove(*apart(), "sh", "-c", hide, "sh", TORCH_EXTENSIONS_DIR=str(place.folder / "extensions"))

    assert proof["outcome"] == "proved", proof["error"]
    assert not list(place.folder.glob("extensions/*"))


def test_no_compiler_is_said(place: Place) -> None:
    """Where nothing is built yet."""
    tools = place.folder / "tools"
    tools.mkdir()
    ninja = shutil.which("ninja", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    assert ninja is not None
    (tools / "ninja").symlink_to(ninja)

    nothing = {"PATH": str(tools), "TORCH_EXTENSIONS_DIR": str(place.folder / "extensions"), "CXX": "no-such-compiler"}
    proof = place.prove(config=BUILT, **nothing)

    assert proof["outcome"] == "not run"
    assert "could not be built" in proof["error"]
    assert "install a C++ compiler" in proof["todo"]
    assert not list(place.folder.glob("extensions/*/lock"))


def test_a_home_that_cannot_be_written(place: Place) -> None:
    """What is to be built there says what to name instead."""
    home = place.folder / "home"
    home.mkdir()
    readonly = 'mount -t tmpfs -o ro none "$HOME" && exec "$@"'
    command = ("env", "-u", "TORCH_EXTENSIONS_DIR", "-u", "XDG_CACHE_HOME", f"HOME={home}")

    proof = place.prove(*command, *apart(), "sh", "-c", readonly, "sh", config=BUILT)

    assert proof["outcome"] == "not run"
    assert "TORCH_EXTENSIONS_DIR" in proof["todo"]


def test_a_clock_that_jumps_by_days_is_no_fault(place: Place) -> None:
    """Back and forth every half second, in all processes: whatever waits does so by a clock that cannot jump."""
    clocks = place.folder / "clocks"
    clocks.mkdir()
    (clocks / "sitecustomize.py").write_text(JUMPS, encoding="utf-8")

    proof = place.prove(PYTHONPATH=os.pathsep.join((str(clocks), str(ROOT))))

    assert proof["outcome"] == "proved", proof["error"]
    assert len(list(clocks.glob("*.jumped"))) > 1  # the caller's, and the server's, whose forks have it too


def test_two_proofs_at_once_with_a_port_taken_and_no_home(place: Place) -> None:
    """No port is bound, so torch's own may be taken; nobody is in another's way; what is built needs no home."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # somebody has it already, which is as good
            taken.bind(("127.0.0.1", 29500))
            taken.listen()
        both = [place.start(), place.start(HOME="/proc", XDG_CACHE_HOME="/proc/cache")]
        (first,), (second,) = (place.ended(process) for process in both)

    assert (first["outcome"], second["outcome"]) == ("proved", "proved"), (first["error"], second["error"])
    assert first["losses"] == second["losses"]
