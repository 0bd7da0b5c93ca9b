"""The bytes of a log, from a file or from stdin, in blocks; what is no log is refused."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterator
from typing import BinaryIO

from dsgen.diagnosing.marked_lines import BLOCK
from dsgen.shapes.errors import DsgenError, mistake

__all__ = ["STDIN", "blocks"]

STDIN = "-"
_LOOKED_AT = 1 << 16  # bytes by which it is judged whether it is text
_MOST_CONTROLS = 0.05  # of the bytes; text has tabs, line ends and the escape of colours
_MOST_NULS = 0.3  # of the bytes; a log that was cut by a crash may end in many
_TEXT_CONTROLS = frozenset(b"\t\n\r\x0b\x0c\x08\x07\x1b\x00")
# How a file begins -> what it is, and how to read it as text.
_KINDS = {
    b"\x1f\x8b": ("compressed by gzip", "gunzip -c {} | dsgen diagnose -"),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "zstdcat {} | dsgen diagnose -"),
    b"\xfd7zXZ": ("compressed by xz", "xzcat {} | dsgen diagnose -"),
    b"BZh": ("compressed by bzip2", "bzcat {} | dsgen diagnose -"),
    b"PK\x03\x04": ("a zip archive or a checkpoint", ""),
    b"\x7fELF": ("a program", ""),
    b"\x89PNG": ("a picture", ""),
    b"%PDF": ("a PDF", ""),
}
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_BLANK = b"\x00 \t\r\n"
_NEXT = "Name what the run printed: slurm-JOBID.out, or python train.py 2>&1 | tee train.log."


def blocks(path: str) -> Iterator[bytes]:
    """The bytes of a log, whatever its size; text in UTF-16, as PowerShell writes it, as UTF-8.

    Args:
        path: A file, or "-" for stdin.

    Raises:
        DsgenError: There is none, it cannot be read, it is empty, or no text.
    """
    name = "stdin" if path == STDIN else path
    if path == STDIN:
        yield from _text(sys.stdin.buffer, name)
        return
    if os.path.isdir(path):  # noqa: PTH112 - a path may hold what pathlib does not take
        raise mistake(f"{path} is a folder", must="it must be a log", todo=_NEXT, code="unreadable")
    try:
        file = open(path, "rb")  # noqa: PTH123, SIM115 - closed below
    except FileNotFoundError:
        raise mistake("there is no such file", where=path, todo=_NEXT, code="unreadable") from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    with file:
        yield from _text(file, name)


def _unreadable(path: str, error: Exception) -> DsgenError:
    why = getattr(error, "strerror", None) or error
    return mistake(f"it cannot be read ({why})", where=path, code="unreadable")


def _text(file: BinaryIO, name: str) -> Iterator[bytes]:
    first = _read(file, name)
    if not first.strip(_BLANK):
        raise mistake("it is empty", must="it must be a log", where=name, todo=_NEXT, code="unreadable")
    encoding = next((encoding for mark, encoding in _UTF16.items() if first.startswith(mark)), None)
    if encoding is None:
        _judge(first[:_LOOKED_AT], name)
        yield first
        while block := _read(file, name):
            yield block
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    block = first
    while block:
        yield decoder.decode(block).encode("utf-8", "replace")
        block = _read(file, name)
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _read(file: BinaryIO, name: str) -> bytes:
    try:
        return file.read(BLOCK)
    except OSError as error:
        raise _unreadable(name, error) from None


def _judge(start: bytes, name: str) -> None:
    """Refuse what is no text."""
    for mark, (kind, how) in _KINDS.items():
        if start.startswith(mark):
            shown = how.format(name if name != "stdin" else "LOG") or _NEXT
            raise mistake(f"it is {kind}", must="it must be a log", where=name, todo=shown, code="unreadable")
    nuls = start.count(0)
    controls = sum(start.count(byte) for byte in range(32) if byte not in _TEXT_CONTROLS)
    if controls > _MOST_CONTROLS * len(start) or nuls > _MOST_NULS * len(start):
        raise mistake("it is binary", must="it must be a log, which is text", where=name, todo=_NEXT, code="unreadable")
