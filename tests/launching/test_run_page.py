"""RUN.md: its numbers are the plan's, its thresholds follow from them, and it tells how this run resumes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from launches_made import FOUR_NODES, OFFLOADED, ONE_NODE, launch

from dsgen.launching import LAUNCHERS, run_folder
from dsgen.launching.asked import TARGETS_LAUNCHED
from dsgen.launching.expected import expect
from dsgen.report.costs import seconds_text
from dsgen.shapes.units import gib

SECTIONS = ["Start", "What is here", "What to expect", "What the program must do", "What to watch", "How it resumes",
            "When it fails"]  # fmt: skip


def page(wanted: dict[str, Any] | None = None, **fields: Any) -> str:
    return run_folder(launch(wanted, **fields)).files[-1].text


def row(text: str, head: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {head} |"))
    return [cell.strip() for cell in line.strip("|").split(" | ")]


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("target", TARGETS_LAUNCHED)
@pytest.mark.parametrize("wanted", [ONE_NODE, FOUR_NODES, OFFLOADED])
def test_every_page_has_every_part(launcher: str, target: str, wanted: dict[str, Any]) -> None:
    text = page(wanted, launcher=launcher, target=target)

    assert re.findall(r"^## (.*)$", text, re.M) == SECTIONS
    assert "None" not in text.replace("(None, {})", "")
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)
    assert all(len(line) <= 100 for line in text.splitlines() if not line.startswith(("|", "bash", "sbatch")))


def test_the_numbers_are_the_plan_s() -> None:
    one = launch(FOUR_NODES)
    memory, expected, text = one.plan.chosen.memory, expect(one), page(FOUR_NODES)

    assert row(text, "memory of a GPU")[1] == f"{gib(memory.gpu.needed_bytes)} GiB"
    assert row(text, "reserved by torch")[1] == f"{gib(memory.gpu.reserved_bytes)} GiB"
    assert row(text, "RAM of a node")[1] == f"{gib(memory.host.needed_bytes)} GiB"
    assert row(text, "MFU")[1] == f"{expected.utilization:.0%}"
    assert 0.1 < expected.utilization < 0.6
    assert expected.low_seconds < expected.seconds < expected.high_seconds
    assert row(text, "the whole run")[1] == f"1,000 steps, {seconds_text(1000 * expected.seconds)}"


@pytest.mark.parametrize("wanted", [ONE_NODE, FOUR_NODES, OFFLOADED])
def test_nobody_is_told_to_act_at_memory_that_is_expected(wanted: dict[str, Any]) -> None:
    """What nvidia-smi shows is what torch reserves and all outside of it, up to the whole GPU."""
    _, _, shown, act = row(page(wanted), "memory of the fullest GPU")
    likely, most = (float(number) for number in re.findall(r"[\d.]+", shown))

    assert likely >= float(row(page(wanted), "reserved by torch")[1].removesuffix(" GiB"))
    assert likely <= most
    assert "num_alloc_retries" in act or most <= float(act.removeprefix("above ").partition(" GiB")[0])


def test_the_speed_to_act_at_is_the_interval_s_end() -> None:
    one = launch(ONE_NODE)
    expected = expect(one)
    least = float(row(page(), "speed after 10 steps")[3].removeprefix("below ").partition(":")[0].replace(",", ""))

    assert least == pytest.approx(expected.tokens / expected.high_seconds / one.job.world, rel=0.01)


def test_a_checkpoint_is_due_about_every_half_hour() -> None:
    expected = expect(launch(FOUR_NODES))

    assert expected.save_steps * expected.seconds == pytest.approx(1800, abs=expected.seconds)
    assert f"Save every {expected.save_steps} steps" in " ".join(page(FOUR_NODES).split())


def test_an_offloaded_run_has_the_threads_that_it_is_given() -> None:
    one, unbound = launch(OFFLOADED), launch(OFFLOADED, launcher="torchrun")

    assert one.offloads
    assert expect(one).seconds < one.plan.chosen.cost.seconds  # by default torchrun's one thread
    assert expect(unbound).seconds > expect(one).seconds  # a share of the threads in env.sh, bound to no cores
    assert "cpu_adam" in page(OFFLOADED)
    assert "cpu_adam" not in page(ONE_NODE)


def test_each_launcher_says_how_it_goes_on() -> None:
    assert "Slurm queues the job again" in page(FOUR_NODES, launcher="slurm", hosts=())
    assert "torchrun starts the ranks of all hosts again up to 3 times" in page(FOUR_NODES, launcher="torchrun")
    assert "starts none again" in page(ONE_NODE)
    assert "ports 15000 to 24999" in page(FOUR_NODES, launcher="slurm", hosts=())
    assert "port 29500" in page(FOUR_NODES)


def test_what_helps_when_memory_is_out_follows_the_plan() -> None:
    assert "--micro-batch 1 --force" in row(page(), "`CUDA out of memory`")[2]
    single = {**ONE_NODE, "micro_batch": 1, "checkpointing": "full"}
    assert "chunked loss" in row(page(single), "`CUDA out of memory`")[2]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"zero_stage": 0}, "A checkpoint of stage 0 is one file, which any number of GPUs loads at that stage."),
        ({"zero_stage": 2}, "for others convert it first (`ds_to_universal.py`)."),
        ({"zero_stage": 2, "optimizer": "Muon"}, "and `ds_to_universal.py` stops at this one."),
    ],
)
def test_what_another_number_of_gpus_loads_is_said_as_dsgen_memory_says_it(said: dict[str, Any], words: str) -> None:
    text = " ".join(page({"hw": "h100-80g", "gpus": 8, "model": "1b", **said}).split())

    assert words in text
    assert "For another number write the folder anew" in text
