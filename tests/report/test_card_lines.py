"""The numbers of a card in `dsgen render` and `dsgen memory`: of one job they never contradict each other."""

from __future__ import annotations

import re

import pytest

import dsgen
from dsgen.report import memory, summary

NUMBER = r"[\d.,]+"


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize(("hardware", "model"), [("a100-40g", "7b"), ("a100-80g", "llama-3-8b"), ("h100-80g", "8b")])
def test_what_a_render_tells_of_reserved_holds_what_memory_replays(stage: int, hardware: str, model: str) -> None:
    job = {"hw": hardware, "model": model, "gpus": 8, "zero_stage": stage, "tp": 1}
    rendered = summary.text(dsgen.render(job))
    told = memory.text(dsgen.memory(job), 200)
    span = rf"reserves ({NUMBER}) to ({NUMBER}), nvidia-smi ({NUMBER}) to ({NUMBER}) GiB"
    short = re.search(rf"^      torch allocates ({NUMBER}), {span}$", rendered, re.M)
    long = re.search(rf"torch allocates ({NUMBER}), reserves ({NUMBER}) \(.*\) GiB; nvidia-smi ({NUMBER})", told)

    assert short is not None
    assert long is not None
    assert len(short[0]) <= 80
    allocated, least, most, shown_least, shown_most = map(float, short.groups())
    assert float(long[1]) == allocated
    assert least <= float(long[2]) <= most
    assert shown_least <= float(long[3]) <= shown_most


def test_of_a_cpu_nobody_reads_nvidia_smi() -> None:
    job = {"hw": "cpu", "model": "125m", "gpus": 2, "zero_stage": 0, "tp": 1, "micro_batch": 1}
    rendered, footprint = summary.text(dsgen.render(job)), dsgen.memory(job)
    told, card = memory.text(footprint, 80), memory.data(footprint)["card"]

    for text in (rendered, told):
        assert re.search(rf"^      tensors take {NUMBER} GiB of a rank's RAM; no allocator reserves more$", text, re.M)
        assert not re.search("nvidia|torch allocates|holes", text)
    assert {name for name, value in card.items() if value is None} == {
        "reserved_bytes", "reserved_low_bytes", "reserved_high_bytes", "held_free_bytes", "nvidia_smi_bytes"
    }  # fmt: skip
