"""Hostfiles: what is read, and every way in which one is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgen.launching.hostfiles import RunHost, check_hosts, hostfile_text, read_hosts
from dsgen.shapes.errors import DsgenError

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,10}[a-z0-9]", fullmatch=True)


def test_comments_and_blanks_are_passed_by() -> None:
    text = "# ours\n\nworker-1 slots=8\n  worker-2\tslots=8  # the second\n10.0.0.3 slots=4\n"

    hosts = read_hosts(text, "hosts")

    assert hosts == (
        RunHost("worker-1", 8, "hosts:3"),
        RunHost("worker-2", 8, "hosts:4"),
        RunHost("10.0.0.3", 4, "hosts:5"),
    )


@given(st.dictionaries(NAMES, st.integers(1, 99), min_size=1))
def test_what_is_written_is_read_back(slots: dict[str, int]) -> None:
    hosts = tuple(RunHost(name, count, f"x:{line}") for line, (name, count) in enumerate(slots.items(), 1))

    assert read_hosts(hostfile_text(hosts), "x") == hosts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "hosts: no host stands in it; it names the machines"),
        ("# only\n", "hosts: no host stands in it"),
        ("a slots=8\na slots=8\n", "hosts:2: host a stands twice, first in hosts:1; a host stands once"),
        ("a slots=0\n", "hosts:1: host a has slots=0; a host takes at least one rank"),
        ("fe80::1 slots=8\n", "hosts:1: fe80::1 is an IPv6 address; a host must be a name or an IPv4 address"),
        ("[::1] slots=8\n", r"hosts:1: \[::1\] is an IPv6 address"),
        ("a\n", "hosts:1: 'a' is no line of a hostfile; it must be HOST slots=N"),
        ("a slots=x\n", "is no line of a hostfile"),
        ("a slots=-1\n", "is no line of a hostfile"),
        ("a slots=8 b slots=8\n", "is no line of a hostfile"),
        ("$(id) slots=8\n", r"hosts:1: '\$\(id\)' is no name of a host"),
        ("-x slots=8\n", "is no name of a host"),
        ("a slots=0\nb\n", "hosts:1: host a has slots=0(.|\n)*hosts:2: 'b' is no line"),
    ],
)
def test_what_is_wrong_is_told_by_its_line(text: str, words: str) -> None:
    with pytest.raises(DsgenError, match=words):
        read_hosts(text, "hosts")


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        (
            (RunHost("a", 8, "hosts:1"),),
            "1 host, and the job runs on 2 nodes; each node is one host\n  Add the missing lines",
        ),
        (tuple(RunHost(name, 8) for name in "abc"), "3 hosts, and the job runs on 2 nodes(.|\n)*Leave 2 of them"),
        ((RunHost("a", 8), RunHost("b", 4, "hosts:2")), "hosts:2: host b has slots=4, and .*world 12 against 16"),
    ],
)
def test_hosts_at_odds_with_the_job_are_refused(hosts: tuple[RunHost, ...], words: str) -> None:
    check_hosts((RunHost("a", 8), RunHost("b", 8)), 2, 8, "hosts")
    with pytest.raises(DsgenError, match=words):
        check_hosts(hosts, 2, 8, "hosts")
