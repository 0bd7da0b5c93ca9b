"""What offload_optimizer.pin_memory costs: copies of memory that is not page-locked are less than half as fast."""

from __future__ import annotations

import attrs
import pytest

from dsgen.asking.memory_questions import ask_config, given
from dsgen.cost import cost
from dsgen.kernels.host_work import PAGEABLE_SHARE, PINNED_SHARE
from dsgen.strategies.buffers import choose

GROUP = {"device": "cpu"}


def asked(make_job, stage: int, **group: bool):
    """The question of a config that offloads the optimizer."""
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": {"stage": stage, "offload_optimizer": {**GROUP, **group}},
    }
    return ask_config(make_job("a100-80g", "7b", cluster={"gpus": 4}), given(config))


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_config_s_memory_is_page_locked_as_it_says(make_job, stage) -> None:
    found = [asked(make_job, stage, pin_memory=locked).strategy.buffers.locked for locked in (False, True)]
    assert found == [False, True]


@pytest.mark.parametrize("stage", [2, 3])
def test_gradients_take_as_much_longer_as_copies_do(make_job, stage) -> None:
    question = asked(make_job, stage, pin_memory=True)
    locked = question.strategy
    loose = attrs.evolve(locked, buffers=locked.buffers._replace(locked=False))
    fast, slow = (cost(question.job, one).parts["offload"] for one in (locked, loose))
    assert fast < slow < fast * PINNED_SHARE / PAGEABLE_SHARE


def test_a_plan_locks_its_memory_unless_someone_says_otherwise(make_job) -> None:
    said = {"zero_optimization": {"offload_optimizer": {"device": "cpu", "pin_memory": False}}}
    job = make_job("a100-80g", "7b", cluster={"gpus": 4})
    assert choose(job, 2, 1, "cpu").locked
    assert not choose(attrs.evolve(job, deepspeed=said), 2, 1, "cpu").locked
