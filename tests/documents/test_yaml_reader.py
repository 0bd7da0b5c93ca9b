"""YAML to leaves: lines, columns, comments, plain types only, and no surprise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsgen.documents.yaml.reader import MAX_BYTES, MAX_ENTRIES, entries, read_text
from dsgen.shapes.errors import DsgenError


def read(text: str) -> dict[str, Any]:
    return {entry.path: entry.value for entry in entries(text, "x.yaml")}


def error_of(text: str) -> str:
    with pytest.raises(DsgenError) as caught:
        entries(text, "x.yaml")
    return str(caught.value)


def test_leaves_have_lines_columns_and_comments() -> None:
    text = "# the file\n\ntraining:\n  # above\n  lr: 1e-5\n  seq_len: 8192  # beside\n  lora_targets: [q, v] # list\n"

    assert [(e.path, e.value, e.line, e.column, e.comment) for e in entries(text, "x.yaml")] == [
        ("training.lr", 1e-5, 5, 3, "above"),
        ("training.seq_len", 8192, 6, 3, "beside"),
        ("training.lora_targets", ["q", "v"], 7, 3, "list"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a:  # why\n  - 1\n  - 2\n",
        "a: [1,\n    2]  # why\n",
        "a:\n  [1, 2]  # why\n",
        "# why\na: [1, 2]\n",
        "a: # why\n  [1, 2]\n",
        "# wh\n# y\na: [1, 2]\n",
    ],
)
def test_the_comment_of_a_list_is_found_where_people_write_it(text: str) -> None:
    (found,) = entries(text, "x.yaml")

    assert (found.value, (found.comment or "").replace(" ", "")) == ([1, 2], "why")


@pytest.mark.parametrize("text", ["a: 'x # y'\n", 'a: "x # y"\n', "a: x#y\n"])
def test_a_hash_inside_a_value_is_no_comment(text: str) -> None:
    (found,) = entries(text, "x.yaml")

    assert "#" in found.value
    assert found.comment is None


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("0x10", 16),
        ("0o17", 15),
        ("1_000", 1000),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".inf", float("inf")),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("40 GiB", "40 GiB"),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("{}", {}),
        ("[]", []),
        ("[{a: 1}]", [{"a": 1}]),
        ("|\n  text\n", "text\n"),
        ("010", 10),
    ],
)
def test_a_value_has_the_type_of_yaml_1_2_and_no_other(written: str, value: object) -> None:
    found = read(f"a: {written}")["a"]

    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_any_line_ending_counts_lines(newline: str) -> None:
    text = newline.join(["a: 1 # x", "b:", "  c: 2 # y", ""])

    assert [(e.path, e.line, e.comment) for e in entries(text, "f")] == [("a", 1, "x"), ("b.c", 3, "y")]


def test_anchors_are_read_and_aliases_expanded() -> None:
    assert read("a: &x {b: 1}\nc: *x\n") == {"a.b": 1, "c.b": 1}


def test_json_is_yaml() -> None:
    assert read('{"a": {"b": [1, "x\\u00e9"]}, "c": null}') == {"a.b": [1, "xé"], "c": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.yaml: it is empty; it must hold a map, such as training: {seq_len: 8192}"),
        ("# only a comment\n", "x.yaml: it is empty; it must hold a map, such as training: {seq_len: 8192}"),
        ("{}\n", "x.yaml: it is empty; it must hold a map, such as training: {seq_len: 8192}"),
        ("- 1\n", "x.yaml: the top level is a list; it must be a map of sections"),
        ("42\n", "x.yaml: the top level is a single value; it must be a map of sections"),
        (
            "a: 1\nb: 1\na: 2\n",
            "x.yaml:3: a is given twice, first in line 1; a key stands once\n"
            "  Drop one of the two; most readers would silently keep the last.",
        ),
        (
            "t:\n  a: 1\n'b': 1\nt.a: 2\n",
            "x.yaml:4: t.a is given twice, first in line 2; a key stands once\n"
            "  Drop one of the two; most readers would silently keep the last.",
        ),
        (
            "t: [{a: 1, a: 2}]\n",
            "x.yaml:1: t[0].a is given twice, first in line 1; a key stands once\n"
            "  Drop one of the two; most readers would silently keep the last.",
        ),
        (
            "a: [1,\nb: 2\n",
            "x.yaml:3:1: not YAML: expected ',' or ']', but got '<stream end>' "
            "(while parsing a flow sequence from line 1 on)",
        ),
        (
            "a:\n\tb: 1\n",
            "x.yaml:2:1: not YAML: found character '\\t' that cannot start any token "
            "(while scanning for the next token)\n  YAML indents with spaces, not tabs.",
        ),
        ("a: 1\n---\nb: 1\n", "x.yaml:2:1: a second document starts here; one file holds one document"),
        (
            "a: !!python/object/apply:os.system ['true']\n",
            "x.yaml:1: a carries the tag !!python/object/apply:os.system; only plain values are read\n"
            "  Remove the tag; a config never builds objects.",
        ),
        (
            "a: !thing {b: 1}\n",
            "x.yaml:1: a carries the tag !thing; only plain values are read\n"
            "  Remove the tag; a config never builds objects.",
        ),
        (
            "a: !!set {b}\n",
            "x.yaml:1: a carries the tag !!set; only plain values are read\n"
            "  Remove the tag; a config never builds objects.",
        ),
        (
            "%YAML 1.1\n---\na: yes\n",
            "x.yaml:1: it is written in YAML 1.1; only YAML 1.2 is read: in 1.1 no is false "
            "and 010 is 8\n  Drop the line %YAML.",
        ),
        (
            "a: {<<: {b: 1}}\n",
            "x.yaml:1: << merges another map; only plain maps are read\n"
            "  Write the keys out; a profile inherits with extends.",
        ),
        ("1: 2\n", "x.yaml:1: the key '1' is not a name; a key must be text"),
        ("true: 2\n", "x.yaml:1: the key 'true' is not a name; a key must be text"),
        ("? [a]\n: 2\n", "x.yaml:1: the key that is a list is not a name; a key must be text"),
        ('"": 2\n', "x.yaml:1: the key '' is not a name; a key must be text"),
        ('".a": 2\n', "x.yaml:1: the key '.a' is not a name; a key must be text"),
        ('a: "\\ud800"\n', "x.yaml:1: a is '\\ud800'; it must be text that UTF-8 can hold, without a null character"),
        ('a: "\\0"\n', "x.yaml:1: a is '\\x00'; it must be text that UTF-8 can hold, without a null character"),
        (
            '"\\ud800": 1\n',
            "x.yaml:1: the key '\\ud800' is not a name; it must be text that UTF-8 can hold, without a null character",
        ),
        ("a: " + "9" * 5000, "x.yaml:1: a is '" + "9" * 60 + "'; it must be a whole number of at most 4,300 digits"),
        ("a: !!bool maybe\n", "x.yaml:1: a is 'maybe'; it must be true or false"),
        ("a: !!int x\n", "x.yaml:1: a is 'x'; it must be a whole number of at most 4,300 digits"),
        ("a: &x [*x]\n", "x.yaml: it nests deeper than 40 levels; a config is a few levels deep"),
        ("a: &x {b: *x}\n", "x.yaml: it nests deeper than 40 levels; a config is a few levels deep"),
        ("a: " + "[" * 3000 + "]" * 3000, "x.yaml: it nests deeper than 40 levels; a config is a few levels deep"),
        ("{a: " * 3000 + "1" + "}" * 3000, "x.yaml: it nests deeper than 40 levels; a config is a few levels deep"),
        (
            "\n".join(f"k{n}: 1" for n in range(MAX_ENTRIES)),
            "x.yaml: it holds more than 10,000 entries; a config has a few hundred",
        ),
        (
            "a: &a [1,1,1,1,1,1,1,1,1]\n"
            + "".join(
                f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdef", "bcdefg", strict=True)
            ),
            "x.yaml: it holds more than 10,000 entries; a config has a few hundred",
        ),
        ("a: \x07\n", "x.yaml: not YAML: unacceptable character #x0007: special characters are not allowed"),
        ("*x : 1\n", "x.yaml:1:1: not YAML: found undefined alias 'x'"),
    ],
)
def test_what_is_refused_says_where_and_why(text: str, message: str) -> None:
    assert error_of(text) == message


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\xff", "byte 0 is not UTF-8; it must be UTF-8 text\n  Save it again as UTF-8."),
        ("a: 1".encode("utf-16"), "byte 0 is not UTF-8; it must be UTF-8 text\n  Save it again as UTF-8."),
        (
            b"#" * (MAX_BYTES + 1),
            "it has 1,000,001 bytes; at most 1,000,000 are read\n"
            "  A profile or override file is a few kilobytes; was another file meant?",
        ),
    ],
)
def test_a_file_that_is_no_text(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)

    with pytest.raises(DsgenError) as caught:
        read_text(path)

    assert str(caught.value) == f"{path}: {what}"


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")

    assert read(read_text(path)) == {"a": 1}
