"""Simulations of the tests: one child process that has imported torch and DeepSpeed answers all of a test process."""

from __future__ import annotations

import atexit
import contextlib
import functools
import sys
from typing import Any

from dsgen.proving import sessions

SECONDS = 300.0  # for one simulation, on the slowest machine of CI


@functools.cache
def _server() -> sessions.Session:
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(sessions.start(sys.executable, "cpu", 1, "simulate.server"))


def simulate(request: dict[str, Any]) -> dict[str, Any]:
    """What `python -m dsgen.engine.simulate` answers to a request."""
    return _server().ask(request, SECONDS)
