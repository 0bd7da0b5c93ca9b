"""Public configs as they are: read, linted for their text, taken by the schema, and held as DeepSpeed holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema
import pytest
from effective_checks import compare
from hjson_checks import agrees_with_hjson, mutants, sound, stopped

from dsgen.documents.hjson.reader import read
from dsgen.effective import load_many
from dsgen.linting.asked import lint as lint_file
from dsgen.linting.linter import lint
from dsgen.shapes.data import data_root
from dsgen.shapes.findings import Finding, Severity

KINDS = {"json": "json", "json_hjson": "hjson", "unparsable": "hjson"}
NO_BATCH_SIZE = {154, 163, 176, 343, 357, 394}  # of those that ran when one was added
NO_ZERO = {7, 141}  # with which the Trainer stops, and plain DeepSpeed does not
OLD_AUTO = {308}  # "auto" in bfloat16, with which the Trainer stops
SAMPLE = 3  # every third config is given to the real DeepSpeed: all would take a minute


def texts(publics: Sequence[Any]) -> list[str]:
    return [public.text for public in publics]


def of_the_text(text: str) -> list[Finding]:
    """What the rules about text say, DSG001 to DSG049."""
    found = lint(read(text, "x.json"))
    assert [item for item in found if item.rule == "rule-broke"] == []
    return [item for item in found if item.code < "DSG050"]


def test_they_read_as_their_labels_say(publics: Sequence[Any]) -> None:
    for label, path, text in publics:
        document = read(text, path.name)
        assert document.kind == KINDS[label["format"]], path
        assert stopped(document) == (label["format"] == "unparsable"), path


def test_none_raises_when_it_is_broken(publics: Sequence[Any]) -> None:
    for text in mutants(texts(publics), seed=3, rounds=500):
        sound(read(text, "x"), text)


def test_hjson_itself_agrees(publics: Sequence[Any]) -> None:
    for text in (*texts(publics), *mutants(texts(publics), seed=4, rounds=2_000)):
        agrees_with_hjson(text)


@pytest.mark.parametrize(
    ("number", "line", "words"), [(387, 22, "the { of zero_optimization in line 22"), (410, 25, "Markdown fence")]
)
def test_broken_syntax_names_the_cause(publics: Sequence[Any], number: int, line: int, words: str) -> None:
    [text] = [public.text for public in publics if public.label["n"] == number]

    [found] = of_the_text(text)

    assert (found.rule, found.severity, found.line) == ("broken-syntax", Severity.ERROR, line)
    assert words in found.message


def test_none_that_is_read_has_an_error_of_its_text(publics: Sequence[Any]) -> None:
    for label, path, text in publics:
        errors = {item.rule for item in of_the_text(text) if item.severity is Severity.ERROR}
        assert errors <= ({"broken-syntax"} if label["kind"] == "syntax" else {"template-placeholder"}), path
        assert not errors or label["kind"] == "syntax" or label["template"], path


def test_lint_fails_on_few_that_run(publics: Sequence[Any]) -> None:
    """Those of docs/lint.md, each for its cause: the run was given a batch size or `zero_optimization` from outside."""
    ran = [public for public in publics if public.label["outcome"] == "ok"]
    failing: dict[int, set[str]] = {}
    for public in ran:
        linted = lint_file(str(public.path))
        if linted.fails:
            shown = (*linted.findings, *linted.hidden)
            failing[public.label["n"]] = {item.rule for item in shown if item.severity is Severity.ERROR}

    assert len(ran) == 210
    assert {number for number, rules in failing.items() if rules == {"batch-size-missing"}} == NO_BATCH_SIZE
    assert {number for number, rules in failing.items() if rules == {"section-the-program-needs"}} == NO_ZERO
    assert {number for number, rules in failing.items() if rules == {"bfloat16-hidden"}} == OLD_AUTO
    assert len(failing) == len(NO_BATCH_SIZE | NO_ZERO | OLD_AUTO)


def test_the_schema_takes_what_deepspeed_took(publics: Sequence[Any]) -> None:
    """Every one that ran as its target hands it over, "auto" and unknown keys of loose sections included."""
    schema = json.loads((data_root() / "schema" / "deepspeed" / "0.19.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    ran = [one for one in publics if one.label["label"].startswith("ok") and one.label["format"] == "json"]
    faults = {one.path.name: [error.json_path for error in validator.iter_errors(json.loads(one.text))] for one in ran}

    assert len(ran) > 100
    assert {name: found for name, found in faults.items() if found} == {}


def test_our_tables_agree_with_what_deepspeed_holds(publics: Sequence[Any]) -> None:
    """Every value of a sample: `Subject.value` against the parsed DeepSpeedConfig."""
    compared, parsed, wrong = 0, 0, []
    for target in ("deepspeed", "hf-trainer"):
        chosen = [public.path for public in publics[::SAMPLE] if _target(public.label) == target]
        for found in load_many(chosen, target=target):
            parsed += bool(found.values)
            count, differing = compare(found, target)
            compared += count
            wrong += differing
    assert not wrong
    assert parsed > 50
    assert compared > 10_000


def _target(label: Mapping[str, Any]) -> str:
    return "hf-trainer" if label["has_auto"] and label["format"] == "json" else "deepspeed"
