"""Edits in a text: it then reads as the edited config, and comments, order and layout stay."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from dsgen.documents import editor
from dsgen.documents.document import Document
from dsgen.documents.editor import apply_to_config
from dsgen.documents.hjson import reader
from dsgen.documents.yaml import documents as yaml_documents
from dsgen.shapes.findings import Assign, Edit, Move, Remove

Read = Callable[[str, str], Document]


def edited(text: str, *edits: Edit, read: Read = reader.read) -> str:
    return editor.apply(read(text, "ds.json"), edits)


def in_yaml(text: str, *edits: Edit) -> str:
    return edited(text, *edits, read=yaml_documents.read)


COMMENTED = """{
    "train_batch_size": 8, // of all ranks
    /* mixed precision */
    "fp16": { "enabled": true },  # half
    "zero": {
        "stage": 2,  // two
        "cpu_offload": true // off
    },
    "betas": [0.9, 0.95],
    "none": {}
}
"""


# One entry becomes another value: nothing around it moves.


def test_a_value_is_replaced_in_place() -> None:
    assert edited(COMMENTED, Assign("zero.stage", 3)) == COMMENTED.replace('"stage": 2', '"stage": 3')


def test_an_equal_value_stays_as_it_is_written() -> None:
    assert edited('{"a": 5e8, "b": 1.0}', Assign("a", 500000000), Assign("b", 1)) == '{"a": 5e8, "b": 1.0}'


def test_true_is_no_one() -> None:
    assert edited('{"a": 1}', Assign("a", True)) == '{"a": true}'


def test_an_item_of_a_list_is_replaced() -> None:
    assert edited(COMMENTED, Assign("betas[1]", 0.999)) == COMMENTED.replace("0.95", "0.999")


def test_a_text_keeps_its_quotes() -> None:
    text = "{\n  a: auto\n  b: 'auto', c: \"auto\"\n}"

    new = edited(text, Assign("a", "cpu"), Assign("b", "it's"), Assign("c", "cpu"))

    assert new == "{\n  a: cpu\n  b: 'it\\'s', c: \"cpu\"\n}"


def test_a_text_that_would_read_as_something_else_gets_quotes() -> None:
    assert edited("a: auto", Assign("a", "true")) == 'a: "true"'
    assert edited("a: auto", Assign("a", "1")) == 'a: "1"'


def test_a_section_in_one_line_is_replaced_by_one_in_one_line() -> None:
    assert edited('{\n  "a": {"b": 1}\n}', Assign("a", {"c": {"d": []}})) == '{\n  "a": {"c": {"d": []}}\n}'


def test_a_scalar_becomes_a_section_over_several_lines() -> None:
    new = edited('{\n\t"a": true,\n\t"b": 1\n}', Assign("a", {"on": True, "betas": [1, 2]}))

    assert new == '{\n\t"a": {\n\t\t"on": true,\n\t\t"betas": [1, 2]\n\t},\n\t"b": 1\n}'


# What is not there is added at the end of its section, as its neighbours are written.


def test_an_entry_is_added_behind_the_last_one_and_the_comma_before_the_comment() -> None:
    old = '"cpu_offload": true // off\n'
    new = '"cpu_offload": true, // off\n        "overlap_comm": false\n'

    assert edited(COMMENTED, Assign("zero.overlap_comm", False)) == COMMENTED.replace(old, new)


def test_a_section_in_one_line_stays_in_one_line() -> None:
    new = '{ "enabled": true, "loss_scale": 0 }'

    assert edited(COMMENTED, Assign("fp16.loss_scale", 0)) == COMMENTED.replace('{ "enabled": true }', new)


def test_a_file_without_blanks_gets_none() -> None:
    assert edited('{"a":1,"b":{"c":2}}', Assign("b.d.e", "x")) == '{"a":1,"b":{"c":2,"d":{"e":"x"}}}'


def test_an_empty_section_grows_lines() -> None:
    assert edited(COMMENTED, Assign("none.a", 1)) == COMMENTED.replace("{}", '{\n        "a": 1\n    }')


def test_an_empty_file_and_an_empty_section_in_a_line_grow() -> None:
    assert edited("{}", Assign("a.b", 1)) == '{\n  "a": {\n    "b": 1\n  }\n}'
    assert edited('{"a": {}, "b": []}', Assign("a.c", 1), Assign("b[0]", 2)) == '{"a": {"c": 1}, "b": [2]}'


def test_a_section_of_comments_keeps_them() -> None:
    text = '{\n  "a": {\n    // nothing yet\n  },\n  "b": { /* nor here */ }\n}'

    new = edited(text, Assign("a.c", 1), Assign("b.c", 1))

    assert '    // nothing yet\n    "c": 1\n  },' in new
    assert '"b": { /* nor here */\n    "c": 1\n   }' in new


def test_sections_around_an_added_key_are_added() -> None:
    new = edited('{\n    "a": 1\n}\n', Assign("b.c.d", "cpu"))

    assert new == '{\n    "a": 1,\n    "b": {\n        "c": {\n            "d": "cpu"\n        }\n    }\n}\n'


def test_a_trailing_comma_is_given_on() -> None:
    assert edited('{\n  "a": 1,\n}', Assign("b", 2)) == '{\n  "a": 1,\n  "b": 2,\n}'


def test_hjson_without_braces_commas_and_quotes_stays_so() -> None:
    text = "# mine\na: 1\nb: hello, you // all of it\n"

    assert edited(text, Assign("c", 2)) == text + "c: 2\n"
    assert edited("a: 1", Assign("c", 2)) == "a: 1\nc: 2"


def test_a_brace_behind_the_last_entry_stays_there() -> None:
    assert edited('{ "a": 1,\n  "b": 2 }', Assign("c", 3)) == '{ "a": 1,\n  "b": 2,\n  "c": 3 }'


def test_windows_line_ends_and_a_missing_last_one_stay() -> None:
    text = '{\r\n  "a": 1,\r\n  "b": {}\r\n}'

    assert edited(text, Assign("b.c", 2)) == '{\r\n  "a": 1,\r\n  "b": {\r\n    "c": 2\r\n  }\r\n}'
    assert edited(text, Remove("a")) == '{\r\n  "b": {}\r\n}'


# What goes takes its line, its comma and the comment in its line with it.


def test_an_entry_goes_with_its_line_and_the_comment_in_it() -> None:
    line = '    "train_batch_size": 8, // of all ranks\n'

    assert edited(COMMENTED, Remove("train_batch_size")) == COMMENTED.replace(line, "")


def test_a_comment_above_stays() -> None:
    line = '    "fp16": { "enabled": true },  # half\n'

    assert edited(COMMENTED, Remove("fp16")) == COMMENTED.replace(line, "")


def test_with_the_last_entry_the_comma_before_it_goes() -> None:
    old = '"stage": 2,  // two\n        "cpu_offload": true // off\n'

    assert edited(COMMENTED, Remove("zero.cpu_offload")) == COMMENTED.replace(old, '"stage": 2  // two\n')


@pytest.mark.parametrize(
    ("text", "path", "new"),
    [
        ('{"a": 1, "b": 2, "c": 3}', "a", '{"b": 2, "c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', "b", '{"a": 1, "c": 3}'),
        ('{ "a": 1, "b": 2 }', "b", '{ "a": 1 }'),
        ('{"a": 1 }', "a", "{}"),
        ('{"a": [1, 2, 3]}', "a[0]", '{"a": [2, 3]}'),
        ('{"a": [1, 2, 3]}', "a[2]", '{"a": [1, 2]}'),
        ('{"a": [{"b": 1, "c": 2}]}', "a[0].b", '{"a": [{"c": 2}]}'),
        ('{"a": {\n  "b": 1\n}}', "a.b", '{"a": {}}'),
        ('{ "a": 1,\n  "b": 2 }', "b", '{ "a": 1 }'),
        ('{\n  "a": 1, "b": 2,\n  "c": 3\n}', "a", '{\n  "b": 2,\n  "c": 3\n}'),
        ('{\n  "a": 1, "b": 2,\n  "c": 3\n}', "b", '{\n  "a": 1,\n  "c": 3\n}'),
        ('{\n  "a": 1\n  , "b": 2\n  , "c": 3\n}', "b", '{\n  "a": 1\n  , "c": 3\n}'),
        ('{\n  "a": 1, // x\n  // y\n  "b": 2\n}', "b", '{\n  "a": 1 // x\n  // y\n}'),
        ('{\n  "a": 1,\n  "b": 2,\n}', "b", '{\n  "a": 1,\n}'),
        ("a: hello, you\nb: 2\n", "b", "a: hello, you\n"),
        ("a: 1\nb: 2", "b", "a: 1"),
        ("a: 1\n", "a", "{}\n"),
        ("{a: hello\n b: 2}", "b", "{a: hello\n}"),
    ],
)
def test_nothing_but_the_entry_goes(text: str, path: str, new: str) -> None:
    assert edited(text, Remove(path)) == new


@pytest.mark.parametrize(
    ("text", "path", "new"),
    [
        ("a:\n  - - 1\n    - 2\n    - 3\n", "a[0][0]", "a:\n  - - 2\n    - 3\n"),
        ("a:\n  - - - 1\n      - 2\n", "a[0][0][0]", "a:\n  - - - 2\n"),
        ("a:\n  - - b: 1\n      c: 2\n    - 3\n", "a[0][0]", "a:\n  - - 3\n"),
        ("a:\n  - - 1  # one\n    - 2\n", "a[0][0]", "a:\n  - - 2\n"),
    ],
)
def test_the_first_item_behind_two_dashes_leaves_its_place_to_the_next(text: str, path: str, new: str) -> None:
    assert in_yaml(text, Remove(path)) == new


@pytest.mark.parametrize(
    ("text", "path", "new"),
    [
        ("a:\n  - - 1\n  - 2\n", "a[0][0]", "a:\n  - []\n  - 2\n"),
        ("a:\n- - - 1\n- 2\n", "a[0][0][0]", "a:\n- - []\n- 2\n"),
    ],
)
def test_the_only_item_behind_two_dashes_leaves_an_empty_list(text: str, path: str, new: str) -> None:
    assert in_yaml(text, Remove(path)) == new


@pytest.mark.parametrize(
    ("text", "path", "new"),
    [
        ("a:\n  -\n    # c\n    b: {}\nz: 1", "a[0]", "a: []\n    # c\nz: 1"),
        ("a:\n  -\n    # c\n    b: 1\n  - 2\n", "a[0]", "a:\n    # c\n  - 2\n"),
        ("a:\n  - 2\n  - # c\n    b: 1\n", "a[1]", "a:\n  - 2\n  # c\n"),
        ("a:\n  - 2\n  -\n    b: 1", "a[1]", "a:\n  - 2"),
        ("a:\n  - -\n      b: 1\n    - 3\n", "a[0][0]", "a:\n  - \n    - 3\n"),
    ],
)
def test_an_item_goes_with_a_dash_that_stands_above_it(text: str, path: str, new: str) -> None:
    """What is said between the two stays."""
    assert in_yaml(text, Remove(path)) == new


# What moves takes its text and its comment with it.


def test_a_new_name_in_a_section_changes_the_key_alone() -> None:
    new = edited(COMMENTED, Move("zero", "zero_optimization"), Move("zero_optimization.stage", "zero_optimization.s"))

    assert new == COMMENTED.replace('"zero"', '"zero_optimization"').replace('"stage"', '"s"')
    assert edited("{a: 1, 'b': 2}", Move("a", "x"), Move("b", "y"), Move("x", "1 x")) == "{\"1 x\": 1, 'y': 2}"


def test_a_section_moves_with_what_is_written_in_it() -> None:
    new = edited(COMMENTED, Move("zero", "none.z"))

    assert (
        new
        == """{
    "train_batch_size": 8, // of all ranks
    /* mixed precision */
    "fp16": { "enabled": true },  # half
    "betas": [0.9, 0.95],
    "none": {
        "z": {
            "stage": 2,  // two
            "cpu_offload": true // off
        }
    }
}
"""
    )


def test_a_comment_goes_along_into_a_section_in_one_line() -> None:
    new = edited(COMMENTED, Move("zero.stage", "fp16.stage"))

    assert '"fp16": { "enabled": true, "stage": 2  /* two */ },  # half\n    "zero": {\n' in new.replace("2 /", "2  /")
    assert "// two" not in new


def test_a_section_that_a_move_empties_goes() -> None:
    assert edited('{\n  "a": {\n    "b": {"c": 1} // x\n  }\n}\n', Move("a.b.c", "c")) == '{\n  "c": 1\n}\n'


def test_a_section_that_a_move_empties_stays_for_the_comment_in_it() -> None:
    text = '{\n  "a": {\n    // why\n    "b": 1\n  }\n}\n'

    assert edited(text, Move("a.b", "c")) == '{\n  "a": {\n    // why\n  },\n  "c": 1\n}\n'
    assert apply_to_config({"a": {"b": 1}}, [Move("a.b", "c")]) == {"c": 1}
    assert apply_to_config({"a": {"b": 1}}, [Move("a.b", "c")], kept=("a",)) == {"a": {}, "c": 1}


def test_a_section_that_a_removal_empties_stays() -> None:
    assert edited('{"a": {"b": 1}}', Remove("a.b")) == '{"a": {}}'


def test_moving_onto_an_equal_value_keeps_the_one_that_is_there() -> None:
    assert edited('{"a": [1], "b": {"a": [1]}}', Move("b.a", "a")) == '{"a": [1]}'


# What cannot be done is refused as a ValueError, of the text and of the config alike.


@pytest.mark.parametrize(
    ("text", "edit"),
    [
        ('{"a": 1, "b": 2}', Move("a", "b")),
        ('{"a": {"b": 1}}', Move("a.b", "a")),
        ('{"a": {"b": 1}}', Move("a", "a.c")),
        ('{"a": 1}', Move("b", "c")),
        ('{"a": 1}', Remove("b")),
        ('{"a": 1}', Remove("")),
        ('{"a": 1}', Assign("a.b", 2)),
        ('{"a": [1]}', Assign("a[2]", 2)),
        ('{"a": [1]}', Assign("a.b", 2)),
        ('{"a": [1], "b": 2}', Move("b", "a[1]")),
        ('{"a.b": 1, "a": {"b": 2}}', Remove("a.b")),
    ],
)
def test_an_edit_that_has_no_place_is_refused(text: str, edit: Edit) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        apply_to_config(json.loads(text), [edit])
    with pytest.raises(ValueError, match=r"\w"):
        edited(text, edit)


@pytest.mark.parametrize(
    ("text", "edit"),
    [
        ("[1]", Remove("[0]")),
        ("", Assign("a", 1)),
        ('{"a": ', Assign("a", 1)),
        ('{"a": 1, "a": 2}', Remove("a")),
    ],
)
def test_a_text_that_cannot_be_edited_is_refused(text: str, edit: Edit) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        edited(text, edit)


def test_what_an_alias_brings_in_is_refused() -> None:
    text = "a: &x {b: 1, c: 2}\nd: *x\ne:\n  <<: *x\n"

    for edit in (Assign("d.b", 2), Assign("e.b", 2), Remove("a"), Assign("a.b", 2)):
        with pytest.raises(ValueError, match=r"\w"):
            in_yaml(text, edit)
    assert in_yaml(text, Assign("d", 2)) == "a: &x {b: 1, c: 2}\nd: 2\ne:\n  <<: *x\n"


def test_a_key_with_a_dot_is_found() -> None:
    assert edited('{"a.b": {"c[0]": 1}, "x": 1}', Assign("a.b.c[0]", 2)) == '{"a.b": {"c[0]": 2}, "x": 1}'


# YAML, line by line and in braces.

LINES = """# mine
batch: 8 # all ranks
fp16: {enabled: true}  # half
zero:
  stage: 2  # two
  cpu_offload: true # off
  # the end

grad:
  clip: 1.0 # c
empty:
none: {}
list:
- 1
- a: 1
  b: 'x'
"""


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        (Assign("zero.stage", 3), "stage: 2", "stage: 3"),
        (Assign("empty", 3), "empty:\n", "empty: 3\n"),
        (Assign("list[1].b", "it's"), "'x'", "'it''s'"),
        (Assign("fp16", {"a": 1}), "{enabled: true}", "{a: 1}"),
        (Assign("batch", {"a": {"b": 1e-8}}), "batch: 8", "batch:\n  a:\n    b: 1.0e-08"),
        (Assign("grad", "on"), "grad:\n  clip: 1.0", "grad: 'on'"),
        (Assign("zero.z", True), "# off\n", "# off\n  z: true\n"),
        (Assign("zero.z.x", 1), "# off\n", "# off\n  z:\n    x: 1\n"),
        (Assign("fp16.z", "no"), "true}", "true, z: 'no'}"),
        (Assign("none.z", 1), "none: {}", "none:\n  z: 1"),
        (Assign("list[2]", 1), "b: 'x'\n", "b: 'x'\n- 1\n"),
        (Assign("z", [1]), "b: 'x'\n", "b: 'x'\nz: [1]\n"),
        (Remove("zero.cpu_offload"), "  cpu_offload: true # off\n", ""),
        (Remove("grad.clip"), "grad:\n  clip: 1.0 # c", "grad: {}"),
        (Remove("grad"), "grad:\n  clip: 1.0 # c\n", ""),
        (Remove("fp16.enabled"), "{enabled: true}", "{}"),
        (Remove("list[0]"), "- 1\n", ""),
        (Remove("list[1].a"), "- a: 1\n  b", "- b"),
        (Move("zero", "zero_optimization"), "zero:", "zero_optimization:"),
        (Move("batch", "on"), "batch:", '"on":'),
    ],
)
def test_an_edit_of_yaml_changes_its_entry_alone(edit: Edit, old: str, new: str) -> None:
    assert in_yaml(LINES, edit) == LINES.replace(old, new)


def test_entries_of_yaml_move_with_their_text() -> None:
    assert in_yaml("a:\n  b: 1 # x\nc:\n  d: 2\n", Move("a.b", "c.b")) == "c:\n  d: 2\n  b: 1 # x\n"
    assert in_yaml("a:\n- 1 # x\n- b: 2\nc: {}\n", Move("a", "c.a")) == "c:\n  a:\n    - 1 # x\n    - b: 2\n"
    assert in_yaml("a:\n    # x\n    b: |\n      1\nc:\n  d: 2\n", Move("a", "c.a")) == (
        "c:\n  d: 2\n  a:\n      # x\n      b: |\n        1\n"
    )


def test_a_block_with_comments_moves_into_braces_of_yaml_with_them() -> None:
    text = "a: [{}]\nb:\n  # of one\n  - 1\n  - 2 # of two\n"

    assert in_yaml(text, Move("b", "a[0].c")) == "a: [{c: # of one\n  # of two\n  [1, 2]}]\n"
