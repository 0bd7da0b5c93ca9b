"""The texts of a config: those in quotes, and those that HJSON takes from a line without any."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dsgen.deepspeed.coercion import refused_at
from dsgen.linting.rules.values import judged
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Severity

__all__ = ["bare_texts", "every_value", "is_placeholder", "listed", "noted", "placeholders", "severity_at", "word"]

_MOST = 6  # names that one sentence lists; a section of thirty keys that nothing reads is no list to read

_MARK = re.compile(r"\$\{|\$[A-Za-z_]|\{\{|\{%|%\(\w+\)|^\{\w+\}$|^<[^<>]+>,?$|\bYOUR_")
_CONSTANT = re.compile(r"[A-Z][A-Z0-9]*(?:_\w+|[A-Z0-9])")  # ZERO_STAGE, LR, CL_1st_MIN
_NUMBERS = ("nan", "inf", "infinity")
_LITERALS = ("true", "false", "none", "null")


def noted(subject: Subject, rule: str) -> Iterator[Fault]:
    """The faults that the reader of the file has noted for a rule."""
    return (fault for name, fault in subject.document.faults if name == rule)


def every_value(subject: Subject) -> Iterator[tuple[str, Any]]:
    """Path and value of everything that is no map and no list, in lists too (`optimizer.params.betas[0]`)."""
    yield from _walk(subject.config, "")


def bare_texts(subject: Subject) -> Iterator[tuple[str, str]]:
    """Path and value of every text that stands in the file without quotes."""
    document = subject.document
    if document.kind == "hjson":
        for path, value in every_value(subject):
            place = document.places.get(path)
            if isinstance(value, str) and place and document.text[place.value.start : place.value.end] == value:
                yield path, value


def word(text: str) -> str:
    """A text without quotes as the one word of another language that it is: "true", "none", "nan"; else ""."""
    bare = text.rstrip(", \t").lower()
    return bare if bare.lstrip("+-") in _NUMBERS or bare in _LITERALS else ""


def listed(names: Sequence[str]) -> str:
    """Several names in a sentence: the first of them, and how many more there are."""
    shown = [*names] if len(names) <= _MOST else [*names[: _MOST - 1], f"{len(names) - _MOST + 1} more"]
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def placeholders(names: Sequence[str], reads: str) -> str:
    """The sentence for one placeholder of a file or for several.

    Args:
        names: Their paths.
        reads: The text that DeepSpeed reads in the place of the first, and what it makes of it.
    """
    if len(names) == 1:
        return f"{names[0]} is still a placeholder: DeepSpeed reads the text {reads}"
    return f"{listed(names)} are still placeholders: DeepSpeed reads texts such as {reads}"


def is_placeholder(text: str, bare: bool) -> bool:
    """Whether a text names what is to stand in its place; without quotes (`bare`) a constant's name does so too."""
    if bare and word(text):
        return False
    return bool(_MARK.search(text)) or (bare and bool(_CONSTANT.fullmatch(text.rstrip(", \t"))))


def severity_at(subject: Subject, path: str) -> Severity:
    """ERROR where the release refuses the value at a path, else WARNING."""
    refused = {known for known, key, value in judged(subject) if refused_at(key, value) is not None}
    return Severity.ERROR if path in refused else Severity.WARNING


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _walk(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _walk(inner, f"{path}[{index}]")
    else:
        yield path, value
