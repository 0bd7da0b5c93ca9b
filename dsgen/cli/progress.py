"""What several proofs show on a terminal while they run: a bar with the time left, which is gone in the end."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import click

__all__ = ["Progress", "shown"]

_BAR = 20  # columns
_TICK_SECONDS = 1.0
_STARTING = "starting DeepSpeed"
_LETTERS = 30  # of a name: its end
_COLUMNS = 80  # of a terminal that does not say


class Progress:
    """How far several proofs are. It shows nothing itself; `shown` gives one that a terminal shows."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._done = 0
        self._began: float | None = None  # the first proof: what came before it, an import, comes once
        self._last = time.monotonic()  # when the proof at hand began

    def tell(self, done: int, _: int) -> None:
        """A proof begins: how many are done, of how many."""
        self._last = time.monotonic()
        self._done, self._began = done, self._began or self._last
        self.draw()

    def draw(self) -> None:
        """Draw the line anew."""

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Take the line away while something else is printed."""
        yield

    def line(self) -> str:
        """What is done, and how long the rest takes: each as long as those before it took."""
        count, now = len(self._names), time.monotonic()
        bar = "█" * round(_BAR * self._done / count) + "░" * (_BAR - round(_BAR * self._done / count))
        if self._began is None:
            return f"{bar} 0 of {count}: {_STARTING}, {now - self._last:.0f} s"
        left = ""
        if self._done:
            each = (self._last - self._began) / self._done
            rest = each * (count - self._done - 1) + max(each - (now - self._last), 0.0)
            left = f", about {rest:.0f} s left"
        return f"{bar} {self._done} of {count}{left}: {self._names[self._done][-_LETTERS:]}"


class _Terminal(Progress):
    """One on stderr, drawn by two threads."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self._pen = threading.RLock()

    def draw(self) -> None:
        with self._pen:
            click.echo(f"\r{self.line()[: _columns() - 1]}\033[K", err=True, nl=False)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        with self._pen:
            click.echo("\r\033[K", err=True, nl=False)
            yield


@contextlib.contextmanager
def shown(names: Sequence[str]) -> Iterator[Progress]:
    """A bar for several proofs, drawn each second; in a pipe, on a dumb terminal and for one proof nothing is shown."""
    looked_at = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if len(names) < 2 or not looked_at:
        yield Progress(names)
        return
    progress, over = _Terminal(names), threading.Event()

    def tick() -> None:
        while not over.wait(_TICK_SECONDS):
            progress.draw()

    progress.draw()
    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        over.set()
        thread.join()
        with progress.aside():
            pass


def _columns() -> int:
    """Columns of the terminal that stderr is: stdout may be a pipe."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS
