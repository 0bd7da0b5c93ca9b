"""What a certificate answers, as text: whether it holds, what differs, and for what it was proven."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsgen.proving.certificates import Deviation, Verified

__all__ = ["text"]

_WIDTH = 80
_ENGINE = ("deepspeed", "torch", "transformers", "peft", "python", "dsgen")


def text(answer: Verified) -> str:
    """What a person reads after `dsgen prove --verify`; ends without a line break."""
    proven = answer.certificate
    lines = ["holds: the same config, the same versions" if answer.holds else "does not hold"]
    lines += [line for item in answer.differences for line in _difference(item)]
    versions = ", ".join(f"{name} {proven.versions[name]}" for name in _ENGINE if name in proven.versions)
    lines += _wrap(f"proven on {proven.made[:10]} for {versions}", "  ")
    kind = "CPU" if proven.device == "cpu" else "GPU"
    lines += _wrap(f"with {proven.model} on {proven.ranks} {kind} ranks, as {proven.target} hands it over", "  ")
    lines += _wrap(f"{len(proven.checks)} checks held", "  ")
    lines += [line for item in answer.remarks for line in _wrap(f"not counted: {_words(item)}", "  ")]
    if not answer.holds:
        lines += ["  to do: prove it again: dsgen prove CONFIG --certificate FILE --force"]
    return "\n".join(lines)


def _difference(item: Deviation) -> list[str]:
    return _wrap(_words(item), "  ")


def _words(item: Deviation) -> str:
    if item.name == "config":
        return f"the config is another: its hash is {item.now}..., {item.proven}... was proven"
    now = "is not installed here" if item.now is None else f"is {item.now} here"
    return f"{item.name} {now}, {item.proven} was proven"


def _wrap(words: str, indent: str) -> list[str]:
    return textwrap.wrap(words, _WIDTH, initial_indent=indent, subsequent_indent=" " * (len(indent) + 2))
