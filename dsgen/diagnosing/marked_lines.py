"""The lines of a log that have a word of interest, read in one pass: gigabytes take little memory."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

__all__ = ["BLOCK", "WINDOW", "Line", "marked"]

BLOCK = 1 << 20  # bytes that are read at once
WINDOW = 1500  # bytes from a line's start that are looked at: messages are broken over lines by boxes and terminals
LONGEST = 4096  # bytes of a line that are read; more is data that somebody printed
DIGITS = b"0123456789"
MOST_PLAIN = 20_000  # lines without a word that are remembered, and the bytes of one at most
LONGEST_PLAIN = 300
SAMPLED = 64  # of a block, lines with a word that comes in every step


class Line(NamedTuple):
    """One line, or what a progress bar wrote over itself.

    Attributes:
        number: Of the line, from 1, as an editor counts.
        text: What stands there.
        window: It and what follows.
    """

    number: int
    text: str
    window: str


def marked(blocks: Iterable[bytes], words: Sequence[bytes], often: Sequence[bytes] = ()) -> Iterator[Line]:
    """The lines that have one of the words, in order, wherever the blocks are cut.

    Args:
        blocks: The log's bytes, in pieces of any size.
        words: What is looked for.
        often: The same of words that come in every step: of each block only the first lines that have them.
    """
    rest, number, repeated = b"", 1, _Repeated(words)
    for block in itertools.chain(blocks, (None,)):
        buffer = rest + (block or b"")
        cut = len(buffer)
        if block is not None:
            cut = buffer.rfind(b"\n", 0, max(0, len(buffer) - WINDOW)) + 1
            if not cut and len(buffer) > BLOCK:
                cut = len(buffer) - WINDOW  # one line without an end
        if not cut and block is not None:
            rest = buffer
            continue
        looked_for = () if repeated.holds(buffer[:cut]) else words
        yield from _of_block(buffer, cut, number, looked_for, often)
        number += buffer.count(b"\n", 0, cut)
        rest = buffer[cut:]


class _Repeated:
    """Lines that differ from earlier ones in numbers only, and have no word: most of a long log, which is left out.

    What has a word has it without its digits as well, where the word is without them too; so none is ever missed.
    """

    def __init__(self, words: Sequence[bytes]) -> None:
        self.words = tuple({word.translate(None, DIGITS) for word in words})
        self.plain: set[bytes] = set()

    def holds(self, block: bytes) -> bool:
        """Whether no line of a block has a word."""
        fresh = set(block.translate(None, DIGITS).split(b"\n")) - self.plain
        together = b"\n".join(fresh)
        if any(word in together for word in self.words):
            return False
        if len(self.plain) + len(fresh) > MOST_PLAIN:
            self.plain.clear()
        self.plain.update(itertools.islice((line for line in fresh if len(line) <= LONGEST_PLAIN), MOST_PLAIN))
        return True


def _of_block(buffer: bytes, cut: int, number: int, words: Sequence[bytes], often: Sequence[bytes]) -> Iterator[Line]:
    spans: dict[int, int] = {}
    for word in words:
        spans.update(_spans(buffer, cut, word))
    for word in often:
        spans.update(itertools.islice(_spans(buffer, cut, word), SAMPLED))
    counted = 0
    for start in sorted(spans):
        number += buffer.count(b"\n", counted, start)
        counted = start
        text = buffer[start : min(spans[start], start + LONGEST)]
        window = buffer[start : start + WINDOW]
        yield Line(number, text.decode("utf-8", "replace"), window.decode("utf-8", "replace"))


def _spans(buffer: bytes, cut: int, word: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of every line up to a cut that has a word; a carriage return ends a line as well."""
    at = buffer.find(word, 0, cut)
    while at >= 0:
        start = buffer.rfind(b"\n", 0, at) + 1
        start = max(start, buffer.rfind(b"\r", start, at) + 1)
        end = buffer.find(b"\n", at)
        end = len(buffer) if end < 0 else end
        carriage = buffer.find(b"\r", at, end)
        end = end if carriage < 0 else carriage
        yield start, end
        at = buffer.find(word, max(end, at + len(word)), cut)
