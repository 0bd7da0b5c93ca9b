"""The bytes of a log, and what is refused because it is none."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import zipfile
from pathlib import Path

import pytest

import dsgen
from dsgen.diagnosing import blocks
from dsgen.shapes.errors import DsgenError

LINE = "RuntimeError: CUDA out of memory. caf\u00e9\n"
GZIPPED = gzip.compress(LINE.encode(), mtime=0)  # without the time of day


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16", "utf-8-sig", "cp1252"])
def test_a_log_in_any_encoding_is_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "train.log"
    path.write_bytes((LINE * 3).encode(encoding))

    answer = dsgen.diagnose(path)

    assert answer.root is not None
    assert (answer.code, answer.root.line, answer.root.count) == ("gpu-out-of-memory", 1, 3)


def zipped() -> bytes:
    """What torch.save writes, in small."""
    paper = io.BytesIO()
    with zipfile.ZipFile(paper, "w") as archive:
        archive.writestr("data.pkl", b"x" * 100)
    return paper.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"\n \n\t\n", "it is empty"),
        (b"\x00" * 5000, "it is empty"),
        (GZIPPED, r"compressed by gzip; it must be a log\n  gunzip -c \S+ \| dsgen diagnose -"),
        (bz2.compress(LINE.encode()), "compressed by bzip2"),
        (lzma.compress(LINE.encode()), "compressed by xz"),
        (zipped(), "a zip archive or a checkpoint"),
        (bytes(range(1, 32)) * 40, "it is binary"),
        (b"a\x00b\x00\x00" * 400, "it is binary"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)

    with pytest.raises(DsgenError, match=words) as refused:
        dsgen.diagnose(path)
    assert refused.value.code == "unreadable"


@pytest.mark.parametrize("path", ["nowhere.log", ".", "a\x00b"])
def test_what_cannot_be_opened_is_refused(path: str) -> None:
    with pytest.raises(DsgenError, match=r"no such file|a folder|cannot be read") as refused:
        dsgen.diagnose(path)
    assert refused.value.code == "unreadable"


def test_a_log_that_a_crash_cut_is_read(tmp_path: Path) -> None:
    """File systems leave zeros where a node went down while it wrote."""
    path = tmp_path / "x.log"
    path.write_bytes(b"a line of the run\n" * 500 + b"\x00" * 1000 + LINE.encode())

    assert dsgen.diagnose(path).code == "gpu-out-of-memory"


def test_stdin_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINE.encode("latin-1"))))

    assert b"".join(blocks("-")) == LINE.encode("latin-1")


def test_what_is_asked_wrongly_is_told() -> None:
    with pytest.raises(DsgenError, match="it must be the path of a log"):
        dsgen.diagnose(3)  # type: ignore[arg-type]
    with pytest.raises(DsgenError, match="wanted is missing"):
        dsgen.diagnose("x.log", config={"train_batch_size": 8})
