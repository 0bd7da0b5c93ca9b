"""`dsgen memory --format html`: the page says what the text says, of each phase from load to resume."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

import dsgen
from dsgen.memory import Verdict
from dsgen.memory.card_numbers import card
from dsgen.report import footprints, memory, memory_page, memory_words
from dsgen.report.bars import card_line, room_line, said
from dsgen.report.headroom import headroom_line, verdict_line
from dsgen.report.observed import observed_lines
from dsgen.shapes.units import gib

SAID = {"hw": "a100-80g", "gpus": 8, "model": "7b", "zero_stage": 2, "micro_batch": 1, "loading": "fp32"}


def words(page: str) -> str:
    """What a reader sees, with one blank between words."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page[page.index("<body>") :])).split())


@pytest.fixture(scope="module", params=[{}, {"zero_stage": 3, "zero_init": False, "model": "70b"}], ids=["fits", "not"])
def footprint(request: Any) -> Any:
    return dsgen.memory({**SAID, **request.param}, observed={"reserved": 61 * 2**30})


def test_the_page_says_each_line_that_the_text_says(footprint: Any) -> None:
    shown, text = words(memory_page.html(footprint)), " ".join(memory.text(footprint, 500).split())
    told = [*memory_words.warnings(footprint), *observed_lines(footprint)]
    told += [answer for _, answer in memory_words.answers(footprint)]
    assert len(told) > 6
    for line in told:
        assert line in shown
        assert line in text


@pytest.mark.parametrize("target", ["llama-factory", None])
def test_the_page_says_what_the_program_decides(target: str | None) -> None:
    asked = dsgen.memory({name: SAID[name] for name in ("hw", "gpus", "model", "zero_stage")}, target=target)
    shown, text = words(memory_page.html(asked)), " ".join(memory.text(asked, 500).split())
    lines = memory.said_lines(asked.question)

    assert any(line.startswith("--target llama-factory: kbit fp32 never, loading") for line in lines) is bool(target)
    for line in lines:
        assert line in shown
        assert line in text


def test_the_page_has_every_phase_from_load_to_resume(footprint: Any) -> None:
    page = memory_page.html(footprint)
    rows = re.findall(r"<tr><td>([^<]*)</td>", page)
    for phase in ("load", "init", "step 1: forward", "step 1: backward", "evaluate 8 sequences", "save", "resume"):
        assert phase in rows


def test_json_has_the_same_warnings(footprint: Any) -> None:
    data = memory.data(footprint)
    assert data["warnings"] == list(memory_words.warnings(footprint))
    assert set(data["loading"]["notes"]) <= set(data["warnings"])


def test_the_page_has_the_numbers_of_each_place_that_the_text_has(footprint: Any) -> None:
    """What it needs with all else, the limit, the verdict and the interval; and the lines below the GPU's parts."""
    shown, told = words(memory_page.html(footprint)), memory.text(footprint, 500)
    for label, place in (("one GPU", footprint.memory.gpu), ("one node's RAM", footprint.memory.host)):
        assert f"{label}: {gib(place.needed_bytes)} of {gib(place.limit_bytes)} GiB: {said(place)} peak in" in shown
        assert f"{gib(place.needed_bytes)} of {gib(place.limit_bytes)} GiB" in told
        assert re.search(
            rf"with what no tensor holds {place.needed_bytes:,} {re.escape(gib(place.needed_bytes))} ", shown
        )
    lines = (
        card_line(footprint.memory.gpu),
        room_line(footprint.memory.gpu),
        headroom_line(footprint.memory, footprint.later),
    )
    assert "; ".join(lines) in shown
    for line in (*lines, verdict_line(footprint)):
        assert line in told
        assert line in shown


def test_json_has_the_numbers_of_those_lines(footprint: Any) -> None:
    data, gpu = memory.data(footprint), footprint.memory.gpu
    held = data["card"]
    line = card_line(gpu)
    assert gib(held["allocated_bytes"]) in line
    if gpu.verdict is not Verdict.DOES_NOT_FIT:
        assert f"reserves {gib(held['reserved_bytes'])} ({gib(held['reserved_low_bytes'])} to " in line
        assert f"nvidia-smi {gib(held['nvidia_smi_bytes'])}" in line
        assert held["held_free_bytes"] == held["reserved_bytes"] - held["allocated_bytes"]
        assert held["nvidia_smi_low_bytes"] <= held["nvidia_smi_bytes"] <= held["nvidia_smi_high_bytes"]
    assert f"below {gib(held['most_allocated_bytes'])} GiB" in room_line(gpu)
    assert held["words"] == f"{line}; {room_line(gpu)}"
    assert data["headroom"]["words"] == headroom_line(footprint.memory, footprint.later)
    assert data["gpu"]["needed_bytes"] == gpu.needed_bytes
    first = data["headroom"]["first_to_fail"]
    assert f"{first['phase']} " in headroom_line(footprint.memory, footprint.later)
    if gpu.verdict is Verdict.FITS and footprint.first_to_fail.verdict is Verdict.FITS:
        assert headroom_line(footprint.memory, footprint.later).startswith(gib(data["headroom"]["gpu_bytes"]))


def test_phases_stand_beside_what_no_tensor_holds_and_what_there_is(footprint: Any) -> None:
    """So that the highest phase and the first of these rows make the number of the card."""
    gpu, host = footprint.memory.gpu, footprint.memory.host
    rows = {name: numbers for name, *numbers in footprints.beside(footprint.memory)}
    assert rows["besides, no tensor"] == [gib(gpu.overhead_bytes), gib(host.overhead_bytes)]
    assert rows["there is"] == [gib(gpu.limit_bytes), gib(host.limit_bytes)]
    most = max(phase.gpu_bytes for phase in footprint.memory.phases)
    assert most + gpu.overhead_bytes == gpu.needed_bytes
    for name, numbers in rows.items():
        assert " ".join((name, *numbers)) in " ".join(memory.text(footprint, 80).split())
        assert " ".join((name, *numbers)) in words(memory_page.html(footprint))


@pytest.mark.parametrize("deepspeed", ["0.15.4", None])
@pytest.mark.parametrize("hardware", ["a100-80g", "h200-141g", "b200-180g"])
@pytest.mark.parametrize("stage", [0, 2, 3])
def test_no_more_is_allocated_than_reserved_nor_reserved_than_the_card_leaves(
    stage: int, hardware: str, deepspeed: str | None
) -> None:
    """Also where the interval reaches far below what is expected, as of BF16_Optimizer at stage 0."""
    job = {**SAID, "model": "llama-3-8b", "hw": hardware, "zero_stage": stage, "checkpointing": "full", "tp": 1}
    gpu = dsgen.memory(job, deepspeed=deepspeed).memory.gpu
    read = card(gpu)
    assert read.reserved.low <= read.reserved.bytes <= read.reserved.high
    if read.runs:
        assert read.allocated <= read.reserved.bytes
        assert read.reserved.high + read.outside <= gpu.limit_bytes
        assert read.reserved.bytes + read.outside <= read.shown.bytes
        assert "torch allocates" in card_line(gpu)
    else:
        assert gpu.verdict is not Verdict.FITS
        assert card_line(gpu).startswith(f"torch would have to allocate {gib(read.allocated)} GiB")
        assert read.least_allocated <= read.allocated
        assert "reserves" not in card_line(gpu)


def test_names_are_escaped(tmp_path: Any) -> None:
    file = tmp_path / "a<b>.yaml"
    file.write_text("extends: 7b\n", encoding="utf-8")
    page = memory_page.html(dsgen.memory({**SAID, "model": str(file)}))
    assert "<b>.yaml" not in page
