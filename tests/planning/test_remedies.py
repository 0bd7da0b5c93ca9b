"""What is offered where nothing can run: each kind of change from the smallest on, and only what fits."""

from __future__ import annotations

import re
from collections.abc import Callable

import attrs
import pytest

import dsgen
from dsgen.jobs.job import Job
from dsgen.planning import remedies
from dsgen.planning.candidates import Search, search
from dsgen.planning.planner import plan
from dsgen.planning.remedies import nothing_fits
from dsgen.shapes.units import gib
from dsgen.strategies.strategies import Layout, Rejection

TIB = 2**40
LAYOUT = Layout(stage=2, offload_optimizer="none", offload_param="none", tp=1, checkpointing=False, precision="bf16")
SHORT = Search((), (), (Rejection(layout=LAYOUT, why="needs 90 GiB", missing_bytes=1, place="gpu"),))


@pytest.fixture
def offers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, list[Job]]]:
    """The error's text of a job that is too large, and the changed jobs of which it was asked whether they fit."""

    def ask(job: Job, fits: Callable[[Job], bool]) -> tuple[str, list[Job]]:
        asked: list[Job] = []
        monkeypatch.setattr(remedies, "_fits", lambda changed: asked.append(changed) or fits(changed))
        return str(nothing_fits(job, SHORT)), asked

    return ask


def test_where_no_change_fits_all_sensible_ones_were_tried_and_none_is_offered(make_job, offers):
    job = make_job("a100-40g", "7b", cluster={"gpus": 3}, training={"seq_len": 2048})

    message, asked = offers(job, lambda changed: False)

    lengths = [one.seq_len for one in asked if one.seq_len != job.seq_len]
    memories = [one.hardware.host_memory_bytes / job.hardware.host_memory_bytes for one in asked]
    clusters = [(one.nodes, one.gpus_per_node) for one in asked if one.world != job.world]
    methods = [one.training.method for one in asked if one.training.method != "full"]
    assert lengths == [1024, 512, 256]
    assert [more for more in memories if more != 1] == [2, 4]
    assert max(one.hardware.host_memory_bytes for one in asked) <= 4 * TIB < 8 * job.hardware.host_memory_bytes
    assert clusters == [(1, 6), (1, 8), *((2**power, 8) for power in range(1, 11))]
    assert methods[:4] == ["lora", "qlora"] * 2  # alone, and then one after the other beside what trains the same
    assert methods[4:] == sorted(methods[4:])
    assert methods.count("lora") > 2 < methods.count("qlora")
    assert message.endswith("\n  no change of length, GPUs or method fits: take a smaller model")
    assert "fits with" not in message


def test_no_length_is_tried_that_is_less_than_the_mean_of_the_samples(make_job, offers):
    _, asked = offers(make_job(training={"seq_len": 2048, "mean_len": 700}), lambda changed: False)
    assert {one.seq_len for one in asked} == {2048, 1024}


@pytest.mark.parametrize(
    ("fits", "way"),
    [
        (lambda job: job.seq_len <= 512, "--seq-len 512"),
        (
            lambda job: job.training.chunked_loss,
            "--chunked-loss, a loss that never holds all logits (Liger's, or another)",
        ),
        (lambda job: job.world >= 7, "--gpus 8"),
        (lambda job: job.world >= 9, "--gpus 16 --nodes 2"),
        (lambda job: job.training.method != "full", "--method lora"),
        (lambda job: job.training.method == "qlora", "--method qlora"),
        (
            lambda job: job.training.chunked_loss and job.training.optimizer == "AdamW8bit",
            "--chunked-loss --optimizer AdamW8bit, a loss that never holds all logits (Liger's, or another), "
            "and optimizer states in 8 bits (bitsandbytes' AdamW8bit)",
        ),
        (lambda job: job.training.method == "lora" and not job.training.lora_fp32, "--method lora --no-lora-fp32"),
        (
            lambda job: job.training.chunked_loss and job.training.kbit_fp32 == "never",
            "--method qlora --chunked-loss --kbit-fp32 never",
        ),
        (
            lambda job: job.hardware.host_memory_bytes >= 2 * TIB,
            "2,048 GiB of RAM a node (--set hardware.host_memory='2048 GiB')",
        ),
    ],
)
def test_of_each_kind_the_smallest_change_that_fits_is_offered_with_its_option(make_job, offers, fits, way):
    facts = {"training.seq_len": 2048, "hardware.host_memory": "1 TiB"}
    job = make_job("a100-40g", "7b", cluster={"gpus": 3}, **facts)

    message, _ = offers(job, fits)

    assert [line.strip() for line in message.splitlines() if "fits with" in line] == [f"fits with {way}"]


def test_activations_that_wait_in_too_little_ram_may_stay_on_the_gpus(make_job):
    facts = {"training.seq_len": 65_536, "training.chunked_loss": True, "training.activation_offloading": True}
    job = make_job("h100-80g", "llama-3.1-8b", cluster={"gpus": 8}, **facts, **{"hardware.host_memory": "64 GiB"})

    with pytest.raises(dsgen.DsgenError) as raised:
        plan(job)

    assert "fits with --no-activation-offloading\n" in str(raised.value)


@pytest.mark.parametrize(("method", "asked_of"), [("lora", {"lora", "qlora"}), ("qlora", {"qlora", "lora"})])
def test_a_job_that_trains_adapters_is_told_of_a_base_in_other_bits_alone(make_job, offers, method, asked_of):
    """One in 4 bits of 16 too, which stage 3 cuts; never of all weights."""
    _, asked = offers(make_job(training={"method": method}), lambda changed: False)

    assert {one.training.method for one in asked} == asked_of


@pytest.mark.parametrize(("targets", "offered"), [(["q_proj"], True), (["no_such_matrix"], False)])
def test_adapters_are_offered_only_where_there_can_be_some(make_job, targets, offered):
    pins = {"zero_stage": 0, "tp": 1, "offload": "none"}
    job = make_job("a100-40g", "7b", cluster={"gpus": 1}, training={"lora_targets": targets, **pins})

    message = str(nothing_fits(job, search(job)))

    assert ("--method lora" in message or "--method qlora" in message) == offered


def test_a_wished_batch_does_not_bind_a_larger_cluster(make_job, offers):
    """The sequences of a step grow with the GPUs that share them."""
    job = make_job(cluster={"gpus": 1}, training={"global_batch": 3, "accumulation": 3})

    _, asked = offers(job, lambda changed: False)

    larger = [one for one in asked if one.world > 1]
    assert larger
    assert {one.training.global_batch for one in larger} == {None}
    assert {pin.field for one in larger for pin in one.pins} == set()


def test_without_pins_the_commonest_reason_is_said_first(make_job):
    reasons = ["rare", "common", "common"]
    found = Search((), (), tuple(Rejection(layout=LAYOUT, why=why) for why in reasons))

    assert str(nothing_fits(make_job(), found)) == "common\n  rare"


@pytest.mark.parametrize(
    ("place", "facts", "of"),
    [
        ("gpu", {"cluster.gpus": 1}, " GiB:"),
        ("host", {"hardware.host_memory": "64 GiB", "training.offload": "all"}, "GiB of host RAM:"),
        ("nvme", {"hardware.nvme_capacity": "16 GiB", "training.offload": "nvme"}, "GiB of NVMe:"),
    ],
)
def test_a_rejection_says_what_is_needed_and_how_much_of_it_is_missing(make_job, place, facts, of):
    short = [one for one in search(make_job("a100-80g", "70b", **facts)).rejections if one.place == place]

    assert short
    for one in short:
        assert one.missing_bytes > 0
        assert of in one.why
        assert one.why.endswith(f": {gib(one.missing_bytes)} GiB too much")


def test_adapters_of_a_rank_that_is_too_high_are_told_of_the_largest_power_of_two_that_fits(make_job):
    job = make_job("rtx4090-24g", "7b", **{"training.method": "lora", "training.lora_rank": 2000, "cluster.gpus": 1})
    with pytest.raises(dsgen.DsgenError) as told:
        plan(job)
    (rank,) = re.findall(r"fits with --lora-rank (\d+)", str(told.value))

    assert search(attrs.evolve(job, training=attrs.evolve(job.training, lora_rank=int(rank)))).fitting
    assert not search(attrs.evolve(job, training=attrs.evolve(job.training, lora_rank=2 * int(rank)))).fitting
    assert int(rank) & (int(rank) - 1) == 0


def test_where_nothing_surely_fits_what_may_is_offered():
    """QLoRA of a 32B on cards of 24 GB: render takes shorter sequences, with a warning."""
    scenario = {"hw": "rtx4090-24g", "gpus": 2, "model": "qwen2.5-32b", "method": "qlora", "reentrant": False}
    with pytest.raises(dsgen.DsgenError) as told:
        dsgen.plan(scenario)

    offered = re.findall(r"may fit with (--[\w-]+(?: \d+)?)", str(told.value))
    (length,) = (way.split()[1] for way in offered if way.startswith("--seq-len"))

    assert "take a smaller model" not in str(told.value)
    assert any("surely" in warning for warning in dsgen.plan({**scenario, "seq_len": int(length)}).warnings)
    with pytest.raises(dsgen.DsgenError):
        dsgen.plan({**scenario, "seq_len": 2 * int(length)})


@pytest.mark.parametrize(
    ("hardware", "gpus", "model", "ways"),
    [
        ("a100-80g", 1, "mixtral-8x7b", ["--transformers 4.57", "--method lora"]),
        ("a100-80g", 2, "qwen3-30b-a3b", ["--kbit-fp32 never", "--transformers 4.57", "--method lora"]),
        ("rtx4090-24g", 4, "llama-3.1-70b", ["--method lora"]),
    ],
)
def test_a_base_in_4_bits_that_is_too_large_is_told_what_packs_more_or_is_cut(
    hardware: str, gpus: int, model: str, ways: list[str]
) -> None:
    """Every GPU loads it whole, a mixture's experts in 16 bits, which peft makes fp32 where it is asked to."""
    asked = {"hw": hardware, "gpus": gpus, "model": model, "method": "qlora"}
    with pytest.raises(dsgen.DsgenError, match="fits nowhere") as raised:
        dsgen.plan(asked)

    offered = re.findall(r"fits with (--[a-z0-9-]+ [\w.]+)", str(raised.value))
    assert offered == ways
    attention = ["q_proj", "k_proj", "v_proj", "o_proj"]
    changes = {
        "--method lora": {"method": "lora"},
        "--kbit-fp32 never": {"kbit_fp32": "never"},
        "--transformers 4.57": {"transformers": "4.57", "lora_targets": attention},
    }
    for way in offered:
        assert dsgen.plan({**asked, **changes[way]}).chosen


def test_a_wish_that_stands_in_nobody_s_way_is_not_named(make_job):
    facts = {"cluster.gpus": 1, "training.precision": "bf16", "training.checkpointing": "full"}
    with pytest.raises(dsgen.DsgenError) as told:
        plan(make_job("t4-16g", "1b", **facts))

    first = str(told.value).splitlines()[0]
    assert first.startswith("training.precision = bf16")
    assert first.endswith("cannot be had")
