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


def test_a_named_run_has_every_number_in_its_interval_and_would_run() -> None:
    """The tolerance is the model's error of that run, and nothing wider."""
    limit = dsgen.memory(JOB).memory.gpu.limit_bytes
    for size in (30 * GIB, 45 * GIB, 70 * GIB, 77 * GIB):
        for one in told(allocated=size, reserved=size + GIB):
            for other in one.others:
                assert other.expected.low <= one.bytes <= other.expected.high
                assert other.bytes <= limit
                if one.reading == "allocated":
                    assert other.expected.high <= 1.05 * other.bytes


def test_what_would_move_a_number_that_agrees_explains_nothing() -> None:
    """Twice the length reserves what was read, but would allocate more than was read too."""
    gpu = dsgen.memory(JOB).memory.gpu
    size = gpu.reserved.high + 4 * GIB
    alone = {other.words for one in told(reserved=size) for other in one.others}
    both = {other.words for one in told(reserved=size, allocated=gpu.allocated_bytes) for other in one.others}

    assert len(alone) > len(both)
    assert not any(words.startswith(("ZeRO", "sequences", "micro-batch")) for words in both)
    options = [f"--{name.replace('_', '-')}={value}" for name, value in JOB.items()]
    readings = [f"--observed=reserved={size}B", f"--observed=allocated={gpu.allocated_bytes}B"]
    assert "ZeRO-1" not in run("memory", *options, *readings).out.partition("host ")[0]


def test_another_process_explains_what_nvidia_smi_alone_shows() -> None:
    gpu = dsgen.memory(JOB).memory.gpu
    reserved, more = gpu.reserved.bytes, 12 * GIB
    shown = gpu.shown.bytes + more
    (_, of_smi) = told(reserved=reserved, nvidia_smi=shown)

    first = of_smi.others[0]
    assert first.words == "another process on the GPU with 12.0 GiB"
    assert first.options == {"gpu_memory_used": f"{12 * 1024}MiB"}
    assert first.expected.low <= shown <= first.expected.high
    shared = dsgen.memory({**JOB, **first.options}, observed={"nvidia-smi": shown, "reserved": reserved})
    assert all(one.within for one in shared.observations)
    more_reserved = told(reserved=gpu.reserved.high + 2 * GIB, nvidia_smi=gpu.shown.high + 2 * GIB)
    assert not any("process" in other.words for one in more_reserved for other in one.others)


def test_an_evaluation_explains_a_peak_that_the_steps_do_not_reach() -> None:
    job = {**JOB, "checkpointing": "full", "model": "llama-3-8b", "seq_len": 4096}
    footprint = dsgen.memory(job)
    (evaluation,) = (one for one in footprint.later if one.noun == "evaluation")
    assert evaluation.gpu.peak_bytes > 1.2 * footprint.memory.gpu.peak_bytes
    (seen,) = dsgen.memory(job, observed={"allocated": evaluation.gpu.allocated_bytes}).observations
    assert "an evaluation of 8 sequences" in [other.words for other in seen.others]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (0, "it must be more than 0"),
        (-5, "it must be more than 0"),
        (True, "it must be whole bytes, or a size"),
        (61.2, "it must be whole bytes, or a size"),
        (None, "it must be whole bytes, or a size"),
        ("61", "it must be a number with a unit"),
        ("6,5GiB", "a comma stands between thousands; write 6.5 GiB"),
    ],
)
def test_python_is_told_what_a_reading_must_be(given: Any, words: str) -> None:
    with pytest.raises(DsgenError, match="observed reserved is") as caught:
        dsgen.memory(JOB, observed={"reserved": given})
    assert words in str(caught.value)


def test_python_may_say_a_size_as_people_write_it() -> None:
    as_text, as_bytes = (dsgen.memory(JOB, observed={"reserved": one}).observations for one in ("61GiB", 61 * GIB))
    assert as_text == as_bytes


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
        ("reserved=6,5GiB", "write 6.5 GiB"),
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
    (whole,) = observe(question, {"nvidia-smi": 80 * GIB})  # more than torch can have, and what the card has
    assert whole.bytes == 80 * GIB
    with pytest.raises(DsgenError, match=r"the GPU has 80\.0"):
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
