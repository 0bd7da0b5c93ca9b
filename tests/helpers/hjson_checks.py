"""What holds of every text that the reader of JSON and HJSON reads, and texts that were broken to see it."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from hjson_cases import PIECES

from dsgen.documents.document import Document
from dsgen.documents.hjson.reader import read

__all__ = ["STOPS", "agrees_with_hjson", "faults", "mutants", "plain", "sound", "stopped", "typed"]

STOPS = {"broken-syntax", "too-deep", "number-too-large", "not-a-number", "not-utf8"}  # hjson raises for each of them


def plain(text: str) -> Any:
    """What a text holds; {} for an empty one, as hjson has it."""
    document = read(text, "x")
    return {} if faults(document) == ["empty-file"] else document.config


def typed(value: Any) -> Any:
    """A value with its types, so that 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return {name: typed(inner) for name, inner in value.items()}
    return [typed(inner) for inner in value] if isinstance(value, list) else (type(value), value)


def faults(document: Document) -> list[str]:
    """The faults of a text, without those that only a strict reader minds."""
    return [name for name, _ in document.faults if name not in ("not-strict-json", "byte-order-mark")]


def stopped(document: Document) -> bool:
    """Whether hjson raises for a text."""
    return bool(STOPS & set(faults(document)))


def sound(document: Document, text: str) -> None:
    """Assert what holds of every document, whatever the text."""
    assert document.text == text.removeprefix("\ufeff")
    assert document.config is not None or stopped(document) or faults(document) or text.strip() == "null"
    for place in document.places.values():
        assert 0 <= place.value.start <= place.value.end <= len(text)
    for _, fault in document.faults:
        assert fault.span is not None
        line, column = document.position(fault.span.start)
        assert line >= 1
        assert 1 <= column <= len(document.line(line)) + 2
        assert fault.message.isprintable()


def mutants(texts: Sequence[str], seed: int, rounds: int) -> Iterator[str]:
    """Texts with a few pieces cut out and others put in."""
    chance = random.Random(seed)
    for _ in range(rounds):
        text = chance.choice(texts)
        for _ in range(chance.randint(1, 4)):
            start = chance.randrange(len(text) + 1)
            put = "".join(chance.choice(PIECES) for _ in range(chance.randint(0, 3)))
            text = text[:start] + put + text[start + chance.choice((0, 0, 1, 5, 20)) :]
        yield text


def agrees_with_hjson(text: str) -> None:
    """Assert that a text holds what the package hjson makes of it, or that both refuse it."""
    document = read(text, "x")
    expected = _theirs(text)
    if faults(document) == ["not-utf8"]:  # a null beside a letter: UTF-16 by mistake, which hjson takes for text
        assert "\0" in text
        return
    assert stopped(document) == (expected is None) or faults(document) == ["empty-file"], text
    if expected is not None:
        assert typed(plain(text)) == expected, text


def _theirs(text: str) -> Any:
    """What hjson makes of a text that DeepSpeed opened, which turns every line end into a newline."""
    import hjson

    try:
        return typed(json.loads(json.dumps(hjson.loads(io.StringIO(text, newline=None).read()))))
    except (ValueError, IndexError, OverflowError, RecursionError):
        return None
