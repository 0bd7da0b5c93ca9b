"""The numbers of a card in `dsgen plan`, `render` and `memory`: of one job they never contradict each other."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

import dsgen
from dsgen.frameworks import between_steps
from dsgen.memory import Verdict
from dsgen.memory.first_failure import Failure
from dsgen.report import memory, plan_charts, summary
from dsgen.report import plan as plan_text
from dsgen.report.bars import room_line
from dsgen.report.headroom import headroom_line, plan_lines
from dsgen.report.plan import job_line
from dsgen.shapes.units import gib

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
def test_plan_and_render_say_which_stays_below_what_is_left_and_what_fails_first_in_the_words_of_memory(
    hardware: str, model: str
) -> None:
    method = "qlora" if hardware == "rtx4090-24g" else "full"
    job = {"hw": hardware, "model": model, "gpus": 4, "method": method}
    asked = dsgen.memory(job, target="hf-trainer")
    told = memory.text(asked, 500)
    plan = dsgen.plan(job)
    numbers, bounds = plan_lines(plan.chosen.memory, between_steps.laters(plan, "hf-trainer"))
    limit, _, kept = bounds.partition("; ")
    rendered = summary.text(dsgen.render(job), "ds.json", "hf-trainer")

    assert re.fullmatch(rf"allocated, with the allocator's holes, must stay below {NUMBER} GiB", limit)
    assert room_line(asked.memory.gpu).startswith(f"{limit} (")
    assert f"{limit} (" in told
    assert re.search(r" first(, in host RAM)?$", kept)
    assert f"      {kept}\n" in told
    assert kept == headroom_line(asked.memory, asked.later)
    for text in (rendered, *(plan_text.text(plan, width=width, target="hf-trainer") for width in (60, 80, 200))):
        assert f"{numbers} {bounds}" in " ".join(text.split())
    for text, width in ((rendered, 80), (plan_text.text(plan, width=80, target="hf-trainer"), 80)):
        assert max(map(len, text.splitlines())) <= width
    assert f"{numbers}\n" in plan_text.text(plan, width=200, target="hf-trainer")
    assert f"      {bounds}\n" in plan_text.text(plan, width=200, target="hf-trainer")


def test_the_page_of_a_plan_has_the_lines_of_its_text() -> None:
    plan = dsgen.plan({"hw": "a100-40g", "model": "7b", "gpus": 8})
    for target in (None, "hf-trainer"):
        known = between_steps.laters(plan, target or "deepspeed")
        page = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", plan_charts.html(plan, [], target))).split())
        for line in plan_lines(plan.chosen.memory, known):
            assert line in page
    assert "evaluate 8 sequences would fail first" in page


@pytest.mark.parametrize("target", [None, "hf-trainer"])
@pytest.mark.parametrize(
    "job",
    [
        {"hw": "a100-40g", "model": "7b", "gpus": 8},
        {"hw": "rtx3090-24g", "model": "8b", "gpus": 1, "method": "lora"},
        {"hw": "h100-80g", "model": "llama-3.1-70b", "nodes": 2, "network": "ib-ndr-3200g"},
        {"hw": "mi300x-192g", "model": "7b", "gpus": 8},
        {"hw": "cpu", "model": "125m", "gpus": 2},
    ],
    ids=["a100", "rtx3090", "h100", "mi300x", "cpu"],
)
def test_json_of_a_plan_has_the_keys_and_the_facts_of_memory(job: dict[str, Any], target: str | None) -> None:
    """But for what only a replay tells: the one number of reserved, and what follows from it."""
    plan, asked = dsgen.plan(job), memory.data(dsgen.memory(job, target=target))
    told = plan_text.data(plan, target)["chosen"]["memory"]
    card, kept = told["card"], told["headroom"]
    text = " ".join(plan_text.text(plan, width=500, target=target).split())

    assert list(card) == list(asked["card"])
    assert list(kept) == list(asked["headroom"])
    replayed = {"reserved_bytes", "held_free_bytes", "nvidia_smi_bytes"}
    intervals = {f"{name}_{end}_bytes" for name in ("reserved", "nvidia_smi") for end in ("low", "high")}
    for name in set(card) - replayed - intervals - {"words"}:
        assert card[name] == asked["card"][name]
    assert all(card[name] is None for name in replayed)
    assert all((card[name] is None) == (job["hw"] == "cpu") for name in intervals)
    if job["hw"] != "cpu":
        assert card["reserved_low_bytes"] <= asked["card"]["reserved_bytes"] <= card["reserved_high_bytes"]
        shown = f"{gib(card['nvidia_smi_low_bytes'])} to {gib(card['nvidia_smi_high_bytes'])} GiB"
        assert shown in card["words"]
        assert asked["card"]["words"].endswith(card["words"].partition("; ")[2])
        assert f"must stay below {gib(card['most_allocated_bytes'])} GiB" in text
        assert "given back first" in card["words"]
    assert card["words"].partition("; ")[0] in text
    assert kept["words"] in text
    assert kept["gpu_training_bytes"] == asked["headroom"]["gpu_training_bytes"]
    if target is not None:
        assert kept == asked["headroom"]
    else:
        assert kept["gpu_bytes"] == kept["gpu_training_bytes"]
        assert kept["first_to_fail"]["phase"] in ("load", "init", "forward", "backward", "step")


def test_what_may_lack_room_is_said_with_where_it_would_be_needed() -> None:
    """In the words of memory, whose verdict it is."""
    job = {"hw": "rtx3090-24g", "model": "8b", "gpus": 1, "method": "lora", "zero_stage": 2, "offload": "none"}
    plan, asked = dsgen.plan({**job, "micro_batch": 1}), dsgen.memory({**job, "micro_batch": 1})

    assert plan.chosen.memory.gpu.verdict is Verdict.UNCERTAIN
    told = " ".join(plan_text.text(plan).split())
    lacks = re.search(rf"must stay below {NUMBER} GiB; (up to {NUMBER} GiB too much, where [^;]*); \w+", told)
    assert lacks is not None
    assert lacks[1] in " ".join(memory.text(asked).split())


def test_a_step_of_the_optimizer_is_called_what_the_table_of_phases_calls_it() -> None:
    first = Failure("step", "gpu", 1, 2, 3, 4, 2)

    assert first.words == "optimizer step of step 2"
    assert first._replace(step=1).words == "optimizer step"
    assert first._replace(phase="backward").words == "backward of step 2"


@pytest.mark.parametrize(
    ("job", "target", "first"),
    [
        ({"hw": "h100-80g", "model": "qwen2.5-32b", "gpus": 8}, "hf-trainer", "evaluate 8 sequences would fail first"),
        ({"hw": "h100-80g", "model": "qwen2.5-32b", "gpus": 8}, "deepspeed", "backward would fail first"),
        ({"hw": "h100-80g", "model": "qwen2.5-32b", "gpus": 8}, "accelerate", "backward would fail first"),
        (SMALL_NODE, "hf-trainer", "save fails first, in host RAM"),
    ],
)
def test_what_a_program_does_between_steps_may_be_the_first_to_fail(
    job: dict[str, Any], target: str, first: str
) -> None:
    """As `memory --target` says of the same job."""
    rendered = " ".join(summary.text(dsgen.render(job), "ds.json", target).split())
    planned = " ".join(plan_text.text(dsgen.plan(job), target=target).split())
    asked = dsgen.memory(job, target=target if target != "deepspeed" else None)
    text = " ".join(memory.text(asked, 200).split())

    for told in (rendered, planned):
        free = re.search(rf"must stay below {NUMBER} GiB; ({NUMBER}) GiB stay free [\w ]+; [^;]*? first", told)
        assert first in told
        assert free is not None
        if target == "hf-trainer" and "host_memory" not in job:
            assert f"{free[1]} GiB stay free for what is not counted; {first}" in text
        if "host_memory" in job:
            assert f"{free[1]} GiB stay free while it trains; {first}" in text


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
        "reserved_bytes", "reserved_low_bytes", "reserved_high_bytes", "held_free_bytes",
        "nvidia_smi_bytes", "nvidia_smi_low_bytes", "nvidia_smi_high_bytes"
    }  # fmt: skip


def test_a_memory_that_is_said_over_the_profile_stands_beside_its_name() -> None:
    job = {"model": "mistral-7b", "gpus": 1, "method": "qlora"}

    assert job_line(dsgen.plan({**job, "gpu_memory": "12 GiB"}).job).startswith(
        "mistral-7b on 1 generic-16g of 12.0 GiB,"
    )
    assert job_line(dsgen.plan({**job, "hw": "rtx4090-24g"}).job).startswith("mistral-7b on 1 rtx4090-24g, 4096")
