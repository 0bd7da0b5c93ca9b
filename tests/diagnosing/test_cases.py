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
        if sign.pattern is not None or sign.below:
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
        (
            "ValueError: Due to a serious vulnerability issue in `torch.load`, even with `weights_only=True`, we now "
            "require users to upgrade torch to at least v2.6 in order to use the function.",
            "torch-load-refused",
            None,
        ),
        ("ValueError: DeepSpeed Zero-3 is not compatible with passing a `device_map`.", "device-map-refused", None),
        ("ValueError: Type bf16 is not supported on your device.", "dtype-unsupported", "init"),
    ],
)
def test_a_message_of_the_installed_releases_is_named(line: str, code: str, phase: str | None) -> None:
    """Messages of DeepSpeed 0.19.8 (runtime/config.py, engine.py), torch 2.13 (rendezvous.py, serialization.py) and
    transformers 5.23 (utils/import_utils.py, integrations/accelerate.py).
    """
    frame = '  File "/v/deepspeed/runtime/config.py", line 450, in __init__\n    raise ValueError(\n'
    answer = diagnose([f"Traceback (most recent call last):\n{frame}{line}\n".encode()])

    assert answer.code == code
    assert phase is None or (answer.root is not None and answer.root.phase == phase)


TRACEBACK = "Traceback (most recent call last):"
NOT_JSON = "json.decoder.JSONDecodeError: Expecting ',' delimiter: line 12 column 5 (char 288)"


def json_error(file: str, code: str) -> list[str]:
    """What Python prints where a file reads JSON that is none, as every rank of a node does at once."""
    frame, inner = f'  File "{file}", line 143, in __init__', '  File "/usr/lib/python3.11/json/decoder.py", line 355'
    return [TRACEBACK, frame, f"    {code}", inner, "    raise JSONDecodeError(", NOT_JSON]


def read_lines(*lines: str) -> Diagnosis:
    """What is said of a log of these lines."""
    return diagnose(["\n".join(lines).encode() + b"\n"])


@pytest.mark.parametrize("file", ["accelerate/utils", "transformers/integrations", "transformers", "accelerate\\utils"])
def test_a_config_that_is_no_json_is_told_by_who_reads_it(file: str) -> None:
    separator = "\\" if "\\" in file else "/"
    lines = json_error(f"/v/{file}{separator}deepspeed.py", "config = json.load(f)")
    halves = (lines[:3], lines[3:])  # two ranks write into one log
    answer = read_lines(*(f"[rank{rank}]: {line}" for half in halves for rank in (0, 1) for line in half))

    assert answer.code == "config-unreadable"
    assert answer.root is not None and answer.root.ranks == (0, 1)
    assert answer.root.text == NOT_JSON
    assert "dsgen lint" in report.text(answer)


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("/v/train_deepspeed.py", "rows = json.load(f)"),  # a program's own data
        ("/v/deepspeed.py", "rows = json.load(f)"),
        ("/v/accelerate/utils/deepspeed.py", "config = json.loads(config_file_or_dict)"),  # a name that is no file
        ("/v/datasets/packaged_modules/json.py", "json.load(f)"),
    ],
)
def test_other_json_is_no_config(file: str, code: str) -> None:
    assert read_lines(*json_error(file, code)).code == "unknown-error"


def test_a_frame_counts_for_its_own_traceback_alone() -> None:
    config = json_error("/v/accelerate/utils/deepspeed.py", "config = json.load(f)")[:3]

    assert read_lines(*config, *json_error("/v/rows.py", "json.load(f)")).code == "unknown-error"
    assert read_lines(*(f"[rank0]: {line}" for line in config), f"[rank1]: {NOT_JSON}").code == "unknown-error"


@pytest.mark.parametrize(
    "line",
    [
        "A matching Triton is not available, some optimizations will not be enabled.\n"
        "Error caught was: No module named 'triton'",
        " [WARNING]  using untested triton version (2.1.0), only 1.0.0 is known to be compatible",
        " [WARNING]  please install triton==1.0.0 if you want to use sparse attention",
        "INFO: the default process group has 8 ranks; bf16 mixed precision is on; torch.load with weights_only=True",
        "Loading a model with device_map={'': 0} and low_cpu_mem_usage=True",
        "Failed to load CPU gemm_4bit_forward from kernels-community: No module named 'kernels'. Please make sure you "
        "already `pip install kernels` and the kernels >= 0.11.1",
        "model.norm.weight torch.Size([0]) is in parts",
    ],
)
def test_what_sounds_like_a_cause_and_is_none(line: str) -> None:
    """Lines of runs that go on: of kohya_ss#2203, ds_report and bitsandbytes, and words that signs are made of."""
    assert read_lines(line, "{'loss': 1.2, 'epoch': 0.1}").code is None


@pytest.mark.parametrize(("mark", "word"), [("Saving model checkpoint to x", "save_checkpoint"),
                                            ("***** Running Evaluation *****", "synced_gpus")])  # fmt: skip
def test_a_timeout_where_one_rank_works_alone_says_what_every_rank_does(mark: str, word: str) -> None:
    """The ALLGATHER of accelerate#2912, after what the Trainer says of the phase."""
    line = (
        "[rank1]:[E ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=6075, OpType=_ALLGATHER_BASE, NumelIn=1366, NumelOut=4098, Timeout(ms)=1800000) ran for "
        "1800391 milliseconds before timing out."
    )

    assert word in read_lines(mark, line).general[0]
    assert word not in " ".join(read_lines("***** Running training *****", line).general)


def test_the_error_is_quoted_and_not_the_line_that_raised_it() -> None:
    said = "RuntimeError: Direct calls to tensor.backward() are not supported in this configuration."
    frame = '  File "/v/deepspeed/runtime/engine.py", line 3130, in _backward_prologue'
    answer = read_lines(TRACEBACK, frame, f'    raise {said.replace(": ", "(", 1)}")', said)

    assert answer.root is not None
    assert (answer.root.text, answer.root.line, answer.root.count) == (said, 4, 1)
