"""The law of the editor for any layout: the text reads as the edited config, and what is not touched stays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsgen.documents import editor
from dsgen.documents.document import Document
from dsgen.documents.editor import apply_to_config
from dsgen.documents.hjson import reader
from dsgen.documents.yaml import documents as yaml_documents
from dsgen.shapes.findings import Assign, Edit, Move, Remove

Read = Callable[[str, str], Document]
Draw = Callable[[st.SearchStrategy[Any]], Any]

LAW = settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)

KEYS = ("a", "b", "stage", "fp16", "x.y", "c d", "it's", "é")
WORDS = ("auto", "cpu", "", "a b", "it's", 'q"q', "# no", "x // y", "true", "1e5", "é\n", "{}")
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10**12), st.sampled_from([0.5, 1e-8, 5e8, -2.5]), st.sampled_from(WORDS)
)
CONFIGS: st.SearchStrategy[Any] = st.dictionaries(
    st.sampled_from(KEYS),
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


class Writer:
    """Writes a config in a layout that is drawn; numbers the comments."""

    def __init__(self, draw: Draw, kind: str) -> None:
        self.draw = draw
        self.kind = kind
        self.unit = draw(st.sampled_from(["  ", "    "] if kind == "yaml" else ["  ", "    ", "\t"]))
        self.commas = kind != "hjson" or draw(st.booleans())
        self.colon = ": " if kind == "yaml" else draw(st.sampled_from([": ", ":", " : "]))
        self.comments = 0

    def maybe(self, chance: int = 2) -> bool:
        return bool(self.draw(st.integers(0, chance)) == chance)

    def note(self, inline: bool) -> str:
        if self.kind == "json" or not self.maybe(3):
            return ""
        self.comments += 1
        if self.kind == "yaml":
            return "" if inline else f"# c{self.comments}"
        if inline:
            return f"/* c{self.comments} */"
        return f"{self.draw(st.sampled_from(['//', '#', '/*']))} c{self.comments}".replace(
            f"/* c{self.comments}", f"/* c{self.comments} */"
        )

    def key(self, name: str) -> str:
        plain = name.isascii() and name.replace(".", "").isalnum()
        if self.kind != "json" and plain and self.maybe():
            return name
        return self.quoted(name) if self.kind == "json" or self.maybe() else self.single(name)

    def quoted(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=False)

    def single(self, text: str) -> str:
        if "\n" in text:
            return self.quoted(text)
        return f"'{text.replace(chr(39), chr(39) * 2 if self.kind == 'yaml' else chr(92) + chr(39))}'"

    def scalar(self, value: Any) -> str:
        if isinstance(value, str) and self.kind != "json":
            return self.single(value) if self.maybe() else self.quoted(value)
        return json.dumps(value, ensure_ascii=False)

    def pad(self) -> str:
        return self.draw(st.sampled_from(["", " "]))  # type: ignore[no-any-return]

    def inline(self, value: Any) -> str:
        if not isinstance(value, (dict, list)):
            return self.scalar(value)
        items = [
            *(
                [self.key(key) + self.colon + self.inline(value[key]) for key in value]
                if isinstance(value, dict)
                else ()
            ),
            *([self.inline(item) for item in value] if isinstance(value, list) else ()),
        ]
        pad = self.pad()
        said = ""
        for index, item in enumerate(items):
            last = index == len(items) - 1
            comma = "" if last and not (self.kind == "hjson" and self.maybe(4)) else ", "
            said += self.around(item) + comma
        left, right = "{}" if isinstance(value, dict) else "[]"
        return left + pad + said + pad + right

    def around(self, item: str) -> str:
        note = self.note(inline=True)
        return f"{item} {note}" if note else item

    def lined(self, value: Any, indent: str, braces: bool = True) -> str:
        """A map or list over several lines; `indent` is that of its closing brace."""
        inner = indent + self.unit if braces else indent
        lines = []
        for index, key in enumerate(value):
            if note := self.note(inline=False):
                lines.append(inner + note)
            item = value[key] if isinstance(value, dict) else key
            head = self.key(key) + self.colon if isinstance(value, dict) else ""
            bare = self.kind == "hjson" and isinstance(item, str) and item in WORDS[:2] and self.maybe()
            said = head + (item if bare else self.value(item, inner))
            last = index == len(value) - 1
            comma = self.commas and not bare and (not last or (self.kind == "hjson" and self.maybe(3)))
            note = "" if bare else self.note(inline=False)
            gap = self.draw(st.sampled_from([" ", "  "])) if note else ""
            lines.append(f"{inner}{said}{',' if comma else ''}{gap}{note}")
            if self.maybe(5):
                lines.append("")
        if note := self.note(inline=False):
            lines.append(inner + note)
        if not braces:
            return "\n".join(lines)
        left, right = "{}" if isinstance(value, dict) else "[]"
        return "\n".join([left, *lines, indent + right])

    def value(self, value: Any, indent: str) -> str:
        if isinstance(value, (dict, list)) and self.maybe(1):
            return self.lined(value, indent)
        return self.inline(value)

    def block(self, value: Any, indent: str) -> list[str]:
        """The lines of a YAML map or list."""
        lines = []
        for key in value:
            if note := self.note(inline=False):
                lines.append(indent + note)
            item = value[key] if isinstance(value, dict) else key
            head = f"{indent}{self.key(key)}:" if isinstance(value, dict) else f"{indent}-"
            note = self.note(inline=False)
            if item and isinstance(item, (dict, list)) and self.maybe(1):
                if isinstance(value, list):
                    first, *others = self.block(item, indent + "  ")
                    plain = "#" not in first.split("'")[0][: len(indent) + 4]
                    lines += [head + " " + first[len(indent) + 2 :], *others] if plain else [head, first, *others]
                else:
                    lines += [f"{head} {note}".rstrip(), *self.block(item, indent + self.unit)]
            else:
                lines.append(f"{head} {self.inline(item)} {note}".rstrip())
        return lines

    def file(self, config: dict[str, Any]) -> str:
        if self.kind == "yaml" and config and self.maybe(1):
            text = "\n".join(self.block(config, ""))
        elif self.kind == "hjson" and config and self.maybe(3):
            text = self.lined(config, "", braces=False)
        else:
            text = self.value(config, "") if self.kind != "yaml" else self.inline(config)
        text += "\n" if self.maybe(1) else ""
        return text.replace("\n", "\r\n") if self.maybe(4) else text


@st.composite
def cases(draw: Draw, kind: str) -> tuple[Document, Edit]:
    """A document, and an edit of something that is or might be in it."""
    text = Writer(draw, kind).file(draw(CONFIGS))
    document = (yaml_documents if kind == "yaml" else reader).read(text, "ds.json")
    there = sorted(document.places)
    new = st.builds(
        lambda around, name: f"{around}.{name}".removeprefix("."),
        st.sampled_from(["", *there]),
        st.sampled_from([*KEYS, "new", "new.er"]),
    )
    path = draw(st.sampled_from(there) if there and draw(st.integers(0, 3)) else new)
    value = st.one_of(SCALARS, CONFIGS, st.lists(SCALARS, max_size=2))
    edit = draw(
        st.one_of(
            st.builds(Assign, st.just(path), value),
            st.builds(Remove, st.just(path)),
            st.builds(Move, st.just(path), new),
            st.builds(Move, st.just(path), new),
        )
    )
    return document, edit


def kept_by_comments(document: Document, path: str) -> set[str]:
    """The sections around a path in which a comment stands that is in no line of what is at the path."""
    place = document.places[path]
    first = document.position((place.key or place.value).start)[0]
    last = document.position(max(place.value.end - 1, 0))[0]
    lines = [
        (span, range(document.position(span.start)[0], document.position(span.end)[0] + 1))
        for span in document.comments
    ]
    others = [span for span, at in lines if not set(at) & set(range(first, last + 1))]
    return {
        around
        for around, found in document.places.items()
        if any((found.key or found.value).start <= span.start < found.value.end for span in others)
    }


def notes(text: str) -> list[str]:
    """The comments of a text that `Writer` numbered; no value of it looks like one."""
    return re.findall(r"\bc\d+\b", text)


def lines_of(document: Document, path: str) -> range:
    place = document.places[path]
    last = max(place.value.end - 1, place.value.start)
    return range(document.position((place.key or place.value).start)[0], document.position(last)[0] + 1)


def holds_the_law(document: Document, edit: Edit, read: Read) -> bool:
    """Check the law of one edit; whether it could be done."""
    config = document.config
    try:
        expected = [apply_to_config(config, [edit])]
        if isinstance(edit, Move) and document.comments:
            expected.append(apply_to_config(config, [edit], kept=kept_by_comments(document, edit.path)))
    except ValueError:
        with pytest.raises(ValueError, match=r"\w"):
            editor.apply(document, [edit])
        return False
    text = editor.apply(document, [edit])
    new = read(text, "ds.json")

    assert json.dumps(read_back(new.config)) in [json.dumps(read_back(one)) for one in expected]
    if not isinstance(edit, Move):
        others_stay(document, new, edit.path)
    touched = set(lines_of(document, edit.path)) if edit.path in document.places else set()
    if isinstance(edit, Assign):
        there = document.places.get(edit.path)
        gone = [
            at for at in document.comments if there and (there.key or there.value).start <= at.start < there.value.end
        ]
    else:
        gone = [at for at in document.comments if document.position(at.start)[0] in touched]
    stay = [note for at in document.comments if at not in gone for note in notes(document.text[at.start : at.end])]
    assert set(stay) <= set(notes(text)), "a comment is lost"
    assert len(notes(text)) == len(set(notes(text))) <= len(document.comments), "a comment came"
    assert text.endswith("\n") == document.text.endswith("\n") or not config or new.config == {}
    assert ("\r\n" in text) <= ("\r\n" in document.text)
    return True


def others_stay(document: Document, new: Document, path: str) -> None:
    """Check that all outside of the section around a path is byte for byte the same, and so are the other entries."""
    around = path.rpartition("[" if path.endswith("]") else ".")[0]
    while around and around not in document.places:
        around = around.rpartition("[" if around.endswith("]") else ".")[0]
    if around:
        section = document.places[around]
        end = document.text.find("\n", section.value.end) if document.kind == "yaml" else section.value.end
        assert new.text.startswith(document.text[: (section.key or section.value).start])
        assert end < 0 or new.text.endswith(document.text[end:])
    for other, place in document.places.items():
        is_around = path == other or path.startswith((f"{other}.", f"{other}["))
        if "[" not in other and not is_around and not other.startswith(f"{path}."):
            there = new.places[other]
            was = document.text[(place.key or place.value).start : place.value.end]
            assert new.text[(there.key or there.value).start : there.value.end] == was


def read_back(value: Any) -> Any:
    """A value as HJSON reads what Python writes: a whole float is an int."""
    if isinstance(value, dict):
        return {key: read_back(item) for key, item in value.items()}
    if isinstance(value, list):
        return [read_back(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.mark.parametrize("kind", ["json", "hjson", "yaml"])
def test_the_text_reads_as_the_edited_config(kind: str) -> None:
    read = yaml_documents.read if kind == "yaml" else reader.read
    done = []

    @LAW
    @given(cases(kind))
    def law(case: tuple[Document, Edit]) -> None:
        done.append(holds_the_law(*case, read))

    law()
    assert done.count(True) > len(done) / 3, "too few edits could be done to say anything"
