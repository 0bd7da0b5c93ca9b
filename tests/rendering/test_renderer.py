"""The renderer: keys, reasons, and what it leaves out."""

from __future__ import annotations

import json
import re

import attrs
import pytest

import dsgen
from dsgen.cost import cost
from dsgen.memory import estimate
from dsgen.planning.candidates import ENOUGH, FILLED
from dsgen.planning.planner import plan
from dsgen.shapes.layers import leaves


def rendered(job):
    return dsgen.render(job)


def test_every_key_has_an_override_and_a_reason(make_job):
    config = rendered(make_job("a100-40g", "70b"))

    for path in config.paths():
        explanation = config.why(path)
        assert explanation.overrides, path
        assert len(explanation.reason) > 10, path
        assert explanation.value == dict(leaves(config.tree))[path]


def test_a_reason_names_the_place_of_the_wish(make_job):
    explanation = rendered(make_job()).why("optimizer.params.betas")

    assert str(explanation.overrides[-1].origin).startswith("profiles/training/standard.yaml:")
    assert "arXiv 2307.09288" in explanation.reason


@pytest.mark.parametrize(
    ("hw", "model", "gpus", "leaves_a_tenth"),
    [("a100-40g", "7b", 8, True), ("h100-80g", "7b", 8, True), ("a100-40g", "13b", 8, False)],
)
def test_the_reason_of_a_micro_batch_says_the_number_that_its_rule_asks_for(make_job, hw, model, gpus, leaves_a_tenth):
    config = rendered(make_job(hw, model, **{"cluster.gpus": gpus}))
    gpu = config.plan.chosen.memory.gpu
    said = re.search(
        r"takes ([\d.]+) GiB, at most ([\d.]+) of ([\d.]+)$", config.why("train_micro_batch_size_per_gpu").reason
    )

    assert said is not None
    takes, most, limit = map(float, said.groups())
    assert [takes, most, limit] == [
        round(size / 2**30, 1) for size in (gpu.needed_bytes, gpu.high_bytes, gpu.limit_bytes)
    ]
    assert (most <= FILLED * limit) is leaves_a_tenth
    assert ("none of these leaves a tenth" in said.string) is not leaves_a_tenth


def test_the_reason_of_a_micro_batch_tells_of_a_larger_one_that_is_slower(make_job):
    """Of 4,096 tokens one sequence lies in the L2 cache of an L40S, and of two nothing does, which leave room too."""
    cards, wish = ("l40s-48g", "a100-80g"), {"seq_len": 4096, "method": "lora", "checkpointing": "full"}
    cached, plain = (rendered(make_job(card, "gemma-2-2b", training=wish)) for card in cards)
    chosen, job = cached.plan.chosen, cached.plan.job
    twice = attrs.evolve(
        chosen.strategy, micro_batch=2 * chosen.strategy.micro_batch, accumulation=chosen.strategy.accumulation // 2
    )
    gpu = estimate(job, twice).gpu

    assert cost(job, twice).tokens_per_second_per_gpu < ENOUGH * chosen.speed
    assert gpu.high_bytes <= FILLED * gpu.limit_bytes
    said = "of those that divide the step{} fit{}, the largest that leaves a tenth of the GPU: "
    key = "train_micro_batch_size_per_gpu"
    assert cached.why(key).reason.startswith(said.format(",", " and are within 3% of the fastest"))
    assert plain.why(key).reason.startswith(said.format(" and", ""))


def test_a_user_s_value_wins_and_the_plan_s_stays_as_a_loser(make_job):
    config = rendered(make_job(deepspeed={"zero_optimization": {"overlap_comm": False}}))

    history = config.why("zero_optimization.overlap_comm").overrides
    assert config.tree["zero_optimization"]["overlap_comm"] is False
    assert str(history[-1].origin) == "python"


def test_null_deletes(make_job):
    config = rendered(make_job(deepspeed={"gradient_clipping": None, "scheduler": None}))

    assert "gradient_clipping" not in config.tree
    assert "scheduler" not in config.tree


def test_a_key_without_effect_is_left_out_and_said(make_job):
    config = rendered(make_job(deepspeed={"zero_optimization": {"stage": 2, "stage3_prefetch_bucket_size": 1000}}))

    assert "stage3_prefetch_bucket_size" not in config.tree["zero_optimization"]
    assert any("stage3_prefetch_bucket_size = 1000 is left out" in warning for warning in config.warnings)


def test_autotp_counts_every_gpu_in_the_train_batch(make_job):
    config = rendered(make_job("h100-80g", "13b", training={"tp": 4, "zero_stage": 1, "global_batch": 64}))
    values = config.tree

    micro, steps = values["train_micro_batch_size_per_gpu"], values["gradient_accumulation_steps"]
    assert values["tensor_parallel"] == {"autotp_size": 4}
    assert micro * steps * 2 == 64
    assert values["train_batch_size"] == micro * steps * 8


def test_autotp_at_stage_3_writes_two_of_the_three_batch_keys(make_job):
    config = rendered(make_job("h100-80g", "13b", training={"tp": 2, "zero_stage": 3}))

    assert "train_batch_size" not in config.tree
    assert {"train_micro_batch_size_per_gpu", "gradient_accumulation_steps"} <= set(config.tree)


def test_fp16_has_a_dynamic_loss_scale(make_job):
    assert rendered(make_job("v100-32g", "1.3b")).tree["fp16"] == {
        "enabled": True,
        "loss_scale": 0,
        "initial_scale_power": 16,
        "loss_scale_window": 1000,
        "hysteresis": 2,
        "min_loss_scale": 1,
    }


def test_the_optimizer_s_parameters_follow_its_type(make_job):
    lion = rendered(make_job(deepspeed={"optimizer": {"type": "lion"}})).tree["optimizer"]
    sgd = rendered(make_job(training={"optimizer": "SGD"})).tree

    assert set(lion["params"]) == {"lr", "betas", "weight_decay"}
    assert set(sgd["optimizer"]["params"]) == {"lr", "weight_decay"}
    assert sgd["zero_allow_untested_optimizer"] is True


def test_the_schedule_follows_the_wishes(make_job):
    def schedule(**wishes):
        return rendered(make_job(training=wishes)).tree.get("scheduler")

    assert schedule()["type"] == "WarmupLR"
    assert schedule(total_steps=1000)["type"] == "WarmupCosineLR"
    assert schedule(scheduler="none") is None
    assert schedule(total_steps=50)["params"]["warmup_num_steps"] == 2
    assert schedule(total_steps=50, warmup_steps=100)["params"]["warmup_num_steps"] == 5
    assert schedule(total_tokens=1e9)["type"] == "WarmupCosineLR"
    assert schedule(lr=1e-3)["params"]["warmup_max_lr"] == 1e-3
    with pytest.raises(dsgen.DsgenError, match="scheduler WarmupDecayLR falls over the whole run"):
        schedule(scheduler="WarmupDecayLR")


def test_nvme_brings_aio_and_buffers_that_hold_the_largest_tensor(make_job):
    config = rendered(
        make_job(
            "rtx3090-24g",
            "70b",
            training={"offload": "nvme"},
            deepspeed={"zero_optimization": {"offload_param": {"device": "nvme"}}},
        )
    ).tree

    assert config["aio"]["block_size"] == 1048576
    assert config["zero_optimization"]["offload_param"]["buffer_size"] >= 32000 * 8192 // 8


def test_an_older_release_gets_no_newer_key(make_job):
    layers = dsgen.profile("rtx3090-24g") | dsgen.profile("70b")
    old, new = dsgen.render(layers, deepspeed="0.14").tree, dsgen.render(layers, deepspeed="0.19").tree

    assert "intra_op_parallelism" not in old["aio"]
    assert "intra_op_parallelism" in new["aio"]


def test_the_dictionary_is_plain_json(make_job):
    config = rendered(make_job())

    assert json.loads(config.to_json()) == config.to_dict() == config.tree
    assert config.to_dict() is not config.tree


def test_hjson_reads_back_as_the_same_config(make_job):
    from dsgen.documents.hjson.reader import read

    config = rendered(make_job("a100-40g", "70b"))

    assert read(config.to_hjson(), "ds.hjson").config == config.tree


def test_an_unknown_key_suggests(make_job):
    with pytest.raises(dsgen.DsgenError, match=r"has no key zero_optimization\.stge"):
        rendered(make_job()).why("zero_optimization.stge")


def test_render_takes_a_plan_a_job_or_layers(make_job):
    job = make_job("a100-40g", "7b")
    layers = dsgen.profile("a100-40g") | dsgen.profile("7b")

    assert dsgen.render(plan(job)).to_json() == dsgen.render(job).to_json() == dsgen.render(layers).to_json()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"optimizer": {"type": "fusedadam"}}, "optimizer.type = fusedadam; DeepSpeed 0.19.8 has adagrad"),
        ({"scheduler": {"type": "warmuplr"}}, "scheduler.type = warmuplr"),
        ({"scheduler": {"type": "OneCycle"}}, "it needs scheduler.params.cycle_min_lr"),
        ({"prescale_gradients": True}, "reduce_scatter: false"),
        ({"zero_optimization": {"stage": 2, "allgather_bucket_size": 100000001}}, "it must be even"),
        ({"zero_optimization": {"compute_grad_norm": False}}, "false needs gradient_clipping: 0.0"),
        (
            {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 3}},
            "3 does not divide 8 GPUs",
        ),
        (
            {"zero_optimization": {"stage": 2, "zenflow": {"topk_ratio": 0.1}, "offload_optimizer": {"device": "cpu"}}},
            "the loss is NaN",
        ),
        ({"sequence_parallel_size": 2}, "no sequence parallelism"),
        (
            {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}},
            "DeepSpeed 0.19.8 steps at one rate, whatever the scheduler says, and does not save",
        ),
        ({"bf16": {"bf16_master_weights_and_grads": True}}, "16-bit master weights need the optimizer on the CPU"),
        ({"bf16": {"bf16_optimizer_states": True}}, "bf16_optimizer_states needs bf16_master_weights_and_grads: true"),
        ({"fp16": {"enabled": True, "fp16_master_weights_and_grads": True}}, "need the optimizer on the CPU"),
        (
            {
                "optimizer": {"type": "Muon"},
                "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
                "bf16": {"bf16_master_weights_and_grads": True},
            },
            "on the CPU need DeepSpeed's own AdamW or Adam",
        ),
    ],
)
def test_what_deepspeed_would_refuse_is_refused_here(make_job, keys, message):
    """Each was refused by the real engine, or trained something else without a word."""
    with pytest.raises(dsgen.DsgenError, match=re.escape(message)):
        rendered(make_job("a100-40g", "7b", deepspeed=keys))


def test_all_of_an_optimizer_offloaded_is_no_part_of_it(make_job):
    whole = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 1}}}

    assert not any("ratio" in warning for warning in rendered(make_job("a100-40g", "7b", deepspeed=whole)).warnings)


def test_a_config_that_keeps_a_part_of_an_offloaded_optimizer_is_told_so(make_job):
    """A config that is said whole is as it is."""
    part = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}
    job = attrs.evolve(make_job("a100-40g", "7b", deepspeed=part), whole=True)

    assert any("offload_optimizer.ratio is 0.5; what stays on the GPU" in warning for warning in rendered(job).warnings)


def test_master_weights_in_16_bits_are_estimated_without_a_word(make_job):
    """DeepSpeed refuses them at stage 0, which one GPU would have else."""
    keys = {"bf16": {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}}
    one = {"cluster": {"gpus": 1}}
    job = make_job("a100-80g", "125m", deepspeed=keys, **one)
    chosen = plan(job).chosen
    wide = estimate(attrs.evolve(job, narrow=""), chosen.strategy)

    assert plan(make_job("a100-80g", "125m", **one)).chosen.strategy.stage == 0
    assert chosen.strategy.stage > 0
    assert chosen.memory.gpu.peak_bytes < wide.gpu.peak_bytes
    assert not any("do not count" in warning for warning in rendered(job).warnings)


@pytest.mark.parametrize(
    ("key", "value", "wishes", "said"),
    [
        ("zero_hpz_partition_size", 8, {}, None),
        ("zero_hpz_partition_size", 8, {"offload": "all"}, None),
        ("zero_quantized_weights", True, {}, "changes memory; the estimates count it in the interval"),
        ("zero_quantized_gradients", True, {}, "changes memory and speed; the estimates count it in"),
    ],
)  # fmt: skip
def test_of_zeropp_a_warning_says_what_is_not_counted_alone(make_job, key, value, wishes, said):
    """hpZ and qwZ are timed: dsgen.cost.communication."""
    more = {"profiles": ["ethernet-25g"], "cluster": {"nodes": 4}, "training": {"zero_stage": 3, **wishes}}
    keyed = make_job("a100-80g", "7b", deepspeed={"zero_optimization": {key: value}}, **more)
    without = plan(make_job("a100-80g", "7b", **more)).chosen
    told = [one for one in rendered(keyed).warnings if key in one]

    if key != "zero_quantized_gradients":
        assert plan(keyed).chosen.speed > without.speed * 1.1
    assert (len(told) == 1 and said in told[0]) if said else told == []


def test_one_cycle_with_its_params_passes(make_job):
    params = {"cycle_min_lr": 1e-6, "cycle_max_lr": 1e-4}
    config = rendered(make_job(deepspeed={"scheduler": {"type": "OneCycle", "params": params}}))

    assert config.tree["scheduler"]["params"] == params


def test_swapping_has_buffers_for_three_groups_and_keeps_nothing_for_reuse(make_job):
    both = {"zero_optimization": {"offload_optimizer": {"device": "nvme"}, "offload_param": {"device": "nvme"}}}
    facts = {"hardware.host_memory": "3 TiB"}
    zero = rendered(make_job("rtx3090-24g", "70b", deepspeed=both, **facts)).tree["zero_optimization"]

    assert zero["offload_optimizer"]["buffer_count"] == 12
    assert zero["stage3_max_reuse_distance"] == 0


def test_auto_leaves_a_key_to_the_planner(make_job):
    """A file written for Hugging Face says auto where its Trainer fills in; here the planner does."""
    autos = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
        "zero_optimization": {"reduce_bucket_size": "auto", "offload_optimizer": {"device": "auto"}},
    }

    assert rendered(make_job("a100-40g", "7b", deepspeed=autos)).tree == rendered(make_job("a100-40g", "7b")).tree


def test_what_the_estimates_do_not_count_is_said(make_job):
    plain = rendered(make_job())
    copied = {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}, "tensor_parallel": {"autotp_size": 2}}
    hpz = rendered(make_job(deepspeed=copied))
    muon = rendered(make_job(training={"optimizer": "Muon"}))
    sums = rendered(make_job(deepspeed={"data_types": {"grad_accum_dtype": "fp32"}}))

    assert not plain.warnings
    assert any("zero_hpz_partition_size changes memory in a way" in warning for warning in hpz.warnings)
    assert any("grad_accum_dtype changes memory and speed; the estimates count it in" in line for line in sums.warnings)
    assert any("lr 2e-05 is meant for AdamW" in warning for warning in muon.warnings)


@pytest.mark.parametrize("block", ["compression_training", "elasticity", "amp", "nebula"])
def test_anything_inside_a_removed_block_is_refused_as_the_block_is(make_job, block):
    with pytest.raises(dsgen.DsgenError, match=rf"{block}\.x\.enabled was removed from DeepSpeed"):
        make_job(deepspeed={block: {"x": {"enabled": True}}})

    layers = dsgen.profile("a100-80g") | dsgen.profile("7b") | {"compression_training": {"x": {"enabled": True}}}
    assert "compression_training" in dsgen.render(layers, deepspeed="0.14").tree
