"""YAML text to leaves with line, column and the comment beside each key; plain types only, nothing coerced.

The only module that imports ruamel. It composes nodes and never constructs objects, so a tag can build nothing.
"""

from __future__ import annotations

import functools
import re
import warnings
from pathlib import Path
from typing import Any

import attrs

from dsgen.documents.yaml.scalars import CORE, MUST, as_text
from dsgen.documents.yaml.walk import MAX_ENTRIES, FaultError, YamlWalk
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.findings import Span
from dsgen.shapes.layers import DEEPEST

__all__ = ["Entry", "NotYamlError", "compose", "entries", "read_text"]

MAX_BYTES = 1_000_000  # 1 MB: twenty times the largest hand-written profile; a data file named by mistake stops here

_OLDER = re.compile(r"%YAML\s+(?!1\.2\b)(\S+)")
_COMMENT = re.compile(r"(?:^|\s)#\s?(.*)$")


@attrs.frozen
class Entry:
    """One leaf of a YAML file: its dotted path, plain value, 1-based line and column, and the comment beside it."""

    path: str
    value: Any
    line: int
    column: int
    comment: str | None


class NotYamlError(DsgenError):
    """A text that is no YAML.

    Attributes:
        offset: The place in characters, where it is known.
        deep: Whether it nests too deep for the parser.
    """

    offset: int | None = None
    deep: bool = False

    @property
    def fault(self) -> str:
        """What is and what must be, without the place."""
        return f"{self.what}; {self.must}" if self.must else self.what


def read_text(path: Path) -> str:
    """The text of a file a person named.

    Raises:
        DsgenError: Missing, a folder, unreadable, too large, or not UTF-8.
    """
    try:
        if path.is_dir():
            raise mistake("it is a folder", must="it must be a YAML file", where=path, code="unreadable")
        if not path.is_file():
            links = "a link that leads to no file" if path.is_symlink() else "no such file"
            what = "it is not a regular file" if path.exists() else links
            raise mistake(
                what,
                where=path,
                todo="Check the path; `dsgen profiles list` shows the built-in names.",
                code="unreadable",
            )
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise mistake(
                f"it has {size:,} bytes",
                must=f"at most {MAX_BYTES:,} are read",
                where=path,
                todo="A profile or override file is a few kilobytes; was another file meant?",
                code="unreadable",
            )
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise mistake(
            f"byte {error.start} is not UTF-8",
            must="it must be UTF-8 text",
            where=path,
            todo="Save it again as UTF-8.",
            code="unreadable",
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        raise mistake(
            f"it cannot be read ({getattr(error, 'strerror', None) or error})", where=path, code="unreadable"
        ) from None


def entries(text: str, source: str) -> tuple[Entry, ...]:
    """The leaves of one YAML document.

    Args:
        text: The document; JSON is YAML too.
        source: What to call it in errors.

    Raises:
        DsgenError: Broken syntax, several documents, a top level that is no map, a duplicate key, a key that is
            no text, a tag that would build an object, too deep or too many entries. Always with the line.
    """
    _refuse_older(text, source)
    root = compose(text, source)
    if root is None or root.value == []:  # no node, or a map or list of nothing
        raise mistake(
            "it is empty", must="it must hold a map, such as training: {seq_len: 8192}", where=source, code="unreadable"
        )
    if root.id != "mapping":
        raise mistake(
            f"the top level is {_kind(root)}", must="it must be a map of sections", where=source, code="unreadable"
        )
    walk = _Leaves(text, source)
    try:
        walk.node(root, "", 1, 0)
    except FaultError as error:
        raise _refusal(error, text, source) from None
    by_path: dict[str, Entry] = {}
    for entry in walk.leaves:
        if entry.path in by_path:  # once as a: {b: 1} and once as a.b: 1
            raise _twice(entry.path, by_path[entry.path].line, f"{source}:{entry.line}")
        by_path[entry.path] = entry
    return tuple(by_path.values())


def _refuse_older(text: str, source: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if older := _OLDER.match(line):
            raise mistake(
                f"it is written in YAML {older[1]}",
                where=f"{source}:{number}",
                todo="Drop the line %YAML.",
                must="only YAML 1.2 is read: in 1.1 no is false and 010 is 8",
                code="unreadable",
            )
        if line.startswith("---"):
            break


def compose(text: str, source: str) -> Any:
    """The root node of one YAML document, with marks, tags and nothing constructed; None where there is no node.

    Args:
        text: The document.
        source: What to call it in errors.

    Raises:
        NotYamlError: Broken syntax, several documents, or nested too deep for the parser.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="safe", pure=True)
    yaml.Scanner = _scanner()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an anchor may be used anew; ruamel warns of it on stderr
            return yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if "expected a single document" in (error.context or ""):
            raise _not_yaml("a second document starts here", source, mark, must="one file holds one document") from None
        tab = "'\\t'" in (error.problem or "")
        todo = "YAML indents with spaces, not tabs." if tab else None
        raise _not_yaml(f"not YAML: {error.problem}{_opened(error)}", source, mark, todo=todo) from None
    except YAMLError as error:
        broken = _not_yaml(f"not YAML: {str(error).splitlines()[0]}", source)
        broken.offset = getattr(error, "position", None)  # a character that YAML forbids
        raise broken from None
    except RecursionError:
        said = _too_deep(source)
        broken = NotYamlError(said.what, must=said.must, where=said.where, code=said.code)
        broken.deep = True
        raise broken from None
    except (AssertionError, ValueError, OverflowError) as error:  # %YAML 1.9; \x00, a lone surrogate escape
        raise _not_yaml(f"not YAML: {error}", source) from None


@functools.cache
def _scanner() -> type[Any]:
    """ruamel's scanner, which looks through every open bracket for each token that it is asked about.

    What can still be a key is kept in the order in which it began, so that the first is the oldest, and nothing behind
    one that is not too old is.
    """
    from ruamel.yaml.scanner import Scanner, ScannerError

    class KeysInOrder(Scanner):
        """The same tokens and errors."""

        def stale_possible_simple_keys(self) -> None:
            """Drop what can be no key any more: one ends on its line, within 1024 characters."""
            kept, reader = self.possible_simple_keys, self.reader
            while kept:
                level, key = next(iter(kept.items()))
                if key.line == reader.line and reader.index - key.index <= 1024:
                    return
                if key.required:
                    what = "while scanning a simple key", key.mark, "could not find expected ':'"
                    raise ScannerError(*what, reader.get_mark())
                del kept[level]

        def next_possible_simple_key(self) -> Any:
            """The number of the token that is the oldest of them."""
            return next((key.token_number for key in self.possible_simple_keys.values()), None)

    return KeysInOrder


def _not_yaml(
    what: str, source: str, mark: Any = None, *, must: str | None = None, todo: str | None = None
) -> NotYamlError:
    where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
    broken = NotYamlError(what, must=must, where=where, todo=todo, code="unreadable")
    broken.offset = mark.index if mark else None
    return broken


def _opened(error: Any) -> str:
    """What was being read when the syntax broke: " (while parsing a flow sequence from line 2 on)"."""
    if not error.context:
        return ""
    start = f" from line {error.context_mark.line + 1} on" if error.context_mark else ""
    return f" ({error.context}{start})"


def _twice(path: str, first: int, where: str) -> DsgenError:
    return mistake(
        f"{path} is given twice, first in line {first}",
        must="a key stands once",
        where=where,
        todo="Drop one of the two; most readers would silently keep the last.",
        code="contradiction",
    )


def _too_deep(source: str) -> DsgenError:
    return mistake(
        f"it nests deeper than {DEEPEST} levels",
        must="a config is a few levels deep",
        where=source,
        code="unreadable",
    )


class _Leaves(YamlWalk):
    """The walk that refuses what is wrong, and keeps every leaf with the comment beside it."""

    def __init__(self, text: str, source: str) -> None:
        super().__init__(text, DEEPEST + 1)  # the document itself is a level of the walk
        self.lines = text.splitlines()
        self.source = source
        self.leaves: list[Entry] = []
        self._first: dict[str, int] = {}
        self._lists = 0

    def key(self, node: Any) -> tuple[str, Span]:
        """A key that is a name."""
        return _key(node, f"{self.source}:{node.start_mark.line + 1}"), Span(node.start_mark.index, node.end_mark.index)

    def text_of(self, node: Any, path: str) -> str:
        """A text that every C library below us takes."""
        return as_text(str(node.value))

    def pair(self, path: str, again: bool, nodes: tuple[Any, Any], value: Any) -> None:
        """Refuse a key that stands twice; keep a leaf."""
        key, written = nodes
        line = key.start_mark.line + 1
        if again:
            raise _twice(path, self._first[path], f"{self.source}:{line}")
        self._first[path] = line
        if not self._lists and not (isinstance(value, dict) and value):
            comment = _comment(self.lines, key, written)
            self.leaves.append(Entry(path, value, line, key.start_mark.column + 1, comment))

    def _list(self, node: Any, path: str, depth: int, floor: int | None, span: Span) -> tuple[list[Any], Span]:
        self._lists += 1
        try:
            return super()._list(node, path, depth, floor, span)
        finally:
            self._lists -= 1


def _refusal(error: FaultError, text: str, source: str) -> DsgenError:
    """What ended the walk as the error of a person's file."""
    if error.rule == "too-deep":
        return _too_deep(source)
    if error.rule == "too-large":
        return mistake(
            f"it holds more than {MAX_ENTRIES:,} entries",
            must="a config has a few hundred",
            where=source,
            code="unreadable",
        )
    todo = "Remove the tag; a config never builds objects." if error.tag else None
    return mistake(
        error.message, where=f"{source}:{text.count(chr(10), 0, error.start) + 1}", todo=todo, code="unreadable"
    )


def _key(node: Any, where: str) -> str:
    if node.id != "scalar" or node.tag != f"{CORE}str" or not node.value or node.value.strip(".") != node.value:
        if node.id == "scalar" and node.value == "<<":
            raise mistake(
                "<< merges another map",
                must="only plain maps are read",
                where=where,
                todo="Write the keys out; a profile inherits with extends.",
                code="unreadable",
            )
        shown = repr(node.value) if node.id == "scalar" else f"that is {_kind(node)}"
        raise mistake(f"the key {shown} is not a name", must="a key must be text", where=where, code="unreadable")
    try:
        return as_text(node.value)
    except ValueError:
        raise mistake(
            f"the key {node.value!r} is not a name", must=f"it must be {MUST['str']}", where=where, code="unreadable"
        ) from None


def _comment(lines: list[str], key_node: Any, value_node: Any) -> str | None:
    """The comment beside a key (behind its value, or behind the colon of a list or map), else the one right above."""
    ends = [(value_node.end_mark.line, value_node.end_mark.column)]
    if value_node.start_mark.line != key_node.end_mark.line:
        ends.append((key_node.end_mark.line, key_node.end_mark.column))
    for line, column in ends:
        if line < len(lines):
            match = _COMMENT.search(lines[line][column:].lstrip(":"))
            if match and match[1].strip():
                return str(match[1].strip())
    above = key_node.start_mark.line - 1
    block: list[str] = []
    while above >= 0 and lines[above].lstrip().startswith("#"):
        block.insert(0, lines[above].lstrip().lstrip("#").strip())
        above -= 1
    return " ".join(part for part in block if part) or None


def _kind(node: Any) -> str:
    return {"mapping": "a map", "sequence": "a list", "scalar": "a single value"}[node.id]
