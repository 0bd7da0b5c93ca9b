"""The causes held against short excerpts of public threads: code, phase and rank of each, and what is said of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dsgen.diagnosing import Diagnosis, diagnose
from dsgen.diagnosing.causes import BY_CODE, CAUSES
from dsgen.report import diagnosis as report

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "cases.json").read_text("utf-8"))
PAGE = Path(__file__).resolve().parents[2] / "docs" / "diagnose.md"
MOST_LINES, MOST_LETTERS = 4, 420  # of an excerpt: it is a quotation


def named(case: dict[str, Any]) -> str:
    """A case by its thread."""
    return str(case["source"]).removeprefix("https://github.com/")


def diagnosed(case: dict[str, Any]) -> Diagnosis:
    """What is said of an excerpt."""
    return diagnose(["\n".join(case["lines"]).encode() + b"\n"])


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_cause_of_a_thread_is_named(case: dict[str, Any]) -> None:
    answer = diagnosed(case)
    harmless = (one for one in answer.record.symptoms if one.harmless)  # said, and no cause
    root = answer.root or next(harmless, None)

    assert (root.code if root else answer.code) == case["code"]
    assert (root.phase if root else None, root.rank if root else None) == (case["phase"], case["rank"])


@pytest.mark.parametrize("case", CASES, ids=named)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_what_is_said_keeps_to_the_width(case: dict[str, Any], width: int) -> None:
    told = report.text(diagnosed(case), width)

    assert [line for line in told.splitlines() if len(line) > width and " " in line.strip()] == []
    assert told.count("\n  next  ") == (0 if case["code"] in ("overflow", "failed") and "next" not in told else 1)


def test_there_are_enough_cases_and_a_third_was_held_back() -> None:
    held_back = [case for case in CASES if case["held_back"]]

    assert len({case["source"] for case in CASES}) == len(CASES) >= 60
    assert len(held_back) * 3 >= len(CASES)
    assert {case["code"] for case in CASES} <= {*BY_CODE, "unknown-error", "failed"}


def test_an_excerpt_is_a_short_quotation_with_its_source() -> None:
    for case in CASES:
        assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/issues/\d+", case["source"])
        assert len(case["lines"]) <= MOST_LINES
        assert max(map(len, case["lines"])) <= MOST_LETTERS


@pytest.mark.parametrize("which", [1, 2, 3])
def test_the_page_says_how_many_were_right_at_first(which: int) -> None:
    cases = [case for case in CASES if case.get("round") == which]
    right = sum(case["right_at_first"] for case in cases)

    assert f"| {len(cases)} | {right} |" in PAGE.read_text("utf-8")


def test_causes_are_told_apart_and_sourced() -> None:
    assert len(BY_CODE) == len(CAUSES)
    for cause in CAUSES:
        assert cause.source.startswith("https://")
        assert cause.signs and cause.why.endswith(".") and cause.changes
        assert all(sign.pattern is None or sign.pattern.flags for sign in cause.signs)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.code)
def test_a_word_that_is_enough_names_its_cause_or_one_before_it(cause: Any) -> None:
    """No sign is dead: a line with its word alone is read, and taken by it or by a cause that stands before it."""
    before = [*CAUSES][: CAUSES.index(cause) + 1]
    for sign in cause.signs:
        if sign.pattern is not None:
            continue
        record = diagnose([f"RuntimeError: x {sign.word} y\n".encode()]).record
        assert [one.code for one in record.symptoms][:1] and record.symptoms[0].code in {one.code for one in before}


@pytest.mark.parametrize(
    ("line", "code", "phase"),
    [
        (
            "ValueError: Expected a string path to an existing deepspeed config, or a dictionary or a valid base64. "
            "Received: ds.json",
            "config-not-found",
            "init",
        ),
        (
            "AssertionError: DeepSpeed requires the LOCAL_RANK environment variable, it is set by the deepspeed "
            "launcher, deepspeed.init_distributed, or the torch's launcher.",
            "rank-variables-missing",
            None,
        ),
        (
            "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK "
            "expected, but not set",
            "rank-variables-missing",
            None,
        ),
        ("_pickle.UnpicklingError: Weights only load failed. This file", "checkpoint-not-plain", None),
    ],
)
def test_a_message_of_the_installed_releases_is_named(line: str, code: str, phase: str | None) -> None:
    """Messages of DeepSpeed 0.19.8 (runtime/config.py, engine.py) and torch 2.13 (rendezvous.py, serialization.py)."""
    frame = '  File "/v/deepspeed/runtime/config.py", line 450, in __init__\n    raise ValueError(\n'
    answer = diagnose([f"Traceback (most recent call last):\n{frame}{line}\n".encode()])

    assert answer.code == code
    assert phase is None or (answer.root is not None and answer.root.phase == phase)
