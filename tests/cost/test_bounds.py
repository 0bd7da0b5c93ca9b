"""What a strategy can reach at most is never less than what it reaches: else the planner would pass over a winner."""

from __future__ import annotations

import statistics

import attrs
import pytest

from dsgen.cost import cost, most_speed
from dsgen.cost.micro_batches import passes
from dsgen.planning.candidates import search
from dsgen.planning.planner import plan

JOBS = [
    ("a100-40g", "7b", {}, {"gpus": 8}),
    ("rtx3090-24g", "llama-3.1-8b", {"method": "lora"}, {"gpus": 1}),
    ("rtx4090-24g", "llama-3.1-8b", {"method": "qlora"}, {"gpus": 4}),
    ("a100-80g", "13b", {"seq_len": 8192}, {"gpus": 16, "nodes": 2}),
    ("h100-80g", "llama-3.1-70b", {"chunked_loss": True}, {"gpus": 64, "nodes": 8}),
    ("h100-80g", "mixtral-8x7b", {"method": "lora"}, {"gpus": 8}),
    ("v100-32g", "qwen2.5-0.5b", {"seq_len": 512}, {"gpus": 8}),
    ("a100-80g", "llama-3.2-1b", {"seq_len": 256, "micro_batch": 1}, {"gpus": 8}),
    ("a100-40g", "llama-3.1-8b", {"method": "lora", "seq_len": 1024}, {"gpus": 32, "nodes": 4}),
    ("h100-80g", "qwen2.5-7b", {"method": "qlora", "precision": "bf16"}, {"gpus": 16, "nodes": 2}),
    ("a100-80g", "gpt2", {"precision": "fp32", "seq_len": 512}, {"gpus": 16, "nodes": 2}),
    ("v100-32g", "bloom-7b1", {"seq_len": 512}, {"gpus": 32, "nodes": 4}),
]


@pytest.mark.parametrize(("card", "model", "training", "cluster"), JOBS, ids=[f"{job[0]}-{job[1]}" for job in JOBS])
def test_no_strategy_is_faster_than_it_can_be(make_job, card, model, training, cluster):
    network = {"profiles": ["ethernet-25g"]} if cluster.get("nodes", 1) > 1 else {}
    job = make_job(card, model, training=training, cluster=cluster, **network)
    everything = search(job)
    strategies = [one.strategy for one in (*everything.fitting, *everything.uncertain)]

    speeds = [(cost(job, one).tokens_per_second_per_gpu, most_speed(job, one)) for one in strategies]
    assert strategies
    assert [pair for pair in speeds if pair[0] > pair[1]] == []
    assert statistics.median(most / speed for speed, most in speeds) < 1.3, "a bound that tells nothing prunes nothing"


def test_what_decides_no_kernel_is_timed_once(make_job):
    """Other states, threads or types of adapters below stage 3 run the same kernels: one timing serves all of them."""
    facts = {"training.method": "lora", "cluster.gpus": 8}
    job = make_job("a100-80g", "llama-3.1-8b", **facts)
    two, three = (
        plan(make_job("a100-80g", "llama-3.1-8b", **facts, **{"training.zero_stage": stage})) for stage in (2, 3)
    )

    def timed(strategy, **other):
        return passes(attrs.evolve(job, training=attrs.evolve(job.training, **other)), strategy)

    for strategy in (two.chosen.strategy, three.chosen.strategy):
        for other in ({"optimizer": "AdamW8bit"}, {"launcher": "bound"}, {"global_batch": 8}):
            assert timed(strategy, **other) is timed(strategy)
    assert timed(two.chosen.strategy, lora_fp32=False) is timed(two.chosen.strategy)
    assert timed(three.chosen.strategy, lora_fp32=False).seconds < timed(three.chosen.strategy).seconds
    assert timed(two.chosen.strategy, chunked_loss=True).memory != timed(two.chosen.strategy).memory
