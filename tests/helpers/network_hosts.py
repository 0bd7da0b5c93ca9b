"""Hosts of one's own: network namespaces that a wire joins, each with name, address and sshd; all ended after."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

PROGRAMS = ("ip", "sshd", "ssh", "pdsh", "ssh-keygen", "unshare", "bash")
INTERFACE = "wire0"  # its name in every host
_SBIN = "/usr/sbin:/sbin"
_NETWORK = "10.213.77"


@attrs.frozen
class NetworkHost:
    """One host: its name, which every host resolves, and its address."""

    name: str
    address: str

    def command(self, words: list[str]) -> list[str]:
        """What runs a command there, with the host's own name."""
        named = f'hostname {self.name}; exec "$@"'
        return ["ip", "netns", "exec", self.name, "unshare", "--uts", "bash", "-c", named, "bash", *words]

    def cut_off(self) -> None:
        """End all that runs there but its sshd, as a host that starts anew does."""
        for process in _quiet("ip", "netns", "pids", self.name).split():
            with contextlib.suppress(OSError):
                if b"sshd" not in Path("/proc", process, "cmdline").read_bytes():
                    os.kill(int(process), signal.SIGKILL)


@contextlib.contextmanager
def network_hosts(folder: Path, count: int, environment: Mapping[str, str]) -> Iterator[list[NetworkHost]]:
    """So many hosts on one bridge; each trusts the others' root by a key, and gives its shells an environment."""
    os.environ["PATH"] = f"{os.environ['PATH']}:{_SBIN}"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    assert not missing, f"apt-get install iproute2 openssh-server pdsh: {', '.join(missing)} missing"
    mark = f"dsgen{os.getpid() % 100_000}"
    bridge = f"{mark}b"
    hosts = [NetworkHost(f"{mark}h{place}", f"{_NETWORK}.{place}") for place in range(1, count + 1)]
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    Path("/run/sshd").mkdir(exist_ok=True)
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "link", "set", bridge, "up")
        for place, host in enumerate(hosts, 1):
            _wire(host, bridge, f"{mark}w{place}")
            _files(host, hosts, folder)
            daemons.append(_sshd(host, folder, environment))
        for host in hosts:
            _until_reached(hosts[0], host)
        yield hosts
    finally:
        for daemon in daemons:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait(10)
        for host in hosts:
            for process in _quiet("ip", "netns", "pids", host.name).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            _quiet("ip", "netns", "del", host.name)
            shutil.rmtree(f"/etc/netns/{host.name}", ignore_errors=True)
        _quiet("ip", "link", "del", bridge)
        with contextlib.suppress(OSError):
            Path("/etc/netns").rmdir()  # where it was ours alone


def _wire(host: NetworkHost, bridge: str, wire: str) -> None:
    _run("ip", "netns", "add", host.name)
    _run("ip", "link", "add", wire, "type", "veth", "peer", "name", INTERFACE, "netns", host.name)
    _run("ip", "link", "set", wire, "master", bridge, "up")
    _run("ip", "-n", host.name, "link", "set", "lo", "up")
    _run("ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", INTERFACE)
    _run("ip", "-n", host.name, "link", "set", INTERFACE, "up")


def _files(host: NetworkHost, hosts: list[NetworkHost], folder: Path) -> None:
    """What `ip netns exec` lays over /etc: the names of all hosts, and how ssh finds its key."""
    own = Path("/etc/netns", host.name)
    (own / "ssh").mkdir(parents=True)
    names = "".join(f"{one.address} {one.name}\n" for one in hosts)
    (own / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
    settings = (
        "StrictHostKeyChecking no",
        "UserKnownHostsFile /dev/null",
        "LogLevel ERROR",
        f"IdentityFile {folder}/key",
    )
    (own / "ssh" / "ssh_config").write_text("Host *\n" + "".join(f"  {one}\n" for one in settings))


def _sshd(host: NetworkHost, folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    key, settings = folder / f"{host.name}.key", folder / f"{host.name}.conf"
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    told = " ".join(f'"{name}={value}"' for name, value in environment.items())
    settings.write_text(
        f"HostKey {key}\nAuthorizedKeysFile {folder}/key.pub\nStrictModes no\nPermitRootLogin yes\nUsePAM no\n"
        f"PasswordAuthentication no\nPidFile none\nSetEnv {told}\n"
    )
    sshd = shutil.which("sshd") or "sshd"  # it wants its whole path
    with (folder / f"{host.name}.log").open("wb") as log:
        return subprocess.Popen(
            host.command([sshd, "-D", "-e", "-f", str(settings)]), stdout=log, stderr=log, start_new_session=True
        )


def _until_reached(first: NetworkHost, host: NetworkHost) -> None:
    over = time.monotonic() + 20
    while True:
        done = subprocess.run(
            first.command(["ssh", "-o", "BatchMode=yes", host.name, "hostname"]), capture_output=True, text=True,
            check=False, timeout=30,
        )  # fmt: skip
        if done.stdout.strip() == host.name:
            return
        assert time.monotonic() < over, done.stderr
        time.sleep(0.3)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


def _quiet(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout
