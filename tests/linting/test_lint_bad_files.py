"""Files that are no good configs: each gives a finding that names the cause and the place, never an exception."""

from __future__ import annotations

import json
import time
from typing import Any

import own_configs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgen.documents.document import Document
from dsgen.documents.hjson.reader import MAX_BYTES, MAX_DEPTH, read, unreadable
from dsgen.documents.yaml import documents as yaml_documents
from dsgen.linting.files import lint_one
from dsgen.linting.linter import lint, lint_config
from dsgen.linting.settings import Settings
from dsgen.shapes.findings import Assign, Finding, Severity

BATCH = '"train_micro_batch_size_per_gpu": 1'


def names(document: Document) -> list[str]:
    return [name for name, _ in document.faults if name != "not-strict-json"]


def text_findings(text: str, target: str = "deepspeed") -> list[Finding]:
    """What the rules about text say, DSG001 to DSG049."""
    found = lint(read(text, "x.json"), target=target)
    assert [item for item in found if item.rule == "rule-broke"] == []
    return [item for item in found if item.code < "DSG050"]


def told(text: str, target: str = "deepspeed") -> list[tuple[str, str, int, int]]:
    return [(item.rule, str(item.severity), item.line, item.column) for item in text_findings(text, target)]


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ('{\n  "a": {\n    "b": 1\n}', 2, 8, "the { of a in line 2 has no }"),
        ('{\n  "a": [1, 2\n}', 3, 1, "} stands where ] must close the [ of a in line 2"),
        ('{\n  "a": 1', 1, 1, "the { in line 1 is never closed"),
        ('{"a": [{"b": 1}', 1, 7, "the [ of a in line 1 is never closed"),
        ('{"a": 1}\n}', 2, 1, "one } too many"),
        ('{"a": 1}\n```\n', 2, 1, "Markdown fence"),
        ('{"a": 1}\nmore', 2, 1, "nothing may follow, but more does"),
        ('{"a": "x,\n"b": 1}', 1, 7, 'no closing " before the line ends'),
        ('{"a": "x', 1, 7, "before the file ends"),
        ('{"a": "C:\\data"}', 1, 10, "\\d is no escape"),
        ('{"a": "x\ty"}', 1, 9, "a tab must be written"),
        ('{"a": /* x }', 1, 7, "*/ is missing"),
        ('{"a" 1}', 1, 2, "must be followed by a colon"),
        ('{"a": 1, b}', 1, 10, "b is no key: a colon must follow"),
        ('{"a":, "b": 1}', 1, 6, "a comma stands where a value must"),
        ('{"a": 1,, "b": 1}', 1, 9, "second comma"),
        ('{"a": 1 "b": 2}', 1, 7, "runs to the end of its line"),
        ('{"a": {"b": True}, "c": 1\n}', 1, 13, "JSON's word for True is true"),
        ('{"a": ${X}}', 1, 7, "runs to the end of its line: ${X}} is one text"),
        ('{"a": {{ x }}}', 1, 7, "{{ opens a placeholder"),
        ("<html>\n<body>", 1, 1, "begins with <html>"),
        ("import os\nx", 1, 1, "begins with import os"),
        ("{\na: '''x}", 2, 4, "''' is missing"),
        ("a: 1\n]", 2, 1, "] closes nothing"),
    ],
)
def test_broken_syntax_is_told_by_its_cause(text: str, line: int, column: int, words: str) -> None:
    document = read(text, "x")
    ((name, fault),) = document.faults

    assert name == "broken-syntax"
    assert fault.span is not None
    assert document.position(fault.span.start) == (line, column)
    assert words in fault.message


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ('{"a": 1, // x\n"b": 2,}', 1, 10, "a comment"),
        ('{"a": 1,\n"b": [2,]}', 2, 8, "a comma behind the last entry"),
        ('{"a": 1\n"b": 2}', 1, 7, "the missing comma"),
        ("{a: 1}", 1, 2, "the key a without quotes"),
        ('{"a": x,\n}', 1, 7, "the text x without quotes"),
        ("{'a': 1}", 1, 2, "single quotes"),
        ("{\n\"a\": '''x'''}", 2, 6, "three quotes"),
        ('"a": 1', 1, 1, "the missing braces"),
        ('{"a": "\\\'"}', 1, 8, "the escape \\'"),
        ('{"a": 1\u0661}', 1, 7, "digits"),
    ],
)
def test_what_json_does_not_take_is_noted_where_it_begins(text: str, line: int, column: int, words: str) -> None:
    document = read(text, "x")
    ((name, fault),) = document.faults

    assert name == "not-strict-json"
    assert fault.span is not None
    assert document.position(fault.span.start) == (line, column)
    assert words in fault.message


def test_every_duplicate_names_both_places() -> None:
    document = read('{"a": 1,\n"b": {"c": 1,\n"c": 2,\n"c": 3},\n"a": 4}', "x")

    assert [
        (name, fault.path, document.position(fault.span.start)) for name, fault in document.faults if fault.span
    ] == [
        ("duplicate-key", "b.c", (3, 1)),
        ("duplicate-key", "b.c", (4, 1)),
        ("duplicate-key", "a", (5, 1)),
    ]
    assert "first in line 1, again in line 5" in document.faults[-1][1].message


@pytest.mark.parametrize("bracket", ["[", '{"a":', "{a:"])
def test_depth_ends_at_a_fault(bracket: str) -> None:
    close = "]" if bracket == "[" else "}"

    assert names(read(bracket * 10_000, "x")) == ["too-deep"]
    assert names(read(bracket * (MAX_DEPTH + 1) + "1" + close * (MAX_DEPTH + 1), "x")) == ["too-deep"]
    assert "too-deep" not in names(read(bracket * MAX_DEPTH + "1" + close * MAX_DEPTH, "x"))


@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be"])
def test_utf_16_that_was_read_as_utf_8_is_named(order: str) -> None:
    text = '{"a": 1}'.encode(order).decode("utf-8")

    assert names(read(text, "x")) == ["not-utf8"]
    assert "not-utf8" not in names(read("\0" * 100, "x"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [("empty-file", "error", 1, 1)]),
        (" \n\t", [("empty-file", "error", 1, 1)]),
        ("# later", [("empty-file", "error", 1, 1)]),
        ("\ufeff", [("empty-file", "error", 1, 1)]),
        ("null", [("not-a-map", "error", 1, 1)]),
        (f"\n[{{{BATCH}}}]", [("not-a-map", "error", 2, 1)]),
        ("3", [("not-a-map", "error", 1, 1)]),
        ("just words", [("not-a-map", "error", 1, 1)]),
        (f"{{{BATCH}", [("broken-syntax", "error", 1, 1)]),
        (f'{{{BATCH}, "x": 1e999}}', [("number-too-large", "error", 1, 44)]),
        (f'{{{BATCH}, "x": {"7" * 5000}}}', [("number-too-large", "error", 1, 44)]),
        (f'{{{BATCH}, "steps_per_print": 1{"0" * 309}}}', [("number-too-large", "error", 1, 58)]),
        (f'{{{BATCH}, "steps_per_print": 1{"0" * 308}}}', []),
        (f'{{{BATCH}, "gradient_clipping": NaN}}', [("not-a-number", "error", 1, 60)]),
        (f'{{{BATCH}, "gradient_clipping": -Infinity\n}}', [("not-a-number", "error", 1, 60)]),
        (f"{{{BATCH},\n{BATCH}}}", [("duplicate-key", "error", 2, 1)]),
        ('{"x":' * 10_000, [("too-deep", "error", 1, 501)]),
        (f'{{{BATCH}, "wandb": {{"team": "$TEAM"}}}}', [("template-placeholder", "warning", 1, 57)]),
        (f'{{{BATCH}, "wandb": {{"team": "costs 5 $"}}}}', []),
        (f'{{{BATCH},\n"steps_per_print": LOG_STEPS,\n}}', [("template-placeholder", "error", 2, 20)]),
        (f'{{{BATCH},\n"prescale_gradients": False,\n}}', [("python-literal", "warning", 2, 23)]),
        (f'{{{BATCH},\n"steps_per_print": 1_000,\n}}', [("text-runs-on", "error", 2, 20)]),
        (f'{{{BATCH},\n"communication_data_type": fp16\n}}', []),
        (f'{{{BATCH}, "x": "\\ud800"}}', []),
        (f"\ufeff{{{BATCH}}}", []),
        (f"{{{BATCH},}} # HJSON", []),
    ],
)
def test_plain_deepspeed(text: str, expected: list[tuple[str, str, int, int]]) -> None:
    assert told(text) == expected


@pytest.mark.parametrize("target", ["hf-trainer", "accelerate", "lightning"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{{{BATCH},}}", [("not-strict-json", "error", 1, 37)]),
        (f"{{{BATCH}}} // HJSON", [("not-strict-json", "error", 1, 39)]),
        (f"\ufeff{{{BATCH}}}", [("byte-order-mark", "error", 1, 1)]),
        (f"{{{BATCH},\n{BATCH}}}", [("duplicate-key", "warning", 2, 1)]),
        (f"{{{BATCH}", [("broken-syntax", "error", 1, 1)]),
        (f"{{{BATCH}}}", []),
    ],
)
def test_a_program_that_reads_strict_json(target: str, text: str, expected: list[tuple[str, str, int, int]]) -> None:
    assert told(text, target) == expected


def test_python_reads_what_is_called_strict_and_refuses_the_rest() -> None:
    for text, strict in ((f"{{{BATCH},}}", False), (f"{{{BATCH}}} // x", False), (f"{{{BATCH},{BATCH}}}", True)):
        assert (told(text, "hf-trainer")[0][0] != "not-strict-json") == strict
        try:
            json.loads(text)
        except json.JSONDecodeError:
            assert not strict
        else:
            assert strict


def test_one_fault_is_one_finding() -> None:
    text = f'{{{BATCH},\n"zero_optimization": {{"stage": ZERO_STAGE,\n}}\n}}'
    found = lint(read(text, "x.json"), target="deepspeed")

    errors = [item.rule for item in found if item.path == "zero_optimization.stage"]
    assert errors == ["template-placeholder"]


def test_a_python_literal_is_mended_as_it_was_meant() -> None:
    (found,) = text_findings(f'{{{BATCH},\n"zero_allow_untested_optimizer": True,\n}}')

    assert found.fix is not None
    assert found.fix.edits == (Assign("zero_allow_untested_optimizer", True),)


@pytest.mark.parametrize("rule", ["not-utf8", "too-large", "unreadable-file"])
def test_a_file_without_text_is_a_finding(rule: str) -> None:
    (found,) = lint(unreadable("x.json", rule, "it is a folder"))

    assert (found.rule, found.severity, found.line, found.message) == (rule, Severity.ERROR, 1, "it is a folder")


def test_duplicates_of_yaml_are_no_error() -> None:
    found = lint(yaml_documents.read(f"{BATCH}\n{BATCH}\n", "x.yaml"), target="deepspeed")

    assert [str(item.severity) for item in found if item.rule == "duplicate-key"] == ["warning"]


def test_numbers_that_are_none_are_found_in_every_form() -> None:
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "Adam", "params": {"betas": [0.9, float("inf")]}},
    }
    written = yaml_documents.read("train_micro_batch_size_per_gpu: 1\ngradient_clipping: .nan\n", "x.yaml")

    assert [item.path for item in lint_config(config) if item.rule == "not-a-number"] == ["optimizer.params.betas[1]"]
    assert [item.path for item in lint(written) if item.rule == "not-a-number"] == ["gradient_clipping"]


def test_no_config_of_ours_that_is_read_has_an_error_of_its_text() -> None:
    for name, text in own_configs.texts().items():
        errors = {item.rule for item in text_findings(text) if item.severity is Severity.ERROR}
        assert errors == ({"broken-syntax"} if name in own_configs.BROKEN else set()), name


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}' * (MAX_BYTES // 8),
        "a: 1\n" * (MAX_BYTES // 8),
        "#\n" * (MAX_BYTES // 8),
        '"' * MAX_BYTES,
        "{" + '"a": {"b": 1},' * (MAX_BYTES // 20),
        "[" * MAX_BYTES,
        "x " * (MAX_BYTES // 2),
    ],
    ids=["configs", "duplicates", "comments", "quotes", "sections", "brackets", "words"],
)
def test_a_megabyte_of_nonsense_is_read_in_seconds(text: str) -> None:
    begun = time.monotonic()

    assert text_findings(text)

    assert time.monotonic() - begun < 30


@given(st.text(), st.sampled_from(("deepspeed", "hf-trainer")))
def test_no_text_breaks_a_rule(text: str, target: str) -> None:
    for read_as in (read, yaml_documents.read):
        found = lint(read_as(text, "x"), target=target)
        assert [item.message for item in found if item.rule == "rule-broke"] == []


@pytest.mark.parametrize(
    ("config", "digits"),
    [
        ({"gradient_clipping": 10**5000}, "5,001"),
        ({"optimizer": {"type": "AdamW", "params": {"betas": [0.9, -(10**4299) * 10]}}}, "4,301"),
    ],
    ids=["value", "item of a list"],
)
def test_a_number_in_a_dict_that_python_does_not_write_is_one_that_it_does_not_read(
    config: dict[str, Any], digits: str
) -> None:
    found = lint_one({"train_micro_batch_size_per_gpu": 1, **config}, Settings()).findings

    assert [(item.rule, digits in item.message) for item in found] == [("number-too-large", True)]


def test_the_longest_number_that_python_writes_is_read() -> None:
    found = lint_one({"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 10**4299}, Settings()).findings

    assert "number-too-large" in [item.rule for item in found]
    assert not any("Python reads at most" in item.message for item in found)
