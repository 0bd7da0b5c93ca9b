"""The numbers of a card in `dsgen render` and `dsgen memory`: of one job they never contradict each other."""

from __future__ import annotations

import re
from typing import Any

import pytest

import dsgen
from dsgen.report import memory, summary
from dsgen.report.plan import job_line

NUMBER = r"[\d.,]+"
SMALL_NODE = {
    "hw": "a100-80g",
    "model": "llama-3-8b",
    "gpus": 8,
    "zero_stage": 2,
    "host_memory": "130GiB",
    "loading": "mapped",
    "tp": 1,
}


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


@pytest.mark.parametrize(("hardware", "model"), [("a100-40g", "7b"), ("h100-80g", "8b"), ("rtx4090-24g", "qwen3-8b")])
def test_a_render_tells_what_is_left_as_memory_does(hardware: str, model: str) -> None:
    method = "qlora" if hardware == "rtx4090-24g" else "full"
    job = {"hw": hardware, "model": model, "gpus": 4, "method": method}
    config = dsgen.render(job)
    gpu = config.plan.chosen.memory.gpu
    line = re.search(rf"^      torch must stay below ({NUMBER}) GiB, ({NUMBER}) stay free; (\w+) would fail first$",
                     summary.text(config), re.M)  # fmt: skip
    told = memory.text(dsgen.memory(job), 200)

    assert line is not None
    assert len(line[0]) <= 80
    assert f"must stay below {line[1]} GiB" in told
    assert float(line[2]) == pytest.approx((gpu.limit_bytes - gpu.high_bytes) / 2**30, abs=0.06)
    assert line[3] in ("forward", "backward", "step", "load", "init")


@pytest.mark.parametrize(
    ("job", "target", "first"),
    [
        ({"hw": "h100-80g", "model": "qwen2.5-32b", "gpus": 8}, "hf-trainer", "evaluation would fail first"),
        ({"hw": "h100-80g", "model": "qwen2.5-32b", "gpus": 8}, "deepspeed", "backward would fail first"),
        ({"hw": "h100-80g", "model": "qwen2.5-32b", "gpus": 8}, "accelerate", "backward would fail first"),
        (SMALL_NODE, "hf-trainer", "save fails first, in host RAM"),
    ],
)
def test_what_a_program_does_between_steps_may_be_the_first_to_fail(
    job: dict[str, Any], target: str, first: str
) -> None:
    """As `memory --target` says of the same job."""
    told = " ".join(summary.text(dsgen.render(job), "ds.json", target).split())
    asked = dsgen.memory(job, target=target if target != "deepspeed" else None)
    free = re.search(rf"must stay below {NUMBER} GiB, ({NUMBER}) stay free; [^;]*? first", told)

    assert first in told
    assert free is not None
    if target == "hf-trainer" and "host_memory" not in job:
        text = " ".join(memory.text(asked, 200).split())
        assert f"{free[1]} GiB stay free for what is not counted; evaluate 8 sequences would fail first" in text


def test_where_all_is_taken_no_number_is_below_0() -> None:
    told = memory.text(dsgen.memory({"hw": "a100-80g", "model": "1b", "gpus": 8, "gpu_memory_used": "79 GiB"}), 200)

    assert "nothing is left to it" in told
    assert "below -" not in told


def test_of_a_cpu_nobody_reads_nvidia_smi() -> None:
    job = {"hw": "cpu", "model": "125m", "gpus": 2, "zero_stage": 0, "tp": 1, "micro_batch": 1}
    rendered, footprint = summary.text(dsgen.render(job)), dsgen.memory(job)
    told, card = memory.text(footprint, 80), memory.data(footprint)["card"]

    assert "must stay below" not in rendered
    for text in (rendered, told):
        assert re.search(rf"^      tensors take {NUMBER} GiB of a rank's RAM; no allocator reserves more$", text, re.M)
        assert not re.search("nvidia|torch allocates|holes", text)
    assert {name for name, value in card.items() if value is None} == {
        "reserved_bytes", "reserved_low_bytes", "reserved_high_bytes", "held_free_bytes", "nvidia_smi_bytes"
    }  # fmt: skip


def test_a_memory_that_is_said_over_the_profile_stands_beside_its_name() -> None:
    job = {"model": "mistral-7b", "gpus": 1, "method": "qlora"}

    assert job_line(dsgen.plan({**job, "gpu_memory": "12 GiB"}).job).startswith(
        "mistral-7b on 1 generic-16g of 12.0 GiB,"
    )
    assert job_line(dsgen.plan({**job, "hw": "rtx4090-24g"}).job).startswith("mistral-7b on 1 rtx4090-24g, 4096")
