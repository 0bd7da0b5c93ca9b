"""A Slurm of one's own on this machine: Debian's munged, slurmctld and several slurmd, in a folder, all ended after."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue")
_SBIN = "/usr/sbin:/sbin"
# A job that is queued again waits as long as its credential is valid; 120 s by default, too long for a test.
_CREDENTIAL_SECONDS = 20
_TIMEOUT_SECONDS = 10  # after which a node that does not answer is down


@attrs.define
class SlurmCluster:
    """A running cluster.

    Attributes:
        folder: Where all of it lies.
        environment: What its commands need.
        daemons: Name -> process: munged, slurmctld, and each node's slurmd.
    """

    folder: Path
    environment: dict[str, str]
    daemons: dict[str, subprocess.Popen[bytes]] = attrs.field(factory=dict)

    def command(self, *words: str) -> str:
        """Run one of Slurm's commands; its output."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, script: Path, environment: dict[str, str] | None = None) -> str:
        """The number of a job that is queued now."""
        told = {**self.environment, **(environment or {})}
        done = subprocess.run(
            ["sbatch", "--parsable", str(script)], env=told, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().partition(";")[0]

    def job(self, number: str) -> dict[str, str]:
        """What Slurm knows of a job: JobState, Restarts, NodeList ..."""
        text = self.command("scontrol", "--oneliner", "show", "job", number)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def wait(self, number: str, state: Callable[[dict[str, str]], bool], seconds: float) -> dict[str, str]:
        """Wait until a job is as wanted; what it is then."""
        over = time.monotonic() + seconds
        while True:
            told = self.job(number)
            if state(told) or time.monotonic() > over:
                return told
            time.sleep(0.5)

    def kill_node(self, name: str) -> None:
        """End a node as a power cut does: its slurmd and all that it started."""
        daemon = self.daemons.pop(name)
        for process in _tree(daemon.pid, name, self.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        daemon.wait(10)


def _tree(root: int, node: str, folder: Path) -> list[int]:
    """A daemon with all processes below it; a slurmstepd leaves its parent, and is known by its environment."""
    parents: dict[int, int] = {}
    marked = {root}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
            told = (entry / "environ").read_bytes()
            if f"SLURMD_NODENAME={node}\0".encode() in told and f"SLURM_CONF={folder}".encode() in told:
                marked.add(int(entry.name))
    while True:
        more = {child for child, parent in parents.items() if parent in marked} - marked
        if not more:
            return sorted(marked - {os.getpid(), 1})
        marked |= more


@contextlib.contextmanager
def slurm_cluster(folder: Path, nodes: int) -> Iterator[SlurmCluster]:
    """A cluster of so many nodes, n1 and so on, of two processors each; everything of it ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    path = f"{os.environ['PATH']}:{_SBIN}"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    assert not missing, f"apt-get install slurm-wlm munge: {', '.join(missing)} missing"
    environment = {**os.environ, "PATH": path, "SLURM_CONF": str(folder / "slurm.conf")}
    (folder / "slurm.conf").write_text(_configuration(folder, nodes))
    (folder / "cgroup.conf").write_text("")
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    cluster = SlurmCluster(folder, environment)
    try:
        munged = [f"--key-file={key}", f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid",
                  f"--seed-file={folder}/munge.seed", f"--log-file={folder}/munged.log"]  # fmt: skip
        _start(cluster, "munged", ["munged", "--foreground", "--force", *munged])
        _until((folder / "munge.socket").exists, 20, "munged", folder)
        _start(cluster, "slurmctld", ["slurmctld", "-D", "-f", str(folder / "slurm.conf")])
        for number in range(1, nodes + 1):
            _start(cluster, f"n{number}", ["slurmd", "-D", "-N", f"n{number}", "-f", str(folder / "slurm.conf")])
        _until(lambda: _idle(cluster) == nodes, 60, "slurmd", folder)
        yield cluster
    finally:
        _end(cluster)


def _end(cluster: SlurmCluster) -> None:
    with contextlib.suppress(Exception):
        subprocess.run(["scancel", "--state=RUNNING"], env=cluster.environment, timeout=10, check=False)
        subprocess.run(["scancel", "--state=PENDING"], env=cluster.environment, timeout=10, check=False)
        time.sleep(1)
    for name in list(cluster.daemons):
        if name.startswith("n"):
            cluster.kill_node(name)
    for process in cluster.daemons.values():
        process.kill()
        process.wait(10)


def _start(cluster: SlurmCluster, name: str, words: list[str]) -> None:
    log = (cluster.folder / f"{name}.out").open("wb")
    cluster.daemons[name] = subprocess.Popen(
        words, env=cluster.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    log.close()


def _idle(cluster: SlurmCluster) -> int:
    told = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--format=%T"], env=cluster.environment, capture_output=True, text=True,
        check=False, timeout=30,
    )  # fmt: skip
    return told.stdout.split().count("idle")


def _until(ready: Callable[[], bool], seconds: float, name: str, folder: Path) -> None:
    over = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > over:
            logs = "\n".join(
                f"== {one.name}\n{one.read_text(errors='replace')[-2000:]}" for one in folder.glob("*.out")
            )
            raise AssertionError(f"{name} did not come up\n{logs}")
        time.sleep(0.3)


def _ports(count: int) -> list[int]:
    """Ports that nothing listens at now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _configuration(folder: Path, nodes: int) -> str:
    control, *ports = _ports(nodes + 1)
    lines = [
        "ClusterName=dsgen",
        "SlurmctldHost=localhost",
        f"SlurmctldPort={control}",
        "SlurmUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder}/munge.socket,cred_expire={_CREDENTIAL_SECONDS}",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool.%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd.%n.pid",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "SelectType=select/linear",
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "KillWait=2",
        f"SlurmdTimeout={_TIMEOUT_SECONDS}",
        "MailProg=/bin/true",
        *(
            f"NodeName=n{place} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=4000"
            for place, port in enumerate(ports, 1)
        ),
        "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    ]
    return "\n".join(lines) + "\n"
