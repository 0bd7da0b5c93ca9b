"""YAML text to leaves with line, column and the comment beside each key; plain types only, nothing coerced.

The only module that imports ruamel. It composes nodes and never constructs objects, so a tag can build nothing.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from dsgen.documents.yaml.scalars import CORE, MUST, SCALARS, as_text
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.layers import DEEPEST

__all__ = ["Entry", "NotYamlError", "compose", "entries", "read_text"]

MAX_BYTES = 1_000_000  # 1 MB: twenty times the largest hand-written profile; a data file named by mistake stops here
MAX_ENTRIES = 10_000  # leaves of one file, aliases expanded: stops a "billion laughs"

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
    found: dict[str, Entry] = {}
    for entry in _Walk(text.splitlines(), source).leaves(root, "", 1):
        if entry.path in found:  # once as a: {b: 1} and once as a.b: 1
            raise _twice(entry.path, found[entry.path].line, f"{source}:{entry.line}")
        found[entry.path] = entry
    return tuple(found.values())


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


class _Walk:
    """One pass over a composed document; counts what it expands, so that aliases cannot multiply without end."""

    def __init__(self, lines: list[str], source: str) -> None:
        self.lines = lines
        self.source = source
        self.expanded = 0

    def leaves(self, node: Any, prefix: str, depth: int) -> Iterator[Entry]:
        seen: dict[str, int] = {}
        self._refuse_tag(node, "map", f"{self.source}:{node.start_mark.line + 1}", prefix.rstrip(".") or "the document")
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            where = f"{self.source}:{line}"
            self._count(depth)
            key = _key(key_node, where)
            if key in seen:
                raise _twice(f"{prefix}{key}", seen[key], where)
            seen[key] = line
            path = f"{prefix}{key}"
            if value_node.id == "mapping" and value_node.value:
                yield from self.leaves(value_node, f"{path}.", depth + 1)
            else:
                comment = _comment(self.lines, key_node, value_node)
                value = self._plain(value_node, where, path, depth)
                yield Entry(path, value, line, key_node.start_mark.column + 1, comment)

    def _count(self, depth: int) -> None:
        self.expanded += 1
        if depth > DEEPEST:
            raise _too_deep(self.source)
        if self.expanded > MAX_ENTRIES:
            raise mistake(
                f"it holds more than {MAX_ENTRIES:,} entries",
                must="a config has a few hundred",
                where=self.source,
                code="unreadable",
            )

    def _refuse_tag(self, node: Any, kind: str, where: str, path: str) -> None:
        if node.tag != f"{CORE}{kind}":
            raise mistake(
                f"{path} carries the tag {node.tag.replace(CORE, '!!')}",
                must="only plain values are read",
                where=where,
                todo="Remove the tag; a config never builds objects.",
                code="unreadable",
            )

    def _plain(self, node: Any, where: str, path: str, depth: int) -> Any:
        """A node as a plain value: str, int, float, bool, None, list, or a map inside a list."""
        self._count(depth)
        if node.id == "mapping":
            self._refuse_tag(node, "map", where, path)
            plain: dict[str, Any] = {}
            for key_node, value in node.value:
                key = _key(key_node, where)
                if key in plain:
                    raise _twice(f"{path}.{key}", node.start_mark.line + 1, where)
                plain[key] = self._plain(value, where, path, depth + 1)
            return plain
        if node.id == "sequence":
            self._refuse_tag(node, "seq", where, path)
            return [self._plain(item, where, path, depth + 1) for item in node.value]
        kind = node.tag.removeprefix(CORE)
        read = SCALARS.get(kind)
        if read is None:
            self._refuse_tag(node, "str", where, path)
        try:
            return read(str(node.value)) if read else None
        except (ValueError, KeyError):
            shown = repr(str(node.value)[:60])
            raise mistake(
                f"{path} is {shown}", must=f"it must be {MUST[kind]}", where=where, code="unreadable"
            ) from None


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
