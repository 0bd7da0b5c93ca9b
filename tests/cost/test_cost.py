"""Step time: parts that add up, and the directions every engineer expects."""

from __future__ import annotations

import itertools
import math

import attrs
import pytest

from dsgen.cost import cost
from dsgen.cost.communication import collective_seconds
from dsgen.families.hf_config import model_from_hf
from dsgen.planning.planner import plan
from dsgen.shapes.profiles import Model
from dsgen.strategies.strategies import strategy


def spent(job):
    return plan(job).chosen.cost


def test_parts_add_up(make_job):
    found = spent(make_job("a100-40g", "7b"))

    assert math.fsum(found.parts.values()) == pytest.approx(found.seconds)
    assert min(found.parts.values()) >= 0


def test_no_gpu_beats_its_peak(make_job):
    for hardware in ("t4-16g", "a100-80g", "h100-80g", "mi300x-192g", "b200-180g"):
        job = make_job(hardware, "1b")
        speed = plan(job).chosen.speed
        peak = max(job.hardware.bf16_flops_per_second, job.hardware.fp16_flops_per_second)
        assert 0.05 < speed * 6 * 1.0e9 / peak < 0.85


def test_checkpointing_costs_a_third_more_compute(make_job):
    job = make_job(training={"checkpointing": "full"})
    item = plan(job).chosen.strategy
    plain = strategy(
        item.__class__(**{**_fields(item), "checkpointing": False}),
        (item.micro_batch, item.accumulation, item.global_batch),
        item.buffers,
    )

    ratio = cost(job, item).parts["matrix products"] / cost(job, plain).parts["matrix products"]

    assert ratio == pytest.approx(4 / 3, rel=0.01)


@pytest.fixture
def encoding(make_job):
    """A job with a model of 24 blocks that encode and 24 that decode, for targets of some length."""
    facts = {"d_model": 1024, "d_kv": 128, "num_heads": 32, "d_ff": 16384, "num_layers": 24, "vocab_size": 32128}
    model = Model(**model_from_hf({"model_type": "t5", **facts}, "t5"))
    like = make_job()
    training = attrs.evolve(like.training, seq_len=512)
    return lambda length: attrs.evolve(like, model=model, training=attrs.evolve(training, target_len=length))


def test_an_encoder_and_a_decoder_multiply_their_own_tokens(encoding):
    """Every weight multiplies and adds once a token; the decoder reads half of its own positions, others read all."""
    chosen = plan(encoding(None)).chosen.strategy
    both, short = (cost(encoding(length), chosen).parts["matrix products"] for length in (None, 64))
    attended = 32 * 128 * 512 * 2  # heads, their size, tokens, and two products
    encoder = 24 * (4 * 1024 * 4096 + 2 * 1024 * 16384)  # parameters
    read, decoder = 24 * 2 * 1024 * 4096, 24 * (6 * 1024 * 4096 + 2 * 1024 * 16384) + 1024 * 32128
    whole = 2 * (encoder + read + decoder) + 24 * attended * (2 + 2 + 1)
    less = 2 * (encoder + read + decoder / 8) + 24 * attended * (2 + (2 + 1 / 8) / 8)

    assert cost(encoding(512), chosen) == cost(encoding(None), chosen)
    assert short / both == pytest.approx(less / whole, rel=0.001)


def _fields(item):
    return {field.name: getattr(item, field.name) for field in attrs.fields(type(item))}


def test_a_collective_is_bound_by_the_slowest_link(make_job):
    job = make_job(profiles=["ethernet-25g"], cluster={"nodes": 4})
    gigabyte = 1e9

    inside = collective_seconds(make_job(), gigabyte, 1, 1)
    across = collective_seconds(job, gigabyte, 1, 1)

    assert across == pytest.approx(gigabyte * 3 / 4 / (25e9 / 8 * 0.6), rel=0.01)
    assert inside < across / 50
    assert collective_seconds(make_job(cluster={"gpus": 1}), gigabyte, 1, 1) == 0


def test_lora_skips_the_gradients_of_frozen_weights(make_job):
    full = spent(make_job(training={"micro_batch": 1, "zero_stage": 3}))
    lora = spent(make_job(profiles=["lora"], training={"micro_batch": 1, "zero_stage": 3}))

    assert lora.parts["matrix products"] < 0.75 * full.parts["matrix products"]


def test_tensor_parallel_groups_share_the_network_of_their_node(make_job):
    """With AutoTP 8 on 4 nodes each replica is a node: nothing stays inside, and 8 groups use one network at once."""
    job = make_job(profiles=["ethernet-25g"], cluster={"nodes": 4})

    assert collective_seconds(job, 1e9 / 8, 8, 1) == pytest.approx(collective_seconds(job, 1e9, 1, 1), rel=0.01)


@pytest.mark.parametrize("model", ["7b", "13b", "70b", "mixtral-8x7b"])
def test_a_faster_network_never_plans_slower(make_job, model):
    speeds = [
        plan(make_job("a100-80g", model, profiles=[network], cluster={"nodes": 4})).chosen.speed
        for network in ("ethernet-1g", "ethernet-10g", "ethernet-25g", "ib-hdr-200g", "ib-ndr-3200g")
    ]

    assert all(later >= 0.85 * earlier for earlier, later in itertools.pairwise(speeds))


@pytest.mark.parametrize(
    ("offload", "part", "narrow", "share"), [("none", "optimizer", "states", 16 / 30), ("optimizer", "offload", "", 1)]
)
def test_the_optimizer_moves_less_where_its_states_are_in_16_bits(make_job, offload, part, narrow, share):
    """16 bytes an element instead of 30: a gradient, and two moments and a weight there and back, and the copy."""
    job = make_job(training={"zero_stage": 2, "offload": offload, "checkpointing": "full"})
    item = plan(job).chosen.strategy
    found = cost(attrs.evolve(job, narrow=narrow), item).parts[part] / cost(job, item).parts[part]

    assert found == pytest.approx(share)


def test_a_cpu_is_no_gpu(make_job):
    job = make_job("cpu", "125m")

    assert plan(job).chosen.speed * 6 * 1.3e8 < 0.3 * job.hardware.bf16_flops_per_second
