"""What comes between steps is judged too: no FITS stands beside an evaluation, a save or a resume that dies."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from command_line import run

import dsgen
from dsgen.memory import Verdict
from dsgen.memory.checkpoints import between_steps
from dsgen.memory.later import later
from dsgen.report import memory, memory_page

GIB = 2**30
JOB = {
    "hw": "a100-80g",
    "model": "llama-3-8b",
    "gpus": 8,
    "zero_stage": 2,
    "micro_batch": 2,
    "seq_len": 4096,
    "checkpointing": "full",
    "offload": "none",
    "tp": 1,
}
SMALL_CARD = {**JOB, "gpu_memory": "55GiB"}
SMALL_NODE = {**JOB, "loading": "mapped", "host_memory": "130GiB"}
DRIVES = {**JOB, "model": "70b", "zero_stage": 3, "micro_batch": 1, "offload": "nvme"}


def options(job: dict[str, Any]) -> list[str]:
    return [word for name, value in job.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def shown(job: dict[str, Any], width: int = 80) -> str:
    return " ".join(memory.text(dsgen.memory(job), width).split())


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize(
    ("job", "dies", "first"),
    [
        (SMALL_CARD, "evaluation of 8 sequences does not fit on the GPU", "evaluate 8 sequences fails first"),
        (SMALL_NODE, "saving and resuming do not fit in host RAM", "save fails first, in host RAM"),
    ],
)
def test_fits_never_stands_alone_beside_a_phase_that_dies(
    job: dict[str, Any], dies: str, first: str, width: int
) -> None:
    told = shown(job, width)
    page = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", memory_page.html(dsgen.memory(job)))).split())

    for text in (told, page):
        assert re.search(rf"TRAINING FITS: GPU [^;]*; {dies}", text)
        assert f"stay free while it trains; {first}" in text
        assert "for what is not counted" not in text


@pytest.mark.parametrize(("job", "warned"), [(SMALL_CARD, 1), (SMALL_NODE, 1), (JOB, 0)])
def test_a_warning_stands_on_stderr_and_the_exit_code_is_of_training(job: dict[str, Any], warned: int) -> None:
    done = run("memory", *options(job), "--format", "json")
    data = json.loads(done.out)

    assert done.code == 0
    assert data["verdict"] == "fits"
    assert [line for line in done.err.splitlines() if "warning" not in line] == []
    assert len(done.err.splitlines()) == warned
    assert any(one["verdict"] != "fits" for one in data["later"]) == bool(warned)
    assert (data["headroom"]["first_to_fail"]["verdict"] != "fits") == bool(warned)


def test_where_all_fits_the_gpu_keeps_what_the_highest_phase_leaves() -> None:
    """Here that is the evaluation, which takes more than any step."""
    footprint = dsgen.memory(JOB)
    (evaluation,) = (one for one in footprint.later if one.noun == "evaluation")
    first = footprint.first_to_fail

    assert evaluation.gpu.high_bytes > footprint.memory.gpu.high_bytes
    assert first is not None
    assert first.phase == evaluation.phase.phase
    free = evaluation.gpu.limit_bytes - evaluation.gpu.high_bytes
    assert memory.data(footprint)["headroom"]["gpu_bytes"] == free
    assert f"{free / GIB:.1f} GiB stay free for what is not counted; evaluate 8 sequences would fail first" in shown(
        JOB
    )


@pytest.mark.parametrize(
    "job",
    [SMALL_CARD, SMALL_NODE, {**DRIVES, "host_memory": "330GiB"}, {**JOB, "zero_stage": 0, "gpu_memory": "100GiB"}],
)
def test_what_fails_first_is_the_first_of_the_run_that_takes_more_than_there_is(job: dict[str, Any]) -> None:
    """Every phase before it is expected to fit in both places."""
    footprint = dsgen.memory(job)
    first, taken = footprint.first_to_fail, footprint.memory
    assert first is not None
    outside, processes = taken.gpu.overhead_bytes, taken.host.overhead_bytes
    passed = []
    for phase in (*taken.phases, *(one.phase for one in footprint.later)):
        if phase.phase == first.phase:
            break
        passed.append(phase)
    assert first.needed_bytes > first.limit_bytes
    for phase in passed:
        assert phase.gpu_bytes + outside <= taken.gpu.limit_bytes
        assert phase.host_bytes + processes <= taken.host.limit_bytes


def test_the_ram_needed_holds_the_save_and_the_resume() -> None:
    """70B on NVMe trains without what rank 0 gathers to save; a resume copies the states from file to file."""
    footprint = dsgen.memory({**DRIVES, "host_memory": "2TiB"})  # of more a pipeline would take the moments' share
    known = footprint.counterfactuals
    save, resume = (one.host.high_bytes for one in footprint.later if one.phase.phase in ("save", "resume"))

    assert known.host_bytes is not None
    assert known.host_training_bytes is not None
    group = 8 * 2 * 4 * 100_000_000  # bytes of the moments of one, which the first step makes beside what stays
    assert known.host_bytes - known.host_training_bytes > 2 * 70_553_706_496 - group
    assert resume < save <= known.host_bytes * 0.95 < save + GIB
    said = f"host RAM needed {known.host_bytes // GIB:,} GiB a node for saving, {known.host_training_bytes // GIB:,}"
    assert f"{said} while it trains" in shown({**DRIVES, "host_memory": "2TiB"})


def test_alternatives_that_die_between_steps_are_marked() -> None:
    for job in (SMALL_CARD, SMALL_NODE):
        footprint, told = dsgen.memory(job), memory.text(dsgen.memory(job))
        marked = [item for item in footprint.alternatives if memory.row_verdict(item).endswith("*")]
        assert marked
        for item in footprint.alternatives:
            worst = {one.verdict for one in later(footprint.question.job, item.strategy)}
            assert (item in marked) == (worst != {Verdict.FITS} and item.memory.verdict is not Verdict.DOES_NOT_FIT)
        assert len(re.findall(r" \*$", told, re.M)) == len(marked)
        assert "  * while it trains" in told
    assert "*" not in memory.text(dsgen.memory({**JOB, "micro_batch": 1, "hw": "h200"}))


def test_a_save_lies_beside_what_the_steps_leave_in_ram() -> None:
    """The gradients of a CPU's optimizer too, which accumulation keeps."""
    asked = dsgen.memory({**JOB, "offload": "optimizer", "accumulation": 4})
    job, strategy = asked.question.job, asked.question.strategy
    there = between_steps(job, strategy).phases["training"]

    assert there == asked.memory.phases[-1].host
    (save,) = (one for one in asked.later if one.noun == "saving")
    for name, size in there.items():
        assert save.phase.host[name] >= size


@pytest.mark.parametrize(("target", "warned"), [("hf-trainer", True), ("accelerate", True), ("deepspeed", False)])
def test_render_warns_of_a_save_that_does_not_fit(target: str, warned: bool) -> None:
    said = run("render", *options({**SMALL_NODE, "accumulation": 1}), "--target", target)
    words = "saving and resuming do not fit in host RAM"
    assert (words in " ".join(said.err.split())) == warned
    roomy = run("render", *options({**JOB, "accumulation": 1}), "--target", target)
    assert words not in " ".join(roomy.err.split())


def test_render_does_not_warn_of_an_evaluation_that_it_makes_small_enough() -> None:
    said = run("render", *options({**SMALL_CARD, "accumulation": 1}), "--target", "hf-trainer")
    assert "the steps fit, but" not in said.err
    assert "evaluate 4 sequences would fail first" in " ".join(said.err.split())


def test_render_warns_where_not_even_one_sequence_can_be_evaluated() -> None:
    """A loss in chunks, of which an older Trainer knows nothing when it evaluates: all logits of 32,768 tokens."""
    long = {"hw": "a100-40g", "model": "llama-3-8b", "gpus": 8, "zero_stage": 3, "seq_len": 32768, "tp": 1}
    job = [*options({**long, "micro_batch": 1, "accumulation": 1, "transformers": "4.57"}), "--chunked-loss"]
    said = " ".join(run("render", *job, "--target", "hf-trainer", "--checkpointing", "full").err.split())
    assert re.search(r"the steps fit, but evaluation of 1 sequence (does|may) not fit on the GPU", said)
    newer = run("render", *job, "--transformers", "5.23", "--target", "hf-trainer", "--checkpointing", "full")
    assert "the steps fit, but" not in newer.err
    assert "would fail" in newer.err
