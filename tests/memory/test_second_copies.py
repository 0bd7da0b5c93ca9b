"""hpZ's second copy of the parameters, where they wait: in RAM beside offload_param, on the GPU between steps too.

Bytes are those of `dsgen simulate` (DeepSpeed 0.19.8) of the same wishes.
"""

from __future__ import annotations

from typing import Any

import pytest

import dsgen
from dsgen.memory.checkpoints import resuming, saving
from dsgen.memory.evaluating import evaluation
from dsgen.memory.parts import Parts, parts
from dsgen.planning.planner import Plan

WISHES = {"hw": "a100-40g", "model": "qwen2.5-1.5b", "gpus": 16, "micro_batch": 1, "accumulation": 1, "zero_stage": 3}
KEY = "zero_optimization.zero_hpz_partition_size"
RANKS = 8  # of a node


def planned(**wishes: Any) -> Plan:
    return dsgen.plan({**WISHES, "set": {KEY: 8}, **wishes})


def counted(made: Plan) -> Parts:
    chosen = made.chosen.strategy
    return parts(made.job, chosen, chosen.buffers, chosen.accumulation)


@pytest.mark.parametrize(
    ("method", "weights", "whole"),
    [("full", 4_631_142_912, 18_524_574_720), ("lora", 4_742_029_824, 4_908_212_736)],
)
def test_beside_parameters_in_ram_it_lies_there(method: str, weights: int, whole: int) -> None:
    """At the end of a step, in one node: its ranks' shares of one copy among all, and of one among the node."""
    stepping = counted(planned(method=method, offload="all")).host.stepping

    assert stepping["weights"] == pytest.approx(weights, rel=1e-4)
    assert sum(stepping.values()) == pytest.approx(whole, rel=1e-4)


@pytest.mark.parametrize(
    ("method", "held"),
    [
        ("full", 18_551_807_016 + 15_660_916_736 - 9_261_996_032),
        ("lora", 5_564_637_696 + 6_627_188_776 - 5_097_890_304),
    ],
)
def test_its_shares_are_page_locked_one_by_one(method: str, held: int) -> None:
    """Each is rounded up to a power of two, and lies there twice until it is locked; those that are freed stay."""
    host = counted(planned(method=method, offload="all")).host

    assert sum(host.stepping.values()) + host.beyond == pytest.approx(held, rel=1e-4)


def test_the_gpu_holds_none_of_it_then() -> None:
    made, without = planned(offload="all"), planned(offload="all", set={})

    assert made.chosen.memory.gpu.parts == without.chosen.memory.gpu.parts
    assert counted(made).host.stepping["weights"] == 3 * counted(without).host.stepping["weights"]


def test_on_the_gpu_an_evaluation_and_a_save_lie_beside_it() -> None:
    """Frozen shares stay, and what an evaluation releases gets its own: 586,018,112 bytes, and 592,741,696 of all."""
    made = planned(method="lora", offload="none")
    job, chosen = made.job, made.chosen.strategy
    found = evaluation(job, chosen, 1)

    assert found is not None
    assert 586_018_112 <= found.parts["weights"] <= 592_741_696
    assert 583_509_312 <= saving(job, chosen).gpu["weights"] <= 592_741_696
    assert resuming(job, chosen).gpu["weights"] == pytest.approx(592_741_696, rel=1e-4)


def test_it_takes_its_part_of_the_verdict() -> None:
    """70B on 4 nodes: 64 GiB a node of parameters alone, and 128 of the copy, where the node has 480."""
    wishes = {"hw": "a100-80g", "model": "70b", "gpus": 32, "zero_stage": 3, "offload": "all", "set": {KEY: 8}}
    roomy, strained = (
        dsgen.memory({**wishes, "micro_batch": 1, "host_memory": memory}).verdict.value
        for memory in ("2000GiB", "480GiB")
    )

    assert (roomy, strained) == ("fits", "does not fit")
