"""Running the command line in this process, and what every refusal must keep."""

from __future__ import annotations

import contextlib
import io

import attrs
import pytest

from dsgen.cli import main

MAIN = ["--hw", "a100-40g", "--model", "7b"]


@attrs.frozen
class Outcome:
    """What one run of the command line did."""

    code: object
    out: str
    err: str


def run(*arguments: str) -> Outcome:
    """One run of the command line, its streams caught."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return Outcome(stopped.value.code, out.getvalue(), err.getvalue())


def refused(*arguments: str) -> str:
    """The message of a run that must fail in the right way: exit code 2, one message, nothing on stdout."""
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err
    return done.err
