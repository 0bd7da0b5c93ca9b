"""Findings as SARIF: what the standard requires, and that its places and fixes are those of the text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from lint_samples import REMOVE, RENAME, TEXT, UNSAFE, finding, linted

from dsgen.documents import editor
from dsgen.documents.hjson import reader
from dsgen.linting.files import Linted
from dsgen.report import sarif
from dsgen.shapes.findings import Fix, Remove

# What SARIF 2.1.0 (OASIS, section 3) requires of the parts that are written, and forbids: nothing but these properties.
TEXTUAL = {"type": "string"}
URI = {
    "type": "object",
    "properties": {"uri": TEXTUAL, "uriBaseId": TEXTUAL},
    "required": ["uri"],
}
WHOLE = {"type": "integer", "minimum": 1}
REGION = {
    "type": "object",
    "additionalProperties": False,
    "properties": dict.fromkeys(("startLine", "startColumn", "endLine", "endColumn"), WHOLE),
    "required": ["startLine", "startColumn", "endColumn"],
}
MESSAGE = {
    "type": "object",
    "properties": {"text": TEXTUAL, "markdown": TEXTUAL},
    "required": ["text"],
}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
RULE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "id": TEXTUAL,
        "name": TEXTUAL,
        "shortDescription": MESSAGE,
        "fullDescription": MESSAGE,
        "help": MESSAGE,
        "helpUri": {"type": "string", "format": "uri"},
        "defaultConfiguration": {"type": "object", "properties": {"level": LEVEL}},
        "properties": {"type": "object"},
    },
    "required": ["id", "help", "defaultConfiguration"],
}
REPLACEMENT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"deletedRegion": REGION, "insertedContent": MESSAGE},
    "required": ["deletedRegion"],
}
CHANGE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"artifactLocation": URI, "replacements": {"type": "array", "minItems": 1, "items": REPLACEMENT}},
    "required": ["artifactLocation", "replacements"],
}
FIX = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"description": MESSAGE, "artifactChanges": {"type": "array", "minItems": 1, "items": CHANGE}},
    "required": ["artifactChanges"],
}
PLACE = {
    "type": "object",
    "properties": {
        "physicalLocation": {"type": "object", "properties": {"artifactLocation": URI, "region": REGION}},
        "logicalLocations": {"type": "array", "items": {"type": "object"}},
    },
    "additionalProperties": False,
}
RESULT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "ruleId": TEXTUAL,
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": LEVEL,
        "message": MESSAGE,
        "locations": {"type": "array", "items": PLACE},
        "partialFingerprints": {"type": "object", "additionalProperties": TEXTUAL},
        "fixes": {"type": "array", "items": FIX},
    },
    "required": ["message"],
}
DRIVER = {
    "type": "object",
    "properties": {"name": TEXTUAL, "rules": {"type": "array", "items": RULE}},
    "required": ["name"],
}
RUN = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "tool": {"type": "object", "properties": {"driver": DRIVER}, "required": ["driver"]},
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
        "artifacts": {"type": "array", "items": {"type": "object", "properties": {"location": URI}}},
        "results": {"type": "array", "items": RESULT},
    },
    "required": ["tool"],
}
LOG = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "items": RUN},
    },
    "required": ["version", "runs"],
}


def log(*files: Linted, docs: str | None = "https://example.org/docs/rules/") -> dict[str, Any]:
    """A run of SARIF that holds to the standard; gives its only run."""
    said = json.loads(json.dumps(sarif.data(files, Path.cwd(), "1.2.3", docs)))
    jsonschema.validate(said, LOG)
    run: dict[str, Any] = said["runs"][0]
    return run


def test_sarif_names_rules_and_places() -> None:
    run = log(linted(finding(), UNSAFE), linted(name="clean.json"))

    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["DSG101", "DSG102"]
    assert rules[0]["helpUri"] == "https://example.org/docs/rules/rejected-key.md"
    assert [rules[result["ruleIndex"]]["id"] for result in run["results"]] == ["DSG101", "DSG102"]
    assert [result["level"] for result in run["results"]] == ["error", "warning"]
    assert run["results"][0]["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "ds.json", "uriBaseId": "%SRCROOT%"},
                "region": {"startLine": 3, "startColumn": 5, "endColumn": 14},
            },
            "logicalLocations": [{"fullyQualifiedName": "tensor_parallel.tp_size"}],
        }
    ]
    assert [artifact["location"]["uri"] for artifact in run["artifacts"]] == ["ds.json", "clean.json"]
    assert all("helpUri" not in rule for rule in log(linted(finding()), docs=None)["tool"]["driver"]["rules"])


def replaced(text: str, fix: dict[str, Any]) -> str:
    """A text after the replacement of a fix, counted in UTF-16 units as the log says."""
    change = fix["artifactChanges"][0]["replacements"][0]
    region = change["deletedRegion"]
    units = [0]
    for line in text.splitlines(keepends=True):
        units.append(units[-1] + len(line.encode("utf-16-le")))
    start = units[region["startLine"] - 1] + 2 * (region["startColumn"] - 1)
    end = units[region["endLine"] - 1] + 2 * (region["endColumn"] - 1)
    whole = text.encode("utf-16-le")
    return (whole[:start] + change["insertedContent"]["text"].encode("utf-16-le") + whole[end:]).decode("utf-16-le")


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("\n", "\r\n"), TEXT.replace("\n  ", "\n /* 😀 */ ")])
def test_sarif_fixes_make_the_text_that_fix_makes(text: str) -> None:
    document = reader.read(text, "ds.json")
    for one in (RENAME, REMOVE):
        run = log(linted(finding(fix=one), text=text))

        assert replaced(text, run["results"][0]["fixes"][0]) == editor.apply(document, one.edits)


def test_sarif_counts_columns_in_utf16_units() -> None:
    text = '{"😀": 1, "tp": 2}'
    run = log(linted(finding(at=(1, 10, 14), fix=None), text=text))

    region = run["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert (
        text.encode("utf-16-le")[2 * (region["startColumn"] - 1) : 2 * (region["endColumn"] - 1)].decode("utf-16-le")
        == '"tp"'
    )


def test_sarif_fingerprints_outlive_a_move_and_tell_twins_apart() -> None:
    here, moved = finding(at=(3, 5, 14)), finding(at=(4, 5, 8))
    both = [result["partialFingerprints"] for result in log(linted(here, moved))["results"]]

    assert both[0] == log(linted(moved))["results"][0]["partialFingerprints"]
    assert both[0] != both[1]
    assert both[0] != log(linted(here, name="other.json"))["results"][0]["partialFingerprints"]


def test_sarif_of_a_file_elsewhere_and_of_odd_names() -> None:
    run = log(linted(name="/elsewhere/a b.json"), linted(name="<stdin>"), linted(name=str(Path.cwd() / "x" / "é.json")))

    assert [artifact["location"] for artifact in run["artifacts"]] == [
        {"uri": "file:///elsewhere/a%20b.json"},
        {"uri": "%3Cstdin%3E", "uriBaseId": "%SRCROOT%"},
        {"uri": "x/%C3%A9.json", "uriBaseId": "%SRCROOT%"},
    ]


def test_sarif_of_a_broken_rule_and_a_fix_that_cannot_be_made() -> None:
    nowhere = Fix("move it", (Remove("not.there"),))
    run = log(linted(finding(rule=("DSG000", "rule-broke"), fix=nowhere)))

    assert run["tool"]["driver"]["rules"][0]["id"] == "DSG000"
    assert "fixes" not in run["results"][0]
