"""JSON and HJSON as DeepSpeed reads them: the same values as hjson 3.1.0, with places, comments and faults."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import own_configs
import pytest
from hjson_cases import PIECES, READ, REFUSED
from hjson_checks import STOPS, agrees_with_hjson, faults, mutants, plain, sound, stopped, typed
from hypothesis import given
from hypothesis import strategies as st

from dsgen.documents.document import Document
from dsgen.documents.hjson.reader import read


def slice_of(document: Document, path: str, on: str = "value") -> str:
    place = document.places[path]
    span = place.key if on == "key" and place.key else place.value
    return document.text[span.start : span.end]


@pytest.mark.parametrize(("text", "value"), READ)
def test_the_value_is_what_hjson_makes_of_it(text: str, value: Any) -> None:
    document = read(text, "x")

    assert not stopped(document)
    if faults(document) != ["duplicate-key"]:
        assert typed(plain(text)) == typed(value)


@pytest.mark.parametrize("text", REFUSED)
def test_what_hjson_refuses_is_a_fault_with_a_place(text: str) -> None:
    document = read(text, "x")

    assert document.config is None
    (fault,) = [fault for name, fault in document.faults if name in STOPS]
    assert fault.span is not None
    assert 0 <= fault.span.start < fault.span.end <= len(text) + 1
    assert fault.message.isprintable()


def test_of_two_equal_keys_the_last_counts() -> None:
    document = read('{"a": {"b": 1, "c": [5]}, "a": {"c": 2}}', "x")

    assert document.config == {"a": {"c": 2}}
    assert sorted(document.places) == ["a", "a.c"]
    assert slice_of(document, "a.c") == "2"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"a": 1e3}', "json"),
        ("[1]", "json"),
        ("5", "json"),
        ('\ufeff{"a": 1}', "json"),
        ('{"a": 1,}', "hjson"),
        ('{"a": 1} // b', "hjson"),
        ("a: 1", "hjson"),
        ('{"a": NaN\n}', "hjson"),  # json reads a float there, hjson a text
        ("", "hjson"),
    ],
)
def test_the_kind_says_whether_pythons_json_reads_the_same(text: str, kind: str) -> None:
    assert read(text, "x").kind == kind


@pytest.mark.parametrize(
    ("text", "path", "key", "value"),
    [
        ('{\n  "a" : 5e8 , "b": 1}', "a", (2, 3, '"a"'), (2, 9, "5e8")),
        ('{"a": "x\\"y", "b": 1}', "a", (1, 2, '"a"'), (1, 7, '"x\\"y"')),
        ('{"a": {"b": [1, {"c": null}]}}', "a.b[1].c", (1, 18, '"c"'), (1, 23, "null")),
        ('{"a": {"b": [1, {"c": null}]}}', "a.b[1]", None, (1, 17, '{"c": null}')),
        ('{"a": {"b": [1, {"c": null}]}}', "a.b", (1, 8, '"b"'), (1, 13, '[1, {"c": null}]')),
        ("a: some text  \nb: 1", "a", (1, 1, "a"), (1, 4, "some text")),
        ("x: 1\n  a  :  true", "a", (2, 3, "a"), (2, 9, "true")),
        ("{\r\n'a': 'b'\r\n}", "a", (2, 1, "'a'"), (2, 6, "'b'")),
        ("{\n\ta:\n\t'''\n\tx\n\t'''}", "a", (2, 2, "a"), (3, 2, "'''\n\tx\n\t'''")),
        ('\ufeff{"a": 1}', "a", (1, 2, '"a"'), (1, 7, "1")),
        ('{"é😀": 1, "a": 2}', "a", (1, 11, '"a"'), (1, 16, "2")),
        ('{/*x*/"a"/*y*/:/*z*/1/*w*/}', "a", (1, 7, '"a"'), (1, 21, "1")),
    ],
)
def test_a_place_is_the_key_and_the_value_as_written(
    text: str, path: str, key: tuple[int, int, str] | None, value: tuple[int, int, str]
) -> None:
    document = read(text, "x")
    place = document.places[path]

    assert (*document.position(place.value.start), slice_of(document, path)) == value
    assert (place.key is None) == (key is None)
    if place.key is not None:
        assert (*document.position(place.key.start), slice_of(document, path, "key")) == key


def test_every_comment_has_a_place() -> None:
    text = '// top\n{"a": "# none", # one\n/* two\nlines */ "b": http://x # text\n} // end'
    document = read(text, "x")

    assert [text[span.start : span.end] for span in document.comments] == [
        "// top",
        "# one",
        "/* two\nlines */",
        "// end",
    ]


GAPS = st.text(alphabet=" \t\n\r", max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


def spaced(value: Any, gap: Any) -> str:
    """A value as JSON with any white space that JSON allows."""
    if isinstance(value, dict):
        entries = (f"{gap()}{json.dumps(name)}{gap()}:{spaced(inner, gap)}" for name, inner in value.items())
        return f"{gap()}{{{','.join(entries) or gap()}}}{gap()}"
    if isinstance(value, list):
        return f"{gap()}[{','.join(spaced(inner, gap) for inner in value) or gap()}]{gap()}"
    return f"{gap()}{json.dumps(value, ensure_ascii=len(repr(value)) % 2 == 0)}{gap()}"


def found(value: Any, path: str = "") -> Iterator[tuple[str, str | None, Any]]:
    """Path, key and value of everything inside a value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            here = f"{path}.{name}" if path else name
            yield here, name, inner
            yield from found(inner, here)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield f"{path}[{index}]", None, inner
            yield from found(inner, f"{path}[{index}]")


@given(value=VALUES, data=st.data())
def test_json_is_read_as_json_and_each_place_holds_what_it_says(value: Any, data: st.DataObject) -> None:
    text = spaced(value, lambda: data.draw(GAPS))
    document = read(text, "x")

    assert document.config == value
    assert document.kind == "json"
    told = list(found(value))
    for path, name, inner in told:
        if sum(other == path for other, *_ in told) > 1:
            continue  # a name with a dot in it meets a path
        assert json.loads(slice_of(document, path)) == inner
        if name is not None:
            assert json.loads(slice_of(document, path, "key")) == name


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_no_text_raises(text: str) -> None:
    sound(read(text, "x"), text)


def test_no_broken_config_raises() -> None:
    for text in mutants(list(own_configs.texts().values()), seed=3, rounds=500):
        sound(read(text, "x"), text)


def test_our_own_configs_read_as_python_reads_them() -> None:
    """Strict JSON where Python's json takes it; of the others, only those that were written to be broken stop."""
    for name, text in own_configs.texts().items():
        document = read(text, name)
        assert (document.kind == "json") == own_configs.strict(text), name
        assert stopped(document) == (name in own_configs.BROKEN), name


@pytest.mark.proof
def test_hjson_itself_agrees() -> None:
    pieces = random.Random(5)
    strange = ("".join(pieces.choices(PIECES, k=pieces.randint(1, 20))) for _ in range(20_000))
    tables = [text for text, _ in READ] + list(REFUSED)

    own = list(own_configs.texts().values())
    for text in (*tables, *own, *mutants(own, seed=4, rounds=2_000), *strange):
        agrees_with_hjson(text)
