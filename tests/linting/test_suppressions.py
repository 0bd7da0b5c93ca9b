"""Findings that a person has answered: the sidecar beside a config, and comments in it; and lists of parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
from three_rules import finding

from dsgen.documents.hjson import reader
from dsgen.documents.yaml import documents
from dsgen.linting.setting_files import parameter_names, sidecar
from dsgen.linting.suppressions import in_comments, quiet
from dsgen.shapes.errors import DsgenError

pytestmark = pytest.mark.usefixtures("three_rules")


def test_the_sidecar_suppresses_by_rule_and_by_path(tmp_path: Path) -> None:
    config = tmp_path / "ds.json"
    Path(f"{config}.dsgen.toml").write_text(
        'ignore = ["dull-key"]\n[[ignore-at]]\nrule = "DSG901"\npath = "a"\nreason = "our fork reads it"\n',
        encoding="utf-8",
    )
    findings = [
        finding("loud-key", "a"),
        finding("loud-key", "a.b"),
        finding("loud-key", "ab"),
        finding("dull-key", "x"),
    ]

    left = quiet(findings, sidecar(str(config)))

    assert [item.path for item in left.findings] == ["ab"]
    assert (left.suppressed, left.unused) == (3, ())


def test_no_sidecar_suppresses_nothing(tmp_path: Path) -> None:
    assert sidecar(str(tmp_path / "ds.json")) == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ignored = []\n", "did you mean ignore"),
        ('ignore = ["od-key"]\n', "did you mean odd-key"),
        ('[[ignore-at]]\nrule = "odd-key"\n', "ignore-at[0] has no path"),
        ('[[ignore-at]]\npath = "a"\n', "ignore-at[0] has no rule"),
        ('[[ignore-at]]\nrule = "odd-key"\npath = "a"\nwhy = "x"\n', "no setting ignore-at[0].why"),
        ("ignore-at = 1\n", "a list of tables"),
        ("ignore-at = [1]\n", "it must be a table"),
        ("ignore = [\n", "it is not TOML"),
    ],
)
def test_a_wrong_sidecar_names_itself(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "ds.json.dsgen.toml"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(DsgenError) as error:
        sidecar(str(tmp_path / "ds.json"))

    assert str(file) in str(error.value)
    assert says in str(error.value)


def test_comments_speak_of_their_line_or_the_next() -> None:
    text = """{
  "a": 1,  // dsgen: ignore[loud-key]
  // dsgen: ignore[odd-key, DSG901]
  // and another comment

  "b": 2,
  # dsgen:ignore [dull-key]
  "c": 3
}
"""
    found = list(in_comments(reader.read(text, "ds.hjson")))

    assert [(item.where, item.word, item.line, item.wrong) for item in found] == [
        ("ds.hjson:2", "loud-key", 2, ""),
        ("ds.hjson:3", "odd-key", 6, ""),
        ("ds.hjson:3", "DSG901", 6, ""),
        ("ds.hjson:7", "dull-key", 8, ""),
    ]


def test_comments_in_yaml_and_over_several_lines() -> None:
    yaml = documents.read("a: 1  # dsgen: ignore[odd-key]\n", "ds.yaml")
    block = reader.read('{\n/* dsgen: ignore[odd-key]\n   for now */\n"a": 1}\n', "ds.hjson")

    assert [item.line for item in in_comments(yaml)] == [1]
    assert [item.line for item in in_comments(block)] == [4]


def test_what_suppresses_nothing_is_said() -> None:
    text = '{\n"a": 1, // dsgen: ignore[odd-key]\n"b": 1, // dsgen: ignore[od-key]\n"c": 1 // dsgen: ignore\n}'
    said = list(in_comments(reader.read(text, "ds.hjson")))

    left = quiet([finding("odd-key", line=3), finding("odd-key", line=4)], said)

    assert len(left.findings) == 2
    assert [item.wrong for item in left.unused] == [
        "",
        "no such rule; did you mean odd-key or loud-key or dull-key?",
        "it names no rule: ignore[rule-name]",
    ]


def test_a_comment_at_the_end_of_the_file_and_other_comments_suppress_nothing() -> None:
    document = reader.read('{"a": 1}\n# dsgen: ignore[odd-key]', "ds.hjson")
    other = reader.read('{"a": 1} # dsgen ignores this; dsgen: ignores[odd-key]', "ds.hjson")

    assert quiet([finding("odd-key")], in_comments(document)).suppressed == 0
    assert list(in_comments(other)) == []


@pytest.mark.parametrize("text", ["a.weight\nb.bias\n", '["a.weight", "b.bias"]', "\ufeffa.weight\r\n\r\nb.bias"])
def test_parameter_names_are_lines_or_a_list(tmp_path: Path, text: str) -> None:
    file = tmp_path / "names.txt"
    file.write_bytes(text.encode())

    assert parameter_names(str(file)) == ("a.weight", "b.bias")


@pytest.mark.parametrize(
    ("content", "says"), [(b"[1]", "a list of texts"), (b"[", "is not JSON"), (b"\xff", "cannot be read")]
)
def test_a_broken_list_of_parameters_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "names.txt"
    file.write_bytes(content)

    with pytest.raises(DsgenError, match=says):
        parameter_names(str(file))
