"""Engines of the tests of a process: each kind is started once, and asked by whatever would have started its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dsgen.proving import sessions
from dsgen.proving.sessions import Session, SessionLostError

__all__ = ["Warm"]

_CHANGES = {"PYTEST_CURRENT_TEST"}  # a variable that no engine reads
_Start = Callable[..., contextlib.AbstractContextManager[Session]]


class Warm:
    """What `sessions.start` does, but for its end; an engine is another one where anything that it inherits is."""

    def __init__(self, start: _Start = sessions.start) -> None:
        self._start = start
        self._running: dict[Any, Session] = {}
        self._stack = contextlib.ExitStack()

    @contextlib.contextmanager
    def start(self, *arguments: Any, **named: Any) -> Iterator[Session]:
        """As `sessions.start`."""
        inherited = {name: value for name, value in os.environ.items() if name not in _CHANGES}
        key = (arguments, tuple(named.items()), str(Path.cwd()), tuple(sorted(inherited.items())))
        if key not in self._running:
            self._running[key] = self._stack.enter_context(self._start(*arguments, **named))
        try:
            yield self._running[key]
        except SessionLostError:  # whoever asks next gets one that lives
            del self._running[key]
            raise

    def close(self) -> None:
        """End them all."""
        self._running.clear()
        self._stack.close()
