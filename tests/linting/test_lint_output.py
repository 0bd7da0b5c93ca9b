"""How findings are printed: for a terminal, as json, as workflow commands, and as tables."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lint_samples import UNSAFE, finding, linted

from dsgen.linting.fixes import Tally
from dsgen.linting.settings import Settings
from dsgen.linting.suppressions import Suppression
from dsgen.report import findings, github, survey
from dsgen.report.excerpts import excerpt, printable
from dsgen.shapes.findings import Assign, Fix, Severity


def columns(text: str) -> int:
    """Columns of a terminal that a text takes."""
    marks = sum(unicodedata.category(letter) in ("Mn", "Me") for letter in text)
    return len(text) - marks + sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)


# --- the line with the carets


def pointed(line: str, start: int, end: int, room: int = 40) -> tuple[str, str]:
    """The line as shown, and what stands above the carets."""
    shown = excerpt(line, start, end, room)
    column, above = 0, ""
    for letter in shown.line:
        above += letter if shown.caret <= column < shown.caret + shown.carets else ""
        column += columns(letter)
    return shown.line, above


@pytest.mark.parametrize(
    ("before", "target", "after"),
    [
        ("    ", '"tp_size"', ": 4,"),
        ("\t\t", '"tp_size"', ": 4,"),
        ('"日本": "x", ', '"tp_size"', ": 4"),
        ('"e\u0301": 1, ', '"tp_size"', ": 4"),
        ("1" * 200, '"tp_size"', "2" * 200),
        ("", '"tp_size"', "2" * 200),
        ("1" * 200, '"tp_size"', ""),
        ("\x1b[31m", '"tp_size"', "\x07"),
        ("\u202e", '"tp_size"', ""),
    ],
)
def test_the_carets_stand_below_what_is_meant(before: str, target: str, after: str) -> None:
    line, above = pointed(before + target + after, len(before), len(before + target))

    assert above == target
    assert columns(line) <= 40
    assert line.isprintable()


def test_a_long_line_is_cut_around_the_carets() -> None:
    assert pointed("a" * 100 + "KEY" + "b" * 100, 100, 103) == ("...aaaaaaaaaaKEYbbbbbbbbbbbbbbbbbbbbb...", "KEY")
    assert pointed("KEY" + "b" * 100, 0, 3)[0] == "KEY" + "b" * 34 + "..."
    assert pointed("a" * 100 + "KEY", 100, 103)[0] == "...aaaaaaaaaaKEY"


@given(st.text(max_size=120), st.integers(0, 130), st.integers(0, 130), st.integers(0, 90))
@example("x" * 41, 0, 41, 40)
@example("日" * 60, 30, 60, 40)
def test_any_line_fits_and_any_place_has_a_caret(line: str, start: int, length: int, room: int) -> None:
    shown = excerpt(line, start, start + length, room)

    assert columns(shown.line) <= max(room, 20)
    assert shown.line.isprintable()
    assert shown.carets >= 1
    assert shown.caret >= 0 and shown.caret + shown.carets <= max(room, 20) + 1


def test_control_characters_are_spelled_out() -> None:
    assert printable("a\x1b[31m\nb\ud800\u202e") == "a\\x1b[31m b\\ud800\\u202e"


# --- text


def test_a_finding_as_a_person_reads_it() -> None:
    assert findings.text([linted(finding())], 80) == (
        "ds.json:3:5 error rejected-key (DSG101)\n"
        '    3 |     "tp_size": 4,\n'
        "      |     ^^^^^^^^^ DeepSpeed rejects tp_size\n"
        "      fix: rename to autotp_size (safe)\n"
    )


def test_a_message_without_room_beside_the_carets_stands_below() -> None:
    long = " ".join(["word"] * 30)
    lines = findings.text([linted(finding(message=long, fix=None))], 80).splitlines()

    assert lines[2] == "      |     ^^^^^^^^^"
    assert lines[3].startswith("      word word")
    assert " ".join(line.strip() for line in lines[3:]) == long
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("width", [80, 200])
def test_lines_keep_to_the_terminal(width: int) -> None:
    wide = '{"a": "' + "x" * 500 + '"}\n\n\n    "x": 1'
    file = linted(finding(at=(1, 2, 5), message="word " * 60), UNSAFE, text=wide)

    printed = findings.text([file], width) + findings.summary([file], width)

    assert max(map(len, printed.splitlines())) <= width


def test_a_finding_of_an_empty_file_shows_no_line() -> None:
    text = findings.text([linted(finding(at=(1, 1, 1), fix=None), text="")], 80)

    assert text == "ds.json:1:1 error rejected-key (DSG101)\n      DeepSpeed rejects tp_size\n"


def test_colour_only_adds_to_the_text() -> None:
    file = linted(finding(), UNSAFE)
    colour = findings.text([file], 80, findings.coloured)

    assert "\x1b[1;31merror\x1b[0m" in colour
    assert re.sub(r"\x1b\[[0-9;]*m", "", colour) == findings.text([file], 80)


def test_what_a_file_holds_cannot_paint_the_terminal() -> None:
    file = linted(finding(at=(2, 1, 2), message="odd \x1b[2J"), name="a\x1b.json", text='{\n"\x1b[2J": 1}')

    assert "\x1b" not in findings.text([file], 80)


def test_a_word_that_fills_a_page_is_cut() -> None:
    lines = findings.text([linted(finding(message=f"odd {'k' * 5000}z is odd"))], 110).splitlines()

    assert lines[3] == f"      odd {'k' * 60}...{'k' * 19}z is odd"


def test_the_summary_counts_what_can_be_mended_and_what_is_hidden() -> None:
    note = finding(Severity.INFO)

    assert findings.summary([linted(finding(), UNSAFE, hidden=(note,) * 12, suppressed=2)], 400).splitlines() == [
        "2 findings, 1 fixable with --fix (1 more with --unsafe-fixes); 12 notes hidden, --severity info shows them; 2",
        "suppressed. `dsgen rule DSG101` explains.",
    ]
    assert findings.summary([linted()], 80) == "no findings in 1 file.\n"
    assert findings.summary([linted(UNSAFE), linted()], 200) == (
        "1 finding in 2 files, 1 fixable with --fix --unsafe-fixes. `dsgen rule DSG102` explains.\n"
    )


def test_the_summary_after_fixing() -> None:
    assert (
        findings.summary([linted()], 80, fixed=Tally(2), written=True, tried="safe") == "fixed 2 findings, none left.\n"
    )
    assert findings.summary([linted(UNSAFE)], 110, fixed=Tally(1), tried="safe").startswith(
        "would fix 1 finding, 1 left (1 fixable with --unsafe-fixes)."
    )
    assert findings.summary([linted()], 80, fixed=Tally(2, gone=1, arisen=1), written=True, tried="all") == (
        "fixed 2 findings and 1 that came up by them, 1 more went with them, none left.\n"
    )


def test_a_fix_that_was_asked_for_and_not_made_is_said() -> None:
    both = linted(finding(), UNSAFE)

    assert findings.summary([both], 200, tried="safe").startswith(
        "2 findings (1 fixable with --unsafe-fixes); 1 fix could not be made."
    )
    assert findings.summary([both], 200, fixed=Tally(1), written=True, tried="all").startswith(
        "fixed 1 finding, 2 left; 2 fixes could not be made."
    )
    assert "could not" not in findings.summary([linted(finding(fix=None))], 200, tried="all")


def test_what_was_assumed_is_said_once() -> None:
    guess = {"guessed": True, "settings": Settings()}
    files = [linted(**guess), linted(**guess), linted(**guess | {"target": "hf-trainer"})]

    said = findings.assumed(files)

    assert 'plain DeepSpeed in 2 files, the Hugging Face Trainer in 1 file (guessed from "auto": --target)' in said
    assert re.search(r"for DeepSpeed 0\.\d+\.\d+ \(the newest known: --deepspeed\)\.$", said)
    assert findings.assumed([linted()]) == ""
    assert 'for plain DeepSpeed (guessed, as they have no "auto": --target)' in findings.assumed(files[:2])
    assert 'for the Hugging Face Trainer (guessed from their "auto": --target)' in findings.assumed(files[2:] * 2)


def test_a_suppression_of_nothing_is_said() -> None:
    unused = (
        Suppression(where="ds.json:3", word="odd-key"),
        Suppression(where="ds.json:4", word="od-key", wrong="no such rule; did you mean odd-key?"),
    )

    lines = findings.summary([linted(unused=unused)], 110).splitlines()

    assert lines[-2:] == [
        "note: ds.json:3: ignore[odd-key]: suppresses nothing",
        "note: ds.json:4: ignore[od-key]: no such rule; did you mean odd-key?",
    ]


# --- json


def test_json_has_every_file_and_every_field() -> None:
    said = findings.data([linted(finding()), linted(name="clean.json")])

    assert [file["file"] for file in said["files"]] == ["ds.json", "clean.json"]
    assert said["files"][0]["target_guessed"] is False
    assert said["files"][1]["findings"] == []
    assert said["files"][0]["findings"] == [
        {
            "code": "DSG101",
            "rule": "rejected-key",
            "severity": "error",
            "path": "tensor_parallel.tp_size",
            "message": "DeepSpeed rejects tp_size",
            "line": 3,
            "column": 5,
            "end_column": 14,
            "fix": {
                "title": "rename to autotp_size",
                "safe": True,
                "edits": [{"edit": "move", "path": "tensor_parallel.tp_size", "to": "tensor_parallel.autotp_size"}],
            },
        }
    ]


def test_json_stays_json_whatever_a_fix_writes() -> None:
    fix = Fix("say", (Assign("a", {"b": [float("nan"), float("inf")]}),))
    written = json.dumps(findings.data([linted(finding(fix=fix, message="\ud800"))]), allow_nan=False)

    assert json.loads(written)["files"][0]["findings"][0]["fix"]["edits"][0]["value"] == {"b": ["nan", "inf"]}


# --- GitHub


def test_workflow_commands_escape_what_would_end_them() -> None:
    odd = finding(Severity.WARNING, message="100 %\r\nof it", fix=None)

    assert github.text([linted(odd, name="a,b:c%.json")]) == (
        "::warning file=a%2Cb%3Ac%25.json,line=3,col=5,endColumn=14,title=rejected-key (DSG101)::100 %25%0D%0Aof it\n"
    )


def test_workflow_commands_name_the_severity_and_the_fix() -> None:
    lines = github.text([linted(finding(), finding(Severity.INFO, fix=None)), linted()]).splitlines()

    assert lines[0].startswith("::error ")
    assert lines[0].endswith("%0Afix: rename to autotp_size (safe)")
    assert lines[1].startswith("::notice ")
    assert len(lines) == 2


# --- survey


def test_a_survey_counts_rules_files_and_shares() -> None:
    files = [linted(finding(), finding(), UNSAFE), linted(UNSAFE, name="b.json"), linted(name="c.json")]

    said = survey.data(files)

    assert [(row["rule"], row["files"], row["findings"]) for row in said["by_rule"]] == [
        ("rejected-key", 1, 2),
        ("unread-key", 2, 2),
    ]
    assert [(row["file"], row["errors"], row["warnings"]) for row in said["by_file"]] == [
        ("ds.json", 2, 1),
        ("b.json", 0, 1),
        ("c.json", 0, 0),
    ]
    assert said["totals"] == {
        "files": 3,
        "files_with_findings": 2,
        "files_with_errors": 1,
        "share_with_errors": 0.3333,
        "errors": 2,
        "warnings": 2,
        "notes": 0,
    }


def test_a_survey_as_text_and_as_csv() -> None:
    files = [linted(finding(), finding(), UNSAFE), linted(name='c,"d.json')]

    assert survey.text(files, 80).endswith("1 of 2 files (50%) has an error; 1 has a finding. 2 errors, 1 warning.\n")
    assert survey.spreadsheet(files).splitlines() == [
        "file,target,deepspeed,code,rule,severity,findings",
        "ds.json,deepspeed,0.19.8,DSG101,rejected-key,error,2",
        "ds.json,deepspeed,0.19.8,DSG102,unread-key,warning,1",
        '"c,""d.json",deepspeed,0.19.8,,,,0',
    ]
    assert survey.text([], 80) == "no files\n"
