"""The planner: what it chooses, what pins do to it, and what it says when nothing can run."""

from __future__ import annotations

import random

import attrs
import pytest

import dsgen
from dsgen.memory import Verdict
from dsgen.planning import candidates
from dsgen.planning.candidates import search
from dsgen.planning.planner import WAITING, best, contenders, decide, offloaded, plan
from dsgen.shapes.units import gib
from dsgen.strategies.strategies import Rejection, describe, layouts


def chosen(job):
    return plan(job).chosen.strategy


def test_the_issue_s_scenario_fits_with_room(make_job):
    found = plan(make_job("a100-40g", "7b"))

    assert found.chosen.memory.verdict is Verdict.FITS
    assert found.chosen.memory.gpu.high_bytes <= found.chosen.memory.gpu.limit_bytes
    assert found.chosen.strategy.global_batch == 256


@pytest.mark.parametrize("steps", [1, 8, 1000])
def test_accumulation_alone_leaves_the_micro_batch_open(make_job, steps):
    """Nobody said how many sequences a step has: not even one GPU must take all of the default's at once."""
    found = plan(make_job("rtx4090-24g", "qwen2.5-1.5b", cluster={"gpus": 1}, training={"accumulation": steps}))
    strategy = found.chosen.strategy

    assert strategy.accumulation == steps
    assert strategy.global_batch == steps * strategy.micro_batch


def test_batch_arithmetic_holds_for_every_candidate(make_job):
    job = make_job("h100-80g", "13b")
    found = search(job)

    for item in found.fitting:
        strategy = item.strategy
        replicas = job.world // strategy.tp
        assert strategy.micro_batch * strategy.accumulation * replicas == strategy.global_batch


@pytest.mark.parametrize(
    ("wish", "field", "value"),
    [
        ({"zero_stage": 1}, "stage", 1),
        ({"offload": "optimizer"}, "offload_optimizer", "cpu"),
        ({"offload": "all"}, "offload_param", "cpu"),
        ({"offload": "nvme"}, "offload_optimizer", "nvme"),
        ({"tp": 4}, "tp", 4),
        ({"micro_batch": 2}, "micro_batch", 2),
        ({"accumulation": 4}, "accumulation", 4),
        ({"checkpointing": "full"}, "checkpointing", True),
        ({"checkpointing": "none"}, "checkpointing", False),
        ({"precision": "fp16"}, "precision", "fp16"),
    ],
)
def test_a_wish_pins_the_strategy(make_job, wish, field, value):
    assert getattr(chosen(make_job("h100-80g", "7b", training=wish)), field) == value


@pytest.mark.parametrize(
    ("key", "field", "value"),
    [
        ({"zero_optimization": {"stage": 1}}, "stage", 1),
        ({"zero_optimization": {"offload_param": {"device": "cpu"}}}, "stage", 3),
        ({"zero_optimization": None}, "stage", 0),
        ({"tensor_parallel": {"autotp_size": 2}}, "tp", 2),
        ({"train_micro_batch_size_per_gpu": 2}, "micro_batch", 2),
        ({"fp16": {"enabled": True}}, "precision", "fp16"),
        ({"bf16": {"enabled": False}, "fp16": {"enabled": False}}, "precision", "fp32"),
    ],
)
def test_a_deepspeed_key_pins_the_strategy(make_job, key, field, value):
    assert getattr(chosen(make_job("h100-80g", "1.3b", deepspeed=key)), field) == value


def test_pinned_buffers_are_counted(make_job):
    small = plan(make_job(deepspeed={"zero_optimization": {"stage": 2, "reduce_bucket_size": 2}}))
    large = plan(make_job(deepspeed={"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}}))

    assert small.chosen.strategy.buffers.reduce_bucket == 2
    assert large.chosen.strategy.buffers.reduce_bucket == 500_000_000


def test_objectives_order_speed_and_memory(make_job):
    def found(objective):
        return plan(make_job("a100-40g", "7b", training={"objective": objective})).chosen

    throughput, balanced, memory = found("throughput"), found("balanced"), found("memory")
    assert throughput.speed >= balanced.speed >= memory.speed
    assert memory.memory.gpu.peak_bytes <= balanced.memory.gpu.peak_bytes
    assert memory.speed * 2 >= throughput.speed


def test_v100_and_t4_take_fp16_and_a_cpu_takes_no_offload(make_job):
    assert chosen(make_job("v100-32g", "1.3b")).precision == "fp16"
    assert chosen(make_job("t4-16g", "gpt2")).precision == "fp16"
    assert chosen(make_job("cpu", "125m")).offload_optimizer == "none"


def test_a_slow_network_prefers_less_communication(make_job):
    def found(network):
        return plan(make_job("a100-80g", "70b", profiles=[network], cluster={"nodes": 4})).chosen

    slow, fast = found("ethernet-10g"), found("ib-ndr-3200g")
    assert fast.speed > slow.speed
    assert fast.cost.communication_share < slow.cost.communication_share


def test_a_bottleneck_is_said(make_job):
    found = plan(make_job("h100-80g", "405b", cluster={"nodes": 64}))

    assert any("the network is the bottleneck" in warning for warning in found.warnings)
    assert any("assumed ethernet-25g" in warning for warning in found.warnings)


@pytest.mark.parametrize(("network", "waits", "alone"), [("ethernet-10g", True, True), ("ethernet-100g", True, False),
                                                         (None, True, False)])  # fmt: skip
def test_one_node_is_offered_where_it_trains_faster_than_all(make_job, network, waits, alone):
    """Over a network that somebody named; of one that is assumed a better one is offered."""

    fabric = [network] if network else []
    all_nodes = plan(make_job("h100-80g", "70b", profiles=fabric, cluster={"nodes": 16}))
    one = plan(make_job("h100-80g", "70b"))
    said = [warning for warning in all_nodes.warnings if "one node alone trains faster" in warning]

    assert (all_nodes.chosen.cost.communication_share > WAITING) == waits
    assert bool(said) == alone
    assert (one.chosen.speed * 8 > all_nodes.chosen.speed * 128) or not alone
    assert all(f"{one.chosen.strategy}, {one.chosen.speed * 8:,.0f} tokens/s in all" in words for words in said)


def test_contradicting_pins_name_both_and_a_way_out(make_job):
    with pytest.raises(dsgen.DsgenError) as error:
        plan(make_job(training={"zero_stage": 1, "offload": "all"}))

    assert str(error.value) == (
        "training.zero_stage = 1 (python) and training.offload = all (python) exclude each other\n"
        "  parameter offload works at stage 3 only. It works if you drop training.zero_stage or drop training.offload."
    )


def test_what_fits_nowhere_names_changes_that_fit(make_job):
    job = make_job("rtx3090-24g", "13b", cluster={"gpus": 1}, training={"offload": "none"})
    with pytest.raises(dsgen.DsgenError) as error:
        plan(job)

    message = str(error.value)
    assert message.startswith(
        "13b at 4096 tokens fits nowhere on 1 GPU of 23.7 GiB with training.offload = none (python)"
    )
    assert "fits with training.offload left to the planner" in message
    assert plan(make_job("rtx3090-24g", "13b", cluster={"gpus": 1})).chosen


def test_a_batch_that_divides_nowhere_is_an_error(make_job):
    with pytest.raises(
        dsgen.DsgenError, match="a global batch of 7 does not divide among 8 GPUs; it must be a multiple of 8"
    ):
        plan(make_job(training={"global_batch": 7}))


@pytest.mark.parametrize(
    ("batch", "nodes", "way"),
    [
        (7, 1, "--gpus 7."),
        (48, 4, "--gpus 24 --nodes 3."),  # 24 before 16; 12 would leave half a node idle
        (12, 4, "--gpus 6 --nodes 1."),  # a part of one node, since 12 is no whole number of nodes
    ],
)
def test_a_batch_that_divides_nowhere_names_the_most_gpus_that_divide_it(make_job, batch, nodes, way):
    """Whole nodes, or a part of one: a launcher gives each node the same number of GPUs."""
    with pytest.raises(dsgen.DsgenError) as error:
        plan(make_job(cluster={"nodes": nodes}, training={"global_batch": batch}))

    assert str(error.value).endswith(f"Or take a number of GPUs that divides it: {way}")


def test_the_least_memory_may_cost_half_of_the_speed_and_the_reason_says_so(make_job):
    found = plan(make_job("a100-40g", "7b", training={"objective": "memory"}))

    assert found.reason == "the least GPU memory at no less than 1/2 of the best speed"


def test_the_plan_is_pure(make_job):
    job = make_job("a100-40g", "13b")

    assert plan(job) == plan(job)
    assert dsgen.render(job).to_json() == dsgen.render(job).to_json()


def told(search):
    """All that a search says."""
    return search.fitting, search.uncertain, search.rejections


@pytest.mark.parametrize("hardware", ["t4-16g", "a100-40g", "h100-80g", "mi300x-192g"])
@pytest.mark.parametrize("model", ["1b", "7b", "llama-3.1-70b", "mixtral-8x7b"])
@pytest.mark.parametrize("objective", ["balanced", "throughput", "memory"])
def test_what_is_weighed_for_a_choice_decides_as_all_layouts_do(make_job, hardware, model, objective):
    job = make_job(hardware, model, training={"objective": objective})
    everything = search(job)

    if not everything.fitting and not everything.uncertain:
        assert told(contenders(job)) == told(everything)
        return
    quick, full = decide(job, contenders(job)), decide(job, everything)
    assert (quick.chosen, quick.reason, quick.warnings) == (full.chosen, full.reason, full.warnings)


def test_drives_are_not_weighed_where_ram_does(make_job):
    found = plan(make_job("a100-80g", "7b"))

    why = {item.why for item in found.rejections if item.layout.offload_optimizer == "nvme"}
    assert why == {"what it keeps on NVMe fits in RAM, which is faster"}


def test_what_deepspeed_may_not_run_is_chosen_only_where_it_is_asked_for(make_job):
    """Adapters of DeepSeek's experts at stage 3: said so, with a wider interval, and never beside what surely runs."""
    adapters = {"model.layers": 4, "training.method": "lora", "training.lora_targets": ["all-linear"]}
    job = make_job("h200-141g", "deepseek-v3", **adapters)
    pinned = plan(make_job("h200-141g", "deepseek-v3", **adapters, **{"training.zero_stage": 3}))
    plain = {**adapters, "training.lora_targets": ["o_proj"], "training.zero_stage": 3}
    sure = plan(make_job("h200-141g", "deepseek-v3", **plain)).chosen.memory.gpu
    doubted = pinned.chosen.memory.gpu

    assert {item.strategy.stage for item in search(job).fitting} == {0, 1, 2}
    assert plan(attrs.evolve(job, training=attrs.evolve(job.training, objective="memory"))).chosen.strategy.stage < 3
    assert pinned.chosen.strategy.stage == 3
    assert any("tracing error" in warning for warning in pinned.warnings)
    assert doubted.low_bytes < 0.9 * doubted.peak_bytes
    assert doubted.tensors_high_bytes > 1.15 * doubted.peak_bytes
    assert 0.9 * sure.peak_bytes < sure.low_bytes
    assert sure.tensors_high_bytes < 1.15 * sure.peak_bytes


def test_what_may_fit_is_rejected_with_its_interval_where_another_surely_fits(make_job):
    """Adapters of an 8B on a card of 24 GB: without offload it may fit, and the table says so."""
    job = make_job("rtx3090-24g", "llama-3.1-8b", cluster={"gpus": 1}, training={"method": "lora"})
    planned, everything = plan(job), search(job)

    doubts = {item.layout: item for item in planned.rejections if item.uncertain}
    assert doubts.keys() == {item.strategy for item in everything.uncertain}
    for item in everything.uncertain:
        gpu = item.memory.gpu
        assert item.memory.verdict is Verdict.UNCERTAIN
        assert doubts[item.strategy].missing_bytes == gpu.high_bytes - gpu.limit_bytes
        assert doubts[item.strategy].why.startswith(f"may not fit: needs {gib(gpu.least_bytes)} to ")
        gain = item.speed / planned.chosen.speed - 1
        assert doubts[item.strategy].why.endswith(f"; {gain:.0%} faster if it does") is (gain >= 0.05)
    assert any("faster" in doubt.why for doubt in doubts.values())
    layouts = {describe(layout) for layout in doubts}
    assert {"plain data parallel, checkpointing", "ZeRO-2, checkpointing"} <= layouts


def test_every_layout_is_chosen_ranked_or_rejected(make_job):
    for facts in ({"training.method": "lora"}, {"training.method": "qlora"}, {}):
        job = make_job("rtx3090-24g", "llama-3.1-8b", cluster={"gpus": 1}, **facts)
        planned, everything = plan(job), search(job)

        told = {describe(item.layout) for item in planned.rejections}
        told |= {describe(item.strategy) for item in everything.fitting}
        tried = {describe(item.layout if isinstance(item, Rejection) else item) for item in layouts(job)}
        assert tried == told


@pytest.mark.parametrize(
    ("card", "model", "gpus", "ram"), [("l40s-48g", "qwen2.5-32b", 8, 120), ("a100-40g", "7b", 1, 26)]
)
def test_where_nothing_surely_fits_every_place_is_tried(make_job, card, model, gpus, ram):
    """The optimizer alone on NVMe fits, where a plan said of what it usually tries that it may not."""
    facts = {"cluster.gpus": gpus, "hardware.host_memory": f"{ram} GiB"}
    tight, roomy = make_job(card, model, **facts), make_job(card, model, **{"cluster.gpus": gpus})
    usual = {describe(item) for item in layouts(tight) if not isinstance(item, Rejection)}

    planned = plan(tight)
    assert planned.chosen.sure
    assert describe(planned.chosen.strategy) not in usual
    assert (planned.chosen.strategy.offload_optimizer, planned.chosen.strategy.offload_param) == ("nvme", "none")
    assert describe(plan(roomy).chosen.strategy) in usual
    assert best(tight, lambda *_: True).strategy == planned.chosen.strategy


CARDS = (
    *((name, 8) for name in ("rtx3090-24g", "rtx4090-24g", "l40s-48g", "a100-40g", "a100-80g", "h100-80g", "v100-32g")),
    ("t4-16g", 4),
)
MODELS = (
    "llama-3.2-1b", "qwen2.5-0.5b", "gemma-2-2b", "mistral-7b", "llama-3.1-8b", "13b", "llama-3.1-70b", "mixtral-8x7b",
)  # fmt: skip
WISHES = {
    "method": ("full", "full", "full", "lora", "qlora"),
    "objective": ("balanced", "balanced", "balanced", "throughput", "memory"),
    "seq_len": (512, 2048, 4096, 8192, 32768),
    "chunked_loss": (False, False, True),
    "checkpointing": ("auto", "auto", "full", "none"),
}
NETWORKS = ("ethernet-10g", "ethernet-25g", "ib-hdr-200g")


WINDOWED = ("gemma-3-1b", "gemma-3-4b", "gemma-2-2b", "mistral-7b", "phi-3-mini", "llama-3.2-1b")


def random_job(make_job, chance, models=MODELS):
    nodes, share = chance.choice(((1, 8), (1, 4), (1, 2), (1, 1), (2, 1), (4, 1), (8, 1), (32, 1)))
    said = {name: chance.choice(values) for name, values in WISHES.items()}
    network = {"profiles": [chance.choice(NETWORKS)]} if nodes > 1 else {}
    card, full = chance.choice(CARDS)
    cluster = {"gpus": max(1, nodes * full // share), "nodes": nodes}
    return make_job(card, chance.choice(models), training=said, cluster=cluster, **network)


def check_choice(job):
    """What is pruned is never what would have been chosen: strategy, reason and warnings."""
    everything = search(job)

    if not everything.fitting and not everything.uncertain:
        assert told(contenders(job)) == told(everything)
        return
    quick, full = decide(job, contenders(job)), decide(job, everything)
    assert (quick.chosen, quick.reason, quick.warnings) == (full.chosen, full.reason, full.warnings)


@pytest.mark.parametrize("seed", range(200))
def test_the_choice_is_the_one_of_brute_force(make_job, seed):
    check_choice(random_job(make_job, random.Random(seed)))


@pytest.mark.parametrize("seed", range(60))
def test_the_choice_among_samples_of_several_lengths_is_the_one_of_brute_force(make_job, seed):
    """A larger micro-batch has more padding, so a smaller one may be faster."""
    chance = random.Random(seed)
    job = random_job(make_job, chance)
    share, packing = chance.choice((0.02, 0.1, 0.3, 0.8)), chance.random() < 0.3
    samples = {"mean_len": max(1, int(share * job.seq_len)), "packing": packing, "padding_free": chance.random() < 0.3}
    check_choice(attrs.evolve(job, training=attrs.evolve(job.training, **samples)))


@pytest.mark.parametrize("seed", range(60))
def test_the_choice_beside_a_mask_is_the_one_of_brute_force(make_job, seed):
    """sdpa has none where a micro-batch is one sample, and more of them may reach a window."""
    chance = random.Random(seed)
    job = random_job(make_job, chance, WINDOWED)
    share = chance.choice((None, 0.02, 0.1, 0.3, 0.8, 1.0))
    samples = {"mean_len": share and max(1, int(share * job.seq_len)), "attention": chance.choice(("flash", "sdpa"))}
    check_choice(attrs.evolve(job, training=attrs.evolve(job.training, **samples)))


@pytest.mark.parametrize("seed", range(60))
def test_what_lacks_least_is_known_without_all_the_numbers(make_job, seed):
    """What surely has no room lacks at least what is said before it is counted, and on a GPU."""
    job = random_job(make_job, random.Random(seed))
    answer = search(job)
    nearest = answer.nearest

    for early, late in zip(answer.rejected, answer.rejections, strict=True):
        if early is not late:
            assert late.place == "gpu"
            assert 0 < early.least_bytes <= late.missing_bytes
    lacking = sorted((one for one in answer.rejections if one.missing_bytes), key=lambda one: one.missing_bytes)
    least = {one.place: one for one in reversed(lacking)}
    assert nearest == tuple(sorted(least.values(), key=lambda one: one.missing_bytes))


@pytest.mark.parametrize("seed", range(60))
def test_the_best_that_is_worth_it_is_the_plan_where_that_is(make_job, seed):
    """A search that ends as soon as nothing can be worth it gives what one that weighs all gives, at any threshold."""
    chance = random.Random(seed)
    job = random_job(make_job, chance)
    everything = search(job)
    chosen = decide(job, everything).chosen if everything.fitting else None
    speeds = [item.speed for item in everything.fitting] or [1.0]
    least, places = chance.choice(speeds) * chance.uniform(0.9, 1.3), chance.choice((0, 1, 2))

    def worth(layout, speed):
        return speed >= least or (offloaded(layout) < places and speed >= 0.7 * least)

    found = best(job, worth)

    wanted = chosen if chosen is not None and worth(chosen.strategy, chosen.speed) else None
    assert (found and (found.strategy, found.speed)) == (wanted and (wanted.strategy, wanted.speed))


def test_what_cannot_be_worth_it_is_neither_timed_nor_weighed(make_job, monkeypatch):
    job, asked = make_job("h100-80g", "llama-3.1-70b", cluster={"gpus": 32, "nodes": 4}), []
    fastest = max(item.speed for item in search(job).fitting)
    monkeypatch.setattr(candidates, "cost", lambda *_: asked.append("time"))
    monkeypatch.setattr(candidates, "fits", lambda *_: asked.append("memory"))

    assert best(job, lambda _, speed: speed >= 2 * fastest) is None
    assert asked == []


def test_what_nvme_keeps_is_not_timed_where_ram_has_room_for_it(make_job, monkeypatch):
    """Each time of it walks the gathering rules once more: a tenth of a plan of adapters."""
    job, timed = make_job("rtx3090-24g", "llama-3.1-8b", cluster={"gpus": 1}, training={"method": "lora"}), []
    cost = candidates.cost
    monkeypatch.setattr(candidates, "cost", lambda job, one: timed.append(one.offload_param) or cost(job, one))

    assert plan(job).chosen.strategy.offload_param == "cpu"
    assert "cpu" in timed
    assert "nvme" not in timed


def test_a_model_that_fp16_does_not_hold_is_said(make_job):
    def warned(hardware, model, **training):
        found = plan(make_job(hardware, model, training={"method": "lora", "chunked_loss": True, **training}))
        return any("exceeds what fp16 holds" in warning for warning in found.warnings)

    assert warned("t4-16g", "gemma-3-1b")
    assert not warned("t4-16g", "gemma-3-1b", precision="fp32")
    assert not warned("a100-40g", "gemma-3-1b")
    assert not warned("t4-16g", "qwen2.5-0.5b")
