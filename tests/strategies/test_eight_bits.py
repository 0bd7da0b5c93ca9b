"""bitsandbytes' AdamW with states in 8 bits: who makes it, what it takes, where it is refused."""

from __future__ import annotations

import ast

import pytest

import dsgen
from dsgen.cost import cost
from dsgen.cost.optimizer_step import adam_bytes
from dsgen.frameworks import FRAMEWORKS, job_files
from dsgen.frameworks.needs import needs
from dsgen.memory import estimate
from dsgen.shapes.errors import DsgenError

SCENARIO = {"hw": "a100-80g", "model": "llama-3.2-1b", "gpus": 4, "optimizer": "AdamW8bit"}


def rendered(stage, **more):
    return dsgen.render({**SCENARIO, "zero_stage": stage, **more})


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_program_makes_it_and_zero_is_told_so(stage):
    tree = rendered(stage).to_dict()

    assert "optimizer" not in tree
    assert tree.get("zero_allow_untested_optimizer") is (True if stage else None)
    assert tree["scheduler"]["params"]["warmup_max_lr"] == 2e-5


@pytest.mark.parametrize("stage", [1, 2])
def test_a_state_takes_a_byte_an_element_and_a_scale_for_256(stage):
    """1,235,814,400 elements on 4 ranks, and two tables of 256 numbers."""
    plan = rendered(stage).plan
    own = 1_235_814_400 // 4

    states = estimate(plan.job, plan.chosen.strategy).gpu.parts["optimizer states"]

    assert states == 2 * own + 2 * 4 * -(-own // 256) + 2 * 256 * 4


def test_the_step_moves_16_bytes_an_element_instead_of_28():
    eight, full = rendered(2), dsgen.render({**SCENARIO, "zero_stage": 2, "optimizer": "AdamW"})

    assert [adam_bytes(one.plan.job, one.plan.chosen.strategy) for one in (eight, full)] == [16, 28]
    same = full.plan.chosen.strategy
    assert cost(eight.plan.job, same).parts["optimizer"] < cost(full.plan.job, same).parts["optimizer"]


@pytest.mark.parametrize("offload", ["optimizer", "all", "nvme"])
def test_it_does_not_leave_the_gpu(offload):
    with pytest.raises(DsgenError, match="AdamW8bit steps on the GPU, and DeepSpeed offloads to its own Adam alone"):
        dsgen.render({**SCENARIO, "offload": offload})


def test_a_config_that_offloads_them_is_told_which_optimizer_can():
    offloaded = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": offloaded}

    with pytest.raises(DsgenError, match="optim: adamw_torch"):
        dsgen.memory(SCENARIO, config=config)


def test_gaudi_has_none():
    with pytest.raises(DsgenError, match="bitsandbytes has no optimizers in 8 bits for Gaudi"):
        dsgen.render({**SCENARIO, "hw": "gaudi2-96g"})


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_each_framework_is_told_to_make_it(target):
    config = rendered(2)
    told = {need.code: need for need in needs(config.plan, target)}

    assert told["start"].words.startswith("bitsandbytes' AdamW8bit as its optimizer")
    assert told["start"].install == "pip install bitsandbytes"
    assert "may not fit" in told["start"].otherwise or "GiB" in told["start"].otherwise
    ast.parse(told["start"].snippet)
    if target in ("deepspeed", "accelerate", "lightning"):
        assert "bitsandbytes.optim.AdamW8bit(" in told["start"].snippet
    else:
        said = {item.name: item.value for item in job_files(config, target).arguments}
        assert said["optimizer" if target == "axolotl" else "optim"] == "adamw_8bit"
