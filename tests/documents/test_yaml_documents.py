"""YAML with places: values, aliases, comments and faults."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgen.documents.document import Document
from dsgen.documents.hjson.reader import MAX_DEPTH
from dsgen.documents.yaml.documents import MAX_CHARACTERS, read

SAMPLE = """\
# top
deepspeed:  # where it begins
  zero_optimization: {stage: 3, 'device': "cpu"}  # flow
  note: |
    text # of the note
    more
  betas:
    - 0.9
    - &b 0.999
  empty:
  again: *b
"""


def written(document: Document, path: str, on: str = "value") -> str:
    place = document.places[path]
    span = place.key if on == "key" and place.key else place.value
    return document.text[span.start : span.end]


def test_values_are_those_of_the_core_schema() -> None:
    document = read(SAMPLE, "x.yaml")

    assert document.kind == "yaml"
    assert document.faults == ()
    assert document.config == {
        "deepspeed": {
            "zero_optimization": {"stage": 3, "device": "cpu"},
            "note": "text # of the note\nmore\n",
            "betas": [0.9, 0.999],
            "empty": None,
            "again": 0.999,
        }
    }


@pytest.mark.parametrize(
    ("path", "key", "value", "position"),
    [
        ("deepspeed.zero_optimization", "zero_optimization", """{stage: 3, 'device': "cpu"}""", (3, 3)),
        ("deepspeed.zero_optimization.stage", "stage", "3", (3, 23)),
        ("deepspeed.zero_optimization.device", "'device'", '"cpu"', (3, 33)),
        ("deepspeed.note", "note", "|\n    text # of the note\n    more", (4, 3)),
        ("deepspeed.betas", "betas", "- 0.9\n    - &b 0.999", (7, 3)),
        ("deepspeed.empty", "empty", "", (10, 3)),
        ("deepspeed.again", "again", "*b", (11, 3)),
    ],
)
def test_a_place_is_the_key_and_the_value_as_written(
    path: str, key: str, value: str, position: tuple[int, int]
) -> None:
    document = read(SAMPLE, "x.yaml")

    assert (written(document, path, "key"), written(document, path)) == (key, value)
    assert document.position(document.span(path).start) == position


@pytest.mark.parametrize("number", ["f" * 3600, "f" * 5000, "0" * 10 + "f" * 4000])
def test_a_number_that_no_message_could_name_is_a_fault(number: str) -> None:
    document = read(f"train_batch_size: 0x{number}\n", "x.yaml")

    [(rule, fault)] = document.faults
    assert (rule, document.config) == ("number-too-large", None)
    assert "a whole number of at most 4,300 digits" in fault.message


@pytest.mark.parametrize("version", ["1.9", "1.22", "3.0"])
def test_a_version_of_yaml_that_is_none_is_a_fault(version: str) -> None:
    document = read(f"%YAML {version}\n---\na: 1\n", "x.yaml")

    assert [rule for rule, _ in document.faults] == ["broken-syntax"]


def test_items_of_a_list_have_places() -> None:
    document = read(SAMPLE, "x.yaml")

    assert [written(document, f"deepspeed.betas[{index}]") for index in (0, 1)] == ["0.9", "0.999"]


def test_comments_have_places() -> None:
    document = read(SAMPLE, "x.yaml")

    assert [document.text[span.start : span.end] for span in document.comments] == [
        "# top",
        "# where it begins",
        "# flow",
    ]


@pytest.mark.parametrize("text", ["a: 'x # y'", 'a: "x # y"', "a: x#y", "a: >-\n  x\n  # y\n"])
def test_a_hash_inside_a_value_is_no_comment(text: str) -> None:
    assert read(text, "x").comments == ()


def test_an_alias_brings_values_and_no_places() -> None:
    document = read("a: &x {b: 1, c: [2]}\nd: *x\ne: [*x, 3]\nf:\n  <<: *x\n  b: 5\n", "x")
    first = {"b": 1, "c": [2]}

    assert document.config == {"a": first, "d": first, "e": [first, 3], "f": {"b": 5, "c": [2]}}
    assert {path for path in document.places if path.startswith(("d.", "e[0].", "f.c"))} == set()
    assert [written(document, path) for path in ("d", "e[0]", "e[1]", "f.b")] == ["*x", "*x", "3", "5"]


def test_merged_maps_lose_to_what_is_written_and_to_earlier_ones() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {x: 2, z: 2}\nc:\n  x: 3\n  <<: [*a, *b]\nd: {<<: [*a, *b]}\n"
    document = read(text, "x")

    assert document.config["c"] == {"x": 3, "y": 1, "z": 2}
    assert document.config["d"] == {"x": 1, "y": 1, "z": 2}


@pytest.mark.parametrize(
    ("text", "rule", "line", "column", "words"),
    [
        ("", "empty-file", 1, 1, "nothing"),
        ("# only\n---\n", "empty-file", 1, 1, "nothing"),
        ("\n- 1\n", "not-a-map", 2, 1, "a list"),
        ("text", "not-a-map", 1, 1, "a single value"),
        ("a: 1\nb: 2\na: 3\n", "duplicate-key", 3, 1, "first in line 1, again in line 3"),
        ("a: [1,\nb: 2", "broken-syntax", 2, 4, "flow sequence"),
        ("a: 1\n\tb: 1\n", "broken-syntax", 2, 1, "cannot start any token"),
        ("a: 1\n---\nb: 2\n", "broken-syntax", 2, 1, "second document"),
        ("a: *nobody\n", "broken-syntax", 1, 4, "undefined alias"),
        ("a: !!python/object:os.system x\n", "broken-syntax", 1, 4, "only plain values"),
        ("? [1]\n: 2\n", "broken-syntax", 1, 3, "where a key must"),
        ("a: x\0\n", "broken-syntax", 1, 5, "#x0000"),
        ("a: !!bool x\n", "broken-syntax", 1, 11, "true or false"),
        ("a: " + "7" * 5000, "number-too-large", 1, 4, "4,300 digits"),
        ("- " * 10_000, "too-deep", 1, 1, "levels"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "too-deep", 1, 101, "levels"),
        ("a: &a [*a]\n", "too-deep", 1, 4, "levels"),
        ("a: " + "x" * MAX_CHARACTERS, "too-large", 1, 1, "characters"),
    ],
)
def test_what_is_wrong_has_a_rule_a_place_and_a_cause(text: str, rule: str, line: int, column: int, words: str) -> None:
    document = read(text, "x")
    ((name, fault),) = document.faults

    assert name == rule
    assert fault.span is not None
    assert document.position(fault.span.start) == (line, column)
    assert words in fault.message


def test_aliases_cannot_multiply_without_end() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 9)]

    assert [name for name, _ in read("\n".join(lines), "x").faults] == ["too-large"]


def test_a_mark_and_windows_line_ends_shift_no_place() -> None:
    document = read("\ufeffa: 1\r\nb:\r\n  c: 2\r\n", "x")

    assert document.config == {"a": 1, "b": {"c": 2}}
    assert document.position(document.span("b.c").start) == (3, 3)
    assert written(document, "b") == "c: 2"


def test_special_numbers_and_dates_do_not_raise() -> None:
    document = read("a: .nan\nb: -.inf\nc: 2020-01-01\nd: 0x10\ne: 1e3\n1: x\ntrue: y\n", "x")

    assert math.isnan(document.config.pop("a"))
    assert document.config == {"b": -math.inf, "c": "2020-01-01", "d": 16, "e": 1000.0, "1": "x", "true": "y"}


PIECES = (
    "a: ",
    "- ",
    "\n",
    "  ",
    "[",
    "]",
    "{",
    "}",
    "&x ",
    "*x",
    "<<: ",
    "'",
    '"',
    "# c",
    "|",
    ">",
    "!!int ",
    "1",
    "? ",
    "---",
)


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_no_text_raises(text: str) -> None:
    document = read(text, "x")

    assert document.config is not None or document.faults
    for place in document.places.values():
        assert 0 <= place.value.start <= place.value.end <= len(document.text)


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers() | st.booleans() | st.none() | st.sampled_from(("x", "y z")))
)
def test_a_flat_map_is_read_back(value: dict[str, Any]) -> None:
    lines = (f"{name}: {'null' if inner is None else str(inner).lower()}\n" for name, inner in value.items())
    document = read("".join(lines), "x")

    assert (document.config or {}) == value
    for name in value:
        assert written(document, name, "key") == name
