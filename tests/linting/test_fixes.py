"""Fixing: what is mended stays mended, nothing new breaks, and fixing again changes nothing."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from dsgen.documents.document import Document
from dsgen.documents.hjson import reader
from dsgen.linting import fixes, launch_files, linter, wrapped_configs
from dsgen.linting.fixes import FixResult, diff, fix
from dsgen.linting.rules import RULES, Rule
from dsgen.linting.subjects import Facts
from dsgen.shapes.findings import Assign, Edit, Finding, Fix, Move, Remove, Severity

Check = Callable[[dict[str, Any]], Iterator[Finding]]


def finding(path: str, *edits: Edit, rule: str = "made-up", error: bool = False, safe: bool = True) -> Finding:
    return Finding(
        code=rule,
        rule=rule,
        severity=Severity.ERROR if error else Severity.WARNING,
        path=path,
        message="made up",
        fix=Fix("mend it", edits, safe=safe) if edits else None,
    )


def mended(text: str, *checks: Check, unsafe: bool = False, **others: Any) -> FixResult:
    """What fixing makes of a text with a linter of these checks."""

    def lint(document: Document) -> tuple[Finding, ...]:
        return tuple(item for check in checks for item in check(document.config or {}))

    return fix(reader.read(text, "ds.json"), unsafe=unsafe, lint=lint, read=reader.read, **others)


def unread(*names: str, safe: bool = True) -> Check:
    """A check that finds keys and removes them."""

    def check(config: dict[str, Any]) -> Iterator[Finding]:
        yield from (finding(name, Remove(name), rule="unread", safe=safe) for name in names if name in config)

    return check


def test_findings_are_mended_and_told_in_order() -> None:
    found = mended('{\n  "a": 1, // one\n  "b": 2,\n  "c": 3\n}\n', unread("c", "a"))

    assert found.text == '{\n  "b": 2\n}\n'
    assert [item.path for item in found.applied] == ["c", "a"]
    assert found.remaining == ()


def test_unsafe_fixes_wait_until_they_are_asked_for() -> None:
    checks = unread("a"), unread("b", safe=False)

    careful, bold = (mended('{"a": 1, "b": 2, "c": 3}', *checks, unsafe=unsafe) for unsafe in (False, True))

    assert (careful.text, [item.path for item in careful.remaining]) == ('{"b": 2, "c": 3}', ["b"])
    assert (bold.text, bold.remaining) == ('{"c": 3}', ())


def test_only_the_findings_that_are_wanted_are_mended() -> None:
    found = mended('{"a": 1, "b": 2}', unread("a", "b"), only=lambda item: item.path == "b")

    assert found.text == '{"a": 1}'
    assert [item.path for item in found.remaining] == ["a"]


@pytest.mark.parametrize(("section", "left"), [("timers", {}), ("zero_optimization", {"zero_optimization": {}})])
def test_an_emptied_section_stays_only_where_it_means_something(section: str, left: dict[str, Any]) -> None:
    def check(config: dict[str, Any]) -> Iterator[Finding]:
        if config.get(section):
            yield finding(f"{section}.a", Remove(f"{section}.a"))

    assert json.loads(mended(json.dumps({section: {"a": 1}}), check).text) == left


def test_a_fix_can_make_way_for_the_next() -> None:
    def misspelt(config: dict[str, Any]) -> Iterator[Finding]:
        if "stagee" in config:
            yield finding("stagee", Move("stagee", "stage"), rule="misspelt")

    def misplaced(config: dict[str, Any]) -> Iterator[Finding]:
        if "stage" in config:
            yield finding("stage", Move("stage", "zero.stage"), rule="misplaced")

    found = mended('{"stagee": 3}', misplaced, misspelt)

    assert json.loads(found.text) == {"zero": {"stage": 3}}
    assert [item.rule for item in found.applied] == ["misspelt", "misplaced"]


def test_fixes_that_touch_one_another_are_done_one_after_the_other() -> None:
    def check(config: dict[str, Any]) -> Iterator[Finding]:
        if "a" in config:
            yield finding("a", Remove("a"))
            for name in config["a"]:
                yield finding(f"a.{name}", Assign(f"a.{name}", 0))

    found = mended('{"a": {"b": 1}}', check)

    assert (found.text, [item.path for item in found.applied]) == ("{}", ["a"])


def test_items_of_one_list_are_taken_out_one_after_the_other() -> None:
    def check(config: dict[str, Any]) -> Iterator[Finding]:
        odd = [index for index, item in enumerate(config["a"]) if item % 2]
        yield from (finding(f"a[{index}]", Remove(f"a[{index}]")) for index in odd)

    assert mended('{"a": [1, 2, 3, 4, 5, 6]}', check).text == '{"a": [2, 4, 6]}'


def test_a_fix_that_does_not_mend_is_rolled_back_and_the_others_stay() -> None:
    def stubborn(config: dict[str, Any]) -> Iterator[Finding]:
        for name in config:
            yield finding(name, *([Remove(name)] if name in ("a", "c") else [Assign(name, 0)]))

    found = mended('{"a": 1, "b": 2, "c": 3}', stubborn)

    assert found.text == '{"b": 2}'
    assert [item.path for item in found.applied] == ["a", "c"]
    assert [item.path for item in found.remaining] == ["b"]


def test_a_fix_that_brings_an_error_is_rolled_back() -> None:
    def needed(config: dict[str, Any]) -> Iterator[Finding]:
        if "a" not in config:
            yield finding("a", rule="missing", error=True)

    found = mended('{"a": 1, "b": 2}', needed, unread("a", "b"))

    assert (found.text, [item.path for item in found.remaining]) == ('{"a": 1}', ["a"])


def test_a_warning_may_come_with_a_fix() -> None:
    def quiet(config: dict[str, Any]) -> Iterator[Finding]:
        if "a" not in config:
            yield finding("a", rule="missing")

    assert mended('{"a": 1, "b": 2}', quiet, unread("a")).text == '{"b": 2}'


def test_an_error_that_moves_with_its_section_is_no_new_one() -> None:
    def misspelt(config: dict[str, Any]) -> Iterator[Finding]:
        if "zerro" in config:
            yield finding("zerro", Move("zerro", "zero"))
        for name, section in config.items():
            if section["stage"] > 3:
                yield finding(f"{name}.stage", rule="too-high", error=True)

    assert mended('{"zerro": {"stage": 4}}', misspelt).text == '{"zero": {"stage": 4}}'


def test_a_new_name_that_is_as_wrong_as_the_old_one_is_rolled_back() -> None:
    def unknown(config: dict[str, Any]) -> Iterator[Finding]:
        yield from (finding(name, Move(name, "worse"), error=True) for name in config)

    assert mended('{"bad": 1}', unknown).text == '{"bad": 1}'


def test_two_fixes_that_undo_each_other_come_to_an_end() -> None:
    def swing(config: dict[str, Any]) -> Iterator[Finding]:
        for old, new in (("a", "b"), ("b", "a")):
            if old in config:
                yield finding(old, Move(old, new), rule=f"no-{old}")

    assert mended('{"a": 1}', swing).text == '{"b": 1}'


def test_a_fix_that_has_no_place_is_left() -> None:
    def check(config: dict[str, Any]) -> Iterator[Finding]:
        yield finding("a", Move("a", "b"))

    found = mended('{"a": 1, "b": 2}', check)

    assert (found.text, found.applied) == ('{"a": 1, "b": 2}', ())
    assert [item.path for item in found.remaining] == ["a"]


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"a": 1, "a": 2}'])
def test_a_text_that_cannot_be_edited_stays_as_it_is(text: str) -> None:
    def check(config: dict[str, Any]) -> Iterator[Finding]:
        yield finding("a", Remove("a"))

    assert mended(text, check, unsafe=True).text == text


# The rules of the house.


def of_rule(rule: Rule) -> Callable[[Document], tuple[Finding, ...]]:
    """The linter with what the rule's example needs."""
    fields = {field.name for field in attrs.fields(Facts)}
    known = {name: rule.given[name] for name in ("target", "deepspeed") if name in rule.given}
    facts = Facts(**{name: value for name, value in rule.given.items() if name in fields})
    return functools.partial(linter.lint, facts=facts, **known)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_fixing_the_example_of_a_rule_once_is_enough(rule: Rule) -> None:
    read = launch_files.read if rule.reads == "launch" else reader.read
    lint = of_rule(rule)
    document = read(rule.example, "example")

    found = fix(document, unsafe=True, lint=lint, read=read)

    again = fix(read(found.text, "example"), unsafe=True, lint=lint, read=read)
    assert (again.text, again.applied) == (found.text, ())
    left = [item for item in found.remaining if item.rule == rule.name and fixes.is_fixable(item, unsafe=True)]
    assert left == [], "a rule's fix mends its own example"
    assert found.remaining == lint(read(found.text, "example"))
    assert (found.text == rule.example) == (not found.applied)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_fixing_the_example_of_a_rule_brings_no_other_fault(rule: Rule) -> None:
    read = launch_files.read if rule.reads == "launch" else reader.read
    lint = of_rule(rule)

    def alone(document: Document) -> tuple[Finding, ...]:
        return tuple(item for item in lint(document) if item.rule == rule.name)

    def faults(text: str) -> set[str]:
        return {item.rule for item in lint(read(text, "example")) if item.severity > Severity.INFO}

    mended = fix(read(rule.example, "example"), unsafe=True, lint=alone, read=read)

    assert faults(mended.text) <= faults(rule.example) | faults(rule.instead)


def test_a_config_in_a_yaml_file_is_fixed_in_that_file() -> None:
    text = (
        "lr: 1.0e-4\ndeepspeed:  # ours\n  train_batch_size: 8\n  zero_optimization:\n    stagee: 2 # two\nbf16: true\n"
    )

    def read(text: str, name: str) -> Document:
        return wrapped_configs.read(text, name).document

    def lint(document: Document) -> tuple[Finding, ...]:
        found = "stagee" in document.config["zero_optimization"]
        here = "zero_optimization.stage"
        return (finding(f"{here}e", Move(f"{here}e", here)),) if found else ()

    found = fix(read(text, "train.yaml"), unsafe=False, lint=lint, read=read)

    assert found.text == text.replace("stagee", "stage")


def test_a_launch_file_is_fixed() -> None:
    text = "#!/bin/bash\nexport CUDA_VISIBLE_DEVICE=0  # one\ndeepspeed train.py\n"

    def lint(document: Document) -> tuple[Finding, ...]:
        old = "CUDA_VISIBLE_DEVICE"
        return (finding(old, Move(old, f"{old}S")),) if old in document.config else ()

    found = fix(launch_files.read(text, "run.sh"), unsafe=False, lint=lint, read=launch_files.read)

    assert found.text == text.replace("DEVICE=", "DEVICES=")


# The diff.


def test_a_diff_shows_what_changed() -> None:
    assert diff("a\nb\nc\n", "a\nc\n", "ds.json") == "--- ds.json\n+++ ds.json\n@@ -1,3 +1,2 @@\n a\n-b\n c\n"
    assert diff("a\n", "a\n", "ds.json") == ""


def test_a_diff_says_where_the_last_line_has_no_end() -> None:
    assert diff("a\nb", "a\nc", "x").endswith(
        " a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n"
    )
    assert diff("a", "a\n", "x").endswith("-a\n\\ No newline at end of file\n+a\n")


def test_a_diff_keeps_line_ends_and_odd_separators() -> None:
    assert diff("a\r\nb\u2028c\r\n", "a\r\nb\u2028d\r\n", "x").endswith(" a\r\n-b\u2028c\r\n+b\u2028d\r\n")
