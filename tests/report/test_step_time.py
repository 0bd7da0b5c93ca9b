"""What a report says of a step's time follows from the step: parts, critical path, micro-steps."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from timed import PASSES, simulation, time_of

from dsgen.report import step_time
from dsgen.report.step_time import group, longest, micro_steps
from dsgen.simulating import ALIKE


@pytest.mark.parametrize("passes", [1, 2, 3, PASSES])
def test_everything_adds_up_to_the_step(tmp_path: Path, passes: int) -> None:
    told = step_time.data(simulation(tmp_path, passes))

    assert told is not None
    whole = pytest.approx(told["step_seconds"], rel=1e-6)
    assert sum(told["parts"].values()) == whole
    assert sum(told["groups"].values()) == whole
    assert sum(told["critical_path"]["parts"].values()) == whole
    assert sum(one["seconds"] for one in told["critical_path"]["stretches"]) == whole
    assert sum(one["gpu_seconds"] for one in told["phases"]) == whole
    json.dumps(told)


@pytest.mark.parametrize("passes", [1, 2, 3, PASSES])
def test_micro_steps_and_the_optimizer_are_the_step(tmp_path: Path, passes: int) -> None:
    time = time_of(simulation(tmp_path, passes))

    told = micro_steps(time)

    optimizer = time.phases[-1]
    assert optimizer.phase == "step"
    each = [(last - first + 1) * sum(parts.values()) for first, last, parts in told]
    assert [first for first, *_ in told] == [1, *(last + 1 for _, last, _ in told[:-1])]
    assert told[-1][1] == max(passes, 2)
    steps = sum(one.gpu_seconds for one in time.phases if one.phase == "step" and one.micro_batch == max(passes, 2))
    assert sum(each) + steps == pytest.approx(time.seconds, rel=1e-6)


def test_passes_that_are_alike_are_told_as_one(tmp_path: Path) -> None:
    """All but the first few, in which the host gets ahead or the network is behind."""
    told = micro_steps(time_of(simulation(tmp_path)))

    assert len(told) <= 3
    assert told[-1][1] == PASSES


def test_what_is_added_up_is_no_stretch_of_its_own(tmp_path: Path) -> None:
    time = time_of(simulation(tmp_path, 100))

    assert any(one.what == ALIKE for one in time.stretches)
    assert all(ALIKE not in line for line in longest(time))


def test_stretches_of_the_same_work_are_one_line(tmp_path: Path) -> None:
    time = time_of(simulation(tmp_path, 2))

    lines = list(longest(time))

    assert len(lines) < len(time.stretches)
    assert any(re.match(r"2 x [\d.]+ m?s = [\d.]+ m?s$", line[0]) for line in lines)


@pytest.mark.parametrize("passes", [3, PASSES, 100])
def test_stretches_count_every_pass_those_that_are_added_up_too(tmp_path: Path, passes: int) -> None:
    time = time_of(simulation(tmp_path, passes))
    whole = sum(one.seconds + one.repeated_seconds for one in time.stretches if one.what != ALIKE)

    lines = list(longest(time))

    assert whole == pytest.approx(time.seconds, rel=1e-6)
    sums = [_seconds(line[0].rpartition("= ")[2]) for line in lines]
    assert sums == sorted(sums, reverse=True)
    assert sum(sums) == pytest.approx(time.seconds, rel=0.02)
    attention = next(line[0] for line in lines if line[1:3] == ["kernels", "backward"])
    assert attention.startswith(f"{passes} x ")


def test_modules_that_have_no_room_beside_a_stretch_stand_below_it_whole(tmp_path: Path) -> None:
    told = simulation(tmp_path)
    names = {name for line in longest(time_of(told)) for name in line[3].split(" to ") if name}

    narrow, wide = ("\n".join(step_time.text_lines(told, width)) for width in (60, 140))

    assert "model.layers.0.mlp" in names
    for name in names:
        assert name in narrow
        assert name in wide
    assert any(line.strip() in names for line in narrow.splitlines())


def _seconds(words: str) -> float:
    number, unit = words.split()
    return float(number) * {"s": 1.0, "ms": 1e-3}[unit]


@pytest.mark.parametrize(
    ("sort", "name"),
    [
        ("all-gather, nvlink", "communication"),
        ("reduce-scatter, infiniband", "communication"),
        ("send, ethernet", "communication"),
        ("drives, read", "offload"),
        ("CPU optimizer", "offload"),
        ("copies", "offload"),
        ("optimizer", "optimizer"),
        ("host-bound", "host-bound"),
    ],
)
def test_a_part_belongs_to_a_group(sort: str, name: str) -> None:
    assert group(sort) == name


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_text_fits_the_terminal(tmp_path: Path, width: int) -> None:
    told = simulation(tmp_path)

    lines = list(step_time.text_lines(told, width))

    assert max(map(len, lines)) <= width
    words = " ".join(" ".join(lines).split())
    assert "MFU" in lines[0] + lines[1]
    assert "dense peak of 312 TFLOP/s" in words
    assert any(line.startswith("  contention") for line in lines)
    assert any("micro-step, ms" in line and "optimizer" in line for line in lines)
