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
        ("used=3GiB", "it must be one of allocated, reserved, nvidia-smi, host"),
        ("reserved", "it must be one of allocated, reserved, nvidia-smi, host"),
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
    with pytest.raises(DsgenError, match="it must be one of allocated, reserved, nvidia-smi, host"):
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


def pieces(**readings: int) -> Any:
    told = {name.replace("_", "-"): size for name, size in readings.items()}
    return {one.piece: one for one in dsgen.memory(JOB, observed=told).differences}


def test_the_pieces_of_a_run_add_up_to_what_was_read_and_to_what_is_predicted() -> None:
    gpu = dsgen.memory(JOB).memory.gpu
    made = pieces(allocated=58 * GIB, reserved=62 * GIB, nvidia_smi=64 * GIB)

    tensors, holes, outside = made.values()
    assert [one.bytes for one in made.values()] == [58 * GIB, 4 * GIB, 2 * GIB]
    assert sum(one.expected.bytes for one in made.values()) == gpu.shown.bytes
    assert sum(tensors.parts.values()) == gpu.allocated_bytes
    assert set(gpu.parts) <= set(tensors.parts)
    assert sum(holes.parts.values()) == gpu.reserved_bytes - gpu.allocated_bytes
    assert sum(outside.parts.values()) == gpu.overhead_bytes - gpu.workspace_bytes


def test_one_reading_alone_has_the_parts_of_all_below_it() -> None:
    gpu = dsgen.memory(JOB).memory.gpu
    (whole,) = pieces(nvidia_smi=64 * GIB).values()
    assert sum(whole.parts.values()) == whole.expected.bytes == gpu.shown.bytes


@pytest.mark.parametrize("part", ["optimizer states", "weights", "activations"])
def test_a_part_that_is_held_once_more_or_not_at_all_is_a_candidate(part: str) -> None:
    gpu = dsgen.memory(JOB).memory.gpu
    for size in (gpu.allocated_bytes + gpu.parts[part], gpu.allocated_bytes - gpu.parts[part]):
        if size > gpu.limit_bytes:
            continue
        (tensors,) = pieces(allocated=size).values()
        assert tensors.candidates[0].part == part
        assert tensors.candidates[0].bytes == gpu.parts[part]


def test_a_candidate_brings_its_piece_into_the_interval_and_is_about_as_large() -> None:
    for size in (40 * GIB, 50 * GIB, 64 * GIB, 70 * GIB, 77 * GIB):
        (tensors,) = pieces(allocated=size).values()
        for one in tensors.candidates:
            left = size - one.bytes if tensors.beyond > 0 else size + one.bytes
            assert tensors.expected.low <= left <= tensors.expected.high
            assert 0.5 < one.bytes / abs(tensors.beyond) < 2
    (agrees,) = pieces(allocated=dsgen.memory(JOB).memory.gpu.allocated_bytes).values()
    assert agrees.candidates == ()


def test_holes_and_other_processes_are_candidates_of_any_size() -> None:
    gpu = dsgen.memory(JOB).memory.gpu
    made = pieces(allocated=gpu.allocated_bytes, reserved=gpu.reserved.high + 2 * GIB, nvidia_smi=79 * GIB)
    _, holes, outside = made.values()
    assert [(one.part, one.bytes) for one in holes.candidates] == [("held free by torch's allocator", None)]
    assert [(one.part, one.bytes) for one in outside.candidates] == [("other processes", None)]


def test_a_nodes_ram_is_compared_with_what_is_predicted_of_it() -> None:
    ram = dsgen.memory(JOB).memory.host
    (found,) = told(host=ram.needed_bytes)
    assert found.within
    assert found.expected.bytes == ram.needed_bytes

    (found,) = told(host=8 * GIB)
    assert [other.words for other in found.others] == ["RAM that was read behind the load"]
    (piece,) = pieces(host=8 * GIB).values()
    assert piece.candidates[0].part == "weights"
    with pytest.raises(DsgenError, match=r"a node has 2,048"):
        told(host=4000 * GIB)


def test_a_save_explains_ram_that_training_does_not_take() -> None:
    small = {**JOB, "zero_stage": 3, "zero_init": True}
    footprint = dsgen.memory(small)
    (save,) = (one for one in footprint.later if one.noun == "saving")
    assert save.host.high_bytes > 1.1 * footprint.memory.host.high_bytes
    (seen,) = dsgen.memory(small, observed={"host": save.host.high_bytes}).observations
    assert "a save" in [other.words for other in seen.others]


def test_the_pieces_are_in_text_page_and_json() -> None:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in JOB.items()]
    readings = ("allocated=66GiB", "reserved=75GiB", "nvidia-smi=78GiB", "host=136GiB")
    command = ["memory", *options, *(word for one in readings for word in ("--observed", one))]
    shown = " ".join(run(*command).out.split())
    data = json.loads(run(*command, "--format", "json").out)["differences"]

    assert "outside torch (context, NCCL, other processes): 3.0 GiB (nvidia-smi less reserved), predicted" in shown
    assert "tensors, 7.3 GiB more, candidates by size alone: optimizer states 7.5" in shown
    assert "your run: host 136 GiB" in shown
    assert [(one["from"], one["to"]) for one in data] == [
        (None, "allocated"),
        ("allocated", "reserved"),
        ("reserved", "nvidia-smi"),
        (None, "host"),
    ]
    assert data[0]["candidates"][0]["part"] == "optimizer states"
    assert data[0]["more_bytes"] == data[0]["bytes"] - data[0]["expected_bytes"]
    page = run(*command, "--format", "html").out
    assert "candidates by size alone" in page
