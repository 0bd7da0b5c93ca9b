"""The hosts of a run: a hostfile as DeepSpeed reads it, checked against the job, and written."""

from __future__ import annotations

import re

import attrs

from dsgen.shapes.errors import DsgenError, joined, mistake

__all__ = ["RunHost", "check_hosts", "hostfile_text", "read_hosts"]

# As `deepspeed` reads a line (deepspeed 0.19.8, launcher/runner.py, _parse_hostfile), but to the end of the line.
_LINE = re.compile(r"(\S+)\s+slots=(\d+)\s*(?:#.*)?")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_EXAMPLE = "Write one line for each host: worker-1 slots=8."


@attrs.frozen
class RunHost:
    """One machine of a run: its name or IPv4 address, the ranks it takes, and where that was written."""

    name: str
    slots: int
    where: str = "--hostfile"


def read_hosts(text: str, where: str) -> tuple[RunHost, ...]:
    """The hosts of a hostfile, in its order.

    Args:
        text: The file.
        where: Its name, for errors.

    Raises:
        DsgenError: A line that is none, a host twice, no slots, or an IPv6 address.
    """
    hosts: dict[str, RunHost] = {}
    mistakes: list[DsgenError] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        try:
            host = _host(line, f"{where}:{number}")
            if host.name in hosts:
                raise mistake(
                    f"host {host.name} stands twice, first in {hosts[host.name].where}",
                    must="a host stands once, with all of its slots",
                    where=f"{where}:{number}",
                    todo="Drop one of the lines; DeepSpeed refuses both.",
                    code="contradiction",
                )
            hosts[host.name] = host
        except DsgenError as error:
            mistakes.append(error)
    if mistakes:
        raise joined(mistakes)
    if not hosts:
        raise mistake("no host stands in it", must="it names the machines", where=where, todo=_EXAMPLE, code="missing")
    return tuple(hosts.values())


def _host(line: str, where: str) -> RunHost:
    match = _LINE.fullmatch(line)
    if match is None:
        raise mistake(f"{line!r} is no line of a hostfile", must="it must be HOST slots=N", where=where, todo=_EXAMPLE)
    name, slots = match[1], int(match[2])
    if ":" in name:
        raise mistake(
            f"{name} is an IPv6 address",
            must="a host must be a name or an IPv4 address: DeepSpeed reads what follows ':' as slots",
            where=where,
            todo="Give it a name in DNS or /etc/hosts of every host.",
        )
    if _NAME.fullmatch(name) is None:
        raise mistake(f"{name!r} is no name of a host", must="it has letters, digits, '.', '-' and '_'", where=where)
    if slots < 1:
        raise mistake(
            f"host {name} has slots=0",
            must="a host takes at least one rank",
            where=where,
            todo="Say how many GPUs it gives, or drop the line.",
        )
    return RunHost(name, slots, where)


def check_hosts(hosts: tuple[RunHost, ...], nodes: int, gpus_per_node: int, where: str) -> None:
    """Hold the hosts against the job's nodes and GPUs.

    Raises:
        DsgenError: Too few or too many hosts, or one with other slots than the job has GPUs in a node.
    """
    if len(hosts) != nodes:
        few = len(hosts) < nodes
        raise mistake(
            f"{len(hosts)} host{'s' if len(hosts) > 1 else ''}, and the job runs on {nodes} "
            f"node{'s' if nodes > 1 else ''}",
            must="each node is one host",
            where=where,
            todo="Add the missing lines, or say --nodes." if few else f"Leave {nodes} of them, or say --nodes.",
            code="contradiction",
        )
    for host in hosts:
        if host.slots != gpus_per_node:
            raise mistake(
                f"host {host.name} has slots={host.slots}, and the job runs on {gpus_per_node} GPUs of each node: "
                f"world {sum(one.slots for one in hosts)} against {nodes * gpus_per_node}",
                must="the slots are the GPUs that the batch was planned for",
                where=host.where,
                todo=f"Write slots={gpus_per_node}, or say --gpus.",
                code="contradiction",
            )


def hostfile_text(hosts: tuple[RunHost, ...]) -> str:
    """A hostfile as DeepSpeed reads it."""
    return "".join(f"{host.name} slots={host.slots}\n" for host in hosts)
