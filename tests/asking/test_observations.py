"""A run of one's own beside what is predicted: what is named must take about as much."""

from __future__ import annotations

import json
from typing import Any

import pytest
from command_line import run

import dsgen
from dsgen.asking.memory_questions import observe, observed
from dsgen.asking.memory_questions import question as asked
from dsgen.shapes.errors import DsgenError

GIB = 2**30
JOB = {
    "hw": "a100-80g",
    "model": "llama-3.1-8b",
    "gpus": 8,
    "zero_stage": 2,
    "micro_batch": 1,
    "checkpointing": "none",
    "offload": "none",
    "tp": 1,
}


def told(**readings: int) -> Any:
    return dsgen.memory(JOB, observed={name.replace("_", "-"): size for name, size in readings.items()}).observations


def test_a_number_in_the_interval_needs_no_other_run() -> None:
    gpu = dsgen.memory(JOB).memory.gpu
    (found,) = told(allocated=gpu.allocated_bytes)

    assert found.within
    assert found.more == 0
    assert found.others == ()


def test_another_stage_is_named_where_it_takes_as_much() -> None:
    first = dsgen.memory({**JOB, "zero_stage": 1}).memory.gpu.allocated_bytes
    (found,) = told(allocated=first)

    assert not found.within
    named = {other.words: other for other in found.others}
    assert named["ZeRO-1"].bytes == first
    assert named["ZeRO-1"].options == {"zero_stage": 1}
    assert found.others[0].words == "ZeRO-1"


def test_a_named_run_explains_at_least_half_of_the_difference_and_would_run() -> None:
    limit = dsgen.memory(JOB).memory.gpu.limit_bytes
    for size in (30 * GIB, 45 * GIB, 70 * GIB, 78 * GIB):
        (found,) = told(allocated=size)
        for other in found.others:
            assert 0.5 <= (other.bytes - found.expected.bytes) / found.more <= 1.5
            assert other.bytes <= limit


def test_each_reading_is_beside_the_number_that_means_the_same() -> None:
    gpu = dsgen.memory(JOB).memory.gpu
    found = {one.reading: one for one in told(allocated=58 * GIB, reserved=62 * GIB, nvidia_smi=64 * GIB)}

    assert found["allocated"].expected.bytes == gpu.allocated_bytes
    assert found["reserved"].expected.bytes == gpu.reserved_bytes
    assert found["nvidia-smi"].expected.bytes == gpu.shown.bytes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("used=3GiB", "it must be one of allocated, reserved, nvidia-smi"),
        ("reserved", "it must be one of allocated, reserved, nvidia-smi"),
        ("reserved=61.2", "it must be a number with a unit"),
        ("reserved=-1GiB", "it must be a number with a unit"),
        ("reserved=0GiB", "it must be more than 0"),
    ],
)
def test_what_is_no_reading_is_said_so(text: str, words: str) -> None:
    with pytest.raises(DsgenError, match="--observed") as caught:
        observed([text])
    assert words in str(caught.value)


def test_one_number_is_given_once() -> None:
    assert observed(["reserved=2GiB", "allocated=1GiB"]) == {"reserved": 2 * GIB, "allocated": GIB}
    with pytest.raises(DsgenError, match="--observed reserved is given twice"):
        observed(["reserved=2GiB", "reserved=3GiB"])


def test_what_no_card_can_show_is_refused() -> None:
    question = asked(dsgen.job(JOB), None)
    with pytest.raises(DsgenError, match=r"the GPU has 79\.2"):
        observe(question, {"reserved": 90 * GIB})
    with pytest.raises(DsgenError, match="it must be one of allocated, reserved, nvidia-smi"):
        observe(question, {"used": 50 * GIB})
    with pytest.raises(DsgenError, match="allocated is a part of reserved"):
        observe(question, {"reserved": 50 * GIB, "allocated": 60 * GIB})


def test_the_command_shows_it_as_text_and_json() -> None:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in JOB.items()]
    command = ["memory", *options, "--observed", "allocated=70GiB", "--observed", "reserved=75GiB"]
    shown = run(*command)
    data = json.loads(run(*command, "--format", "json").out)

    assert shown.code == 0, shown.err
    assert "your run: allocated 70.0 GiB" in shown.out
    assert "held free by torch's allocator: 5.0 GiB" in shown.out
    assert all(len(line) <= 80 for line in shown.out.splitlines())
    assert [one["reading"] for one in data["observations"]] == ["allocated", "reserved"]
    assert data["observations"][0]["others"][0]["words"] == "ZeRO-1"
