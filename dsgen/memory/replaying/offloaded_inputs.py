"""What goes into blocks, where it waits in the node's RAM until their backward."""

from __future__ import annotations

from dsgen.memory.activations.course import STASH
from dsgen.memory.replaying.requests import Handle, Requests

__all__ = ["COPIES", "OffloadedInputs"]

COPIES = 5  # the stream on which they come back


class OffloadedInputs:
    """The inputs of blocks of one pass.

    Args:
        requests: Where they were asked for.
        size: Bytes of one.
        asked: The first one stays: autograd refers to it as a leaf.
    """

    def __init__(self, requests: Requests, size: int, asked: bool) -> None:
        self.requests, self.size = requests, size
        self._there: list[Handle] = []  # on the GPU still, of the last blocks
        self._before: Handle = 0  # what has come back for the block behind
        self._stays = asked

    def enter(self, entry: Handle, last: bool) -> None:
        """Forward goes on with what goes into a stretch; into the head with the `last`, behind a norm of which nothing
        is on its way any more."""
        over = len(self._there) if last else max(0, len(self._there) + 1 - STASH)
        self.requests.give(*self._there[:over])
        self._there = self._there[over:]
        if not last:
            self._there.append(0 if self._stays else entry)
            self._stays = False

    def bring(self) -> Handle:
        """Backward of a block begins."""
        return self.requests.take(self.size, COPIES)

    def go_on(self) -> None:
        """The first node of the next block's backward has ended, or all of backward."""
        self.requests.give(self._before)
        self._before = 0

    def leave(self, entry: Handle) -> None:
        """Backward of a block has ended."""
        self.go_on()
        self._before = entry
