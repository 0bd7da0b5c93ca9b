"""What DeepSpeed makes of a config in YAML: it takes every file for HJSON, and few YAML files mean the same there."""

from __future__ import annotations

from collections.abc import Mapping

from dsgen.documents.document import Document
from dsgen.documents.hjson import reader

__all__ = ["misread"]

_DUPLICATE = "duplicate-key"
_SHOWN = 3  # keys that are named


def misread(document: Document) -> str | None:
    """What happens when DeepSpeed opens the file itself, in words; None where it reads what the document holds.

    A document that is no YAML, or whose config is only a part of its file, is not judged: no file of its own is opened.
    """
    if document.kind != "yaml" or document.whole is not None or not isinstance(document.config, Mapping):
        return None
    read = reader.read(document.text, document.name)
    twice = [fault.path.rpartition(".")[2] for rule, fault in read.faults if rule == _DUPLICATE]
    if not isinstance(read.config, Mapping):
        fault = next((fault.message for _, fault in read.faults), "no map of keys")
        return f"it takes the file for HJSON and stops: {fault}"
    if read.config == document.config and not twice:
        return None
    if twice:
        return f"it takes the file for HJSON, where {', '.join(dict.fromkeys(twice[:_SHOWN]))} stands twice, and stops"
    wrong = next(name for name in (*document.config, *read.config) if _differs(name, document.config, read.config))
    return f"it takes the file for HJSON, where {wrong} is not what it is in YAML"


def _differs(name: str, meant: Mapping[str, object], read: Mapping[str, object]) -> bool:
    return name not in meant or name not in read or meant[name] != read[name]
