"""The five guides the project began from: what each asks for is given, and what each gets wrong is caught."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.memory import parts
from dsgen.shapes.errors import DsgenError

ROOT = Path(__file__).resolve().parents[2]


def composed(hardware: str, model: str, *others: str, **training: Any) -> dsgen.Layers:
    layers = dsgen.profile(hardware) | dsgen.profile(model)
    for name in others:
        layers = layers | dsgen.profile(name)
    return layers | {"training": training} if training else layers


def config(hardware: str, model: str, *others: str, **training: Any) -> dsgen.Config:
    return dsgen.render(composed(hardware, model, *others, **training))


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "dsgen", *arguments]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)


# Guide 0: variants by GPU memory, ZeRO-3 for large models, CPU offload.


@pytest.mark.parametrize("hardware", ["generic-24g", "generic-40g", "generic-80g"])
@pytest.mark.parametrize("training", ["standard", "high-performance"])
def test_guide_0_has_a_variant_for_each_memory_size(hardware: str, training: str) -> None:
    rendered = config(hardware, "7b", training)
    memory = rendered.plan.chosen.memory
    assert memory.gpu.high_bytes <= memory.gpu.limit_bytes
    assert rendered.tree["zero_optimization"]["overlap_comm"] is True


def test_guide_0_gives_no_fixed_micro_batch_per_gpu_size() -> None:
    small = config("generic-40g", "1b", zero_stage=2).tree["train_micro_batch_size_per_gpu"]
    large = config("generic-40g", "7b", zero_stage=2, offload="optimizer", checkpointing="none")
    assert small > large.tree["train_micro_batch_size_per_gpu"]


def test_guide_0_reads_bucket_sizes_as_elements() -> None:
    rendered = config("a100-80g", "7b", zero_stage=2)
    size = rendered.tree["zero_optimization"]["reduce_bucket_size"]
    reason = rendered.why("zero_optimization.reduce_bucket_size").reason
    assert "elements, not bytes" in reason
    assert f"{size * 2 / 2**30:.2f} GiB" in reason
    assert "twice" in reason  # overlap_comm holds two


def test_guide_0_takes_a_large_model_to_stage_3_with_both_offloads() -> None:
    zero = config("a100-40g", "30b", zero_stage=3, offload="all").tree["zero_optimization"]
    assert (zero["stage"], zero["offload_optimizer"]["device"], zero["offload_param"]["device"]) == (3, "cpu", "cpu")


def test_guide_0_smaller_buckets_take_less_memory() -> None:
    def bucket_bytes(elements: int) -> int:
        layers = composed("a100-80g", "7b", zero_stage=2, micro_batch=1)
        plan = dsgen.plan(layers | {"zero_optimization": {"reduce_bucket_size": elements}})
        chosen = plan.chosen.strategy
        found = parts(plan.job, chosen, chosen.buffers, chosen.accumulation)
        sizes = {moment.parts.get("communication buckets", (0, 0))[0] for moment in found.moments}
        return min(sizes - {0})  # without the flat copy that a reduction makes for a moment

    assert bucket_bytes(500_000_000) - bucket_bytes(200_000_000) == 1_200_000_000  # two of bf16: not the guide's 600 MB


# Guide 1: a template per stage, offload to CPU and NVMe, fp16 and bf16, the memory table.


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_guide_1_has_a_template_for_each_stage(stage: int) -> None:
    assert config("a100-80g", "7b", zero_stage=stage).tree["zero_optimization"]["stage"] == stage


def test_guide_1_takes_data_parallelism_for_small_models() -> None:
    assert "zero_optimization" not in config("a100-40g", "125m").tree


def test_guide_1_data_parallel_7b_needs_more_than_its_weights() -> None:
    with pytest.raises(DsgenError, match="fits nowhere"):
        config("a100-80g", "7b", zero_stage=0)


def test_guide_1_stage_3_saves_by_the_number_of_gpus() -> None:
    def states(nodes: int) -> int:
        layers = composed("a100-80g", "7b", zero_stage=3, offload="none")
        if nodes > 1:
            layers = layers | dsgen.profile("ib-hdr-200g") | {"cluster": {"nodes": nodes}}
        parts = dsgen.plan(layers).chosen.memory.gpu.parts
        return parts["optimizer states"] + parts["fp32 master weights"]

    one, eight = states(1), states(8)
    assert one / eight == pytest.approx(8, rel=0.01)  # 8 GPUs to 64: "64x" is the last, not a constant


def test_guide_1_nvme_offload_brings_aio_and_a_path() -> None:
    values = config("a100-80g", "13b", offload="nvme").tree
    offload = values["zero_optimization"]["offload_optimizer"]
    assert (offload["device"], offload["nvme_path"]) == ("nvme", "/local_nvme")
    assert values["aio"]["block_size"] == 1_048_576


def test_guide_1_fp16_scales_the_loss_dynamically() -> None:
    fp16 = config("v100-32g", "1b").tree["fp16"]
    assert (fp16["enabled"], fp16["loss_scale"]) == (True, 0)


def test_guide_1_bf16_needs_no_loss_scale() -> None:
    values = config("a100-40g", "1b").tree
    assert values["bf16"] == {"enabled": True}
    assert "fp16" not in values


# Guide 2: stage 3 with both offloads; what the activation_checkpointing block does.


def test_guide_2_has_stage_3_with_both_offloads() -> None:
    values = config("generic-24g", "7b", zero_stage=3, offload="all", global_batch=16, checkpointing="full").tree
    zero = values["zero_optimization"]
    assert zero["offload_param"]["pin_memory"] is True
    assert zero["stage3_gather_16bit_weights_on_model_save"] is True
    assert values["train_batch_size"] == 16


def test_guide_2_activation_checkpointing_says_that_no_key_switches_it_on() -> None:
    rendered = config("a100-80g", "7b", checkpointing="full")
    reason = rendered.why("activation_checkpointing.partition_activations").reason
    assert "gradient_checkpointing_enable" in reason


def test_guide_2_the_batch_says_that_it_fixes_the_gpus() -> None:
    assert "another number of GPUs" in config("a100-80g", "7b").why("train_batch_size").reason


def test_guide_2_number_checkpoints_alone_is_left_out() -> None:
    rendered = dsgen.render(composed("a100-80g", "7b") | {"activation_checkpointing": {"number_checkpoints": 8}})
    assert "number_checkpoints" not in rendered.tree.get("activation_checkpointing", {})
    assert any("number_checkpoints" in warning for warning in rendered.warnings)


# Guide 3: ZeRO-2 with offload, AdamW and WarmupLR; no "auto" is written.


def test_guide_3_writes_no_auto() -> None:
    rendered = config("v100-32g", "7b", zero_stage=2, offload="optimizer", scheduler="WarmupLR")
    assert '"auto"' not in rendered.to_json()
    zero = rendered.tree["zero_optimization"]
    assert (zero["stage"], zero["offload_optimizer"]["device"]) == (2, "cpu")
    assert (rendered.tree["optimizer"]["type"], rendered.tree["scheduler"]["type"]) == ("AdamW", "WarmupLR")
    assert rendered.tree["fp16"]["enabled"] is True
    assert rendered.tree["gradient_clipping"] > 0


@pytest.mark.parametrize("key", ["training.lr", "training.gradient_clipping", "training.warmup_steps"])
def test_guide_3_auto_is_refused_where_a_number_must_be(key: str) -> None:
    done = command("render", "--hw", "a100-40g", "--model", "7b", "--set", f"{key}=auto")
    assert done.returncode == 2
    assert f"{key} is auto" in done.stderr


# Guide 4: AutoTP with ZeRO-1 against ZeRO-3.


def test_guide_4_both_candidates_render() -> None:
    tensor = config("a100-80g", "llama-2-7b", tp=4, zero_stage=1, precision="fp16", global_batch=32)
    sharded = config("a100-80g", "llama-2-7b", zero_stage=3, precision="fp16", global_batch=32)
    assert tensor.tree["tensor_parallel"] == {"autotp_size": 4}
    assert "tensor_parallel" not in sharded.tree
    assert "stage3_prefetch_bucket_size" in sharded.tree["zero_optimization"]


def test_guide_4_tensor_parallelism_shards_gradients_too() -> None:
    layers = composed("h200-141g", "7b", zero_stage=1, checkpointing="full", micro_batch=1, offload="none")
    whole, split = dsgen.plan(layers), dsgen.plan(layers | {"training": {"tp": 4}})
    share = split.chosen.memory.gpu.parts["gradients"] / whole.chosen.memory.gpu.parts["gradients"]
    assert 0.25 < share < 0.35  # a quarter of the blocks; embeddings and head stay whole


def test_guide_4_both_are_compared_by_memory_and_speed() -> None:
    cluster = {"cluster": {"nodes": 4}}
    layers = composed("a100-80g", "llama-2-70b", "ethernet-25g") | cluster
    free = dsgen.plan(layers | {"training": {"tp": 8}}).chosen
    sharded = dsgen.plan(layers | {"training": {"zero_stage": 3, "offload": "none"}}).chosen
    assert free.strategy.tp > 1
    assert free.speed > sharded.speed
    assert free.cost.communication_share < sharded.cost.communication_share


def test_guide_4_a_slow_network_favours_tensor_parallelism() -> None:
    def degree(network: str) -> int:
        return dsgen.plan(composed("a100-80g", "llama-2-70b", network) | {"cluster": {"nodes": 4}}).chosen.strategy.tp

    assert degree("ethernet-10g") > degree("ib-ndr-3200g") == 1


# What the guides write and DeepSpeed does not read: an error that names the right key.


@pytest.mark.parametrize(
    ("written", "right"),
    [
        ("memory_efficient_linear=true", "zero_optimization.memory_efficient_linear"),
        ("tensor_parallel.enabled=true", "tensor_parallel.autotp_size"),
        ("tensor_parallel.tp_size=4", "tensor_parallel.autotp_size"),
        ("tensor_parallel.tp_group_size=4", "tensor_parallel.autotp_size"),
        ("offload_optimizer.device=cpu", "zero_optimization.offload_optimizer.device"),
        ("zero_optimization.stage3_bucket_size=1", "zero_optimization."),
    ],
)
def test_a_key_that_deepspeed_does_not_read_names_the_right_one(written: str, right: str) -> None:
    done = command("render", "--hw", "a100-40g", "--model", "7b", "--set", written)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"unknown path {written.partition('=')[0]}" in done.stderr
    assert right in done.stderr


@pytest.mark.parametrize("written", ["use_dynamic_tiling=true", "DS_PIPE_RESERVE=10", "DS_USE_CUDA_TILING=1"])
def test_what_nothing_reads_is_refused(written: str) -> None:
    done = command("render", "--hw", "a100-40g", "--model", "7b", "--set", written)
    assert (done.returncode, done.stdout) == (2, "")
    assert "neither dsgen nor DeepSpeed reads it" in done.stderr


def test_a_bucket_size_in_bytes_is_refused() -> None:
    done = command("render", "--hw", "a100-40g", "--model", "7b", "--set", "zero_optimization.reduce_bucket_size=500MB")
    assert done.returncode == 2
    assert "it must be a whole number" in done.stderr


def test_a_key_that_does_nothing_is_left_out_with_a_warning() -> None:
    done = command(
        "render", "--hw", "a100-80g", "--model", "3b", "--set", "zero_optimization.allgather_partitions=true"
    )
    assert done.returncode == 0
    assert "allgather_partitions" not in json.dumps(json.loads(done.stdout))
    assert "nothing reads it" in " ".join(done.stderr.split())
