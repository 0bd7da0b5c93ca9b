"""Who says a line of a log in which many ranks write at once, and what is left of the line without the names."""

from __future__ import annotations

import re

__all__ = ["rank_in", "spoken"]

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# "[rank3]:" of torch, "[default3]:" of torchrun's --tee, "[rank: 3]" of Lightning; a host or a line number before it.
_NAMED = re.compile(r"^\s*(?:\[\d+\]\s*)?(?:[\w.-]+:\s+)?\[(?:rank:? ?|default)(\d{1,6})\]:?[ \t]?")
_LABELLED = re.compile(r"^ *(\d{1,5}): ")  # srun --label
_HOST = re.compile(r"^\s*(?:[\w-]*\d|localhost|worker-\w+|node-?\w+): (?=\S)")  # pdsh of DeepSpeed's launcher
_SAID = (
    re.compile(r"\[Rank (\d{1,6})\]"),
    re.compile(r"\[PG [^\]]*\bRank (\d{1,6})\]"),
    re.compile(r"\bon rank (\d{1,6})\b"),
    re.compile(r"\brank\s*:\s*(\d{1,6})\b"),
    re.compile(r"\bRank (\d{1,6})\b"),
)


def spoken(line: str) -> tuple[int | None, str]:
    """The rank in front of a line, None where none is named, and the rest of it."""
    text = _COLOURS.sub("", line).rstrip()
    for pattern in (_NAMED, _LABELLED):
        if name := pattern.match(text):
            return int(name[1]), text[name.end() :]
    return None, _HOST.sub("", text, count=1)


def rank_in(text: str) -> int | None:
    """The rank that a message names in itself."""
    return next((int(name[1]) for pattern in _SAID if (name := pattern.search(text))), None)
