"""Facts that contradict each other, and profiles that share a parent."""

from __future__ import annotations

import pytest

import dsgen


def sold_as(memory):
    return dsgen.job(dsgen.profile("a100-40g") | dsgen.profile("7b") | {"hardware": {"gpu_memory": memory}})


def test_more_usable_memory_than_the_card_has_is_refused():
    with pytest.raises(dsgen.DsgenError, match="a driver cannot report more than the card has"):
        sold_as("20 GiB")


def test_gpus_of_one_node_that_nothing_joins_are_refused():
    one = dsgen.profile("gh200-96g") | dsgen.profile("7b")
    several = {"gpus_per_node": 4}
    joined = {"intra_node_link": "nvlink", "intra_node_bandwidth": "450 GB/s", "intra_node_latency": "1.9 us"}

    with pytest.raises(dsgen.DsgenError, match=r"and hardware\.intra_node_link none of 0 GB/s"):
        dsgen.job(one | {"hardware": several})
    with pytest.raises(dsgen.DsgenError, match=r"and hardware\.intra_node_link nvlink of 0 GB/s"):
        dsgen.job(one | {"hardware": {**several, "intra_node_link": "nvlink"}})
    assert dsgen.job(one | {"hardware": {**several, **joined}}).world == 4


def test_memory_as_sold_alone_changes_nothing_and_says_so():
    assert any("hardware.gpu_memory changes no plan" in warning for warning in sold_as("80 GiB").warnings)


def test_learned_positions_end_and_rotary_ones_are_warned_of(make_job):
    with pytest.raises(dsgen.DsgenError, match="gpt2 has learned positions for 1024 tokens and no more"):
        dsgen.plan(make_job("a100-80g", "gpt2", training={"seq_len": 2048}))

    starcoder = {"model": {"architecture": "gpt_bigcode", "kv_heads": 1}, "training": {"seq_len": 2048}}
    with pytest.raises(dsgen.DsgenError, match="gpt_bigcode has learned positions for 1024 tokens and no more"):
        dsgen.plan(dsgen.job(dsgen.profile("a100-80g") | dsgen.profile("gpt2") | starcoder))

    assert any("its positions need scaling" in warning for warning in make_job(training={"seq_len": 8192}).warnings)
    assert not make_job(training={"seq_len": 4096}).warnings


def test_targets_of_their_own_are_for_a_model_with_an_encoder(make_job):
    with pytest.raises(dsgen.DsgenError, match="llama is a decoder alone, whose targets are its own tokens"):
        make_job(training={"target_len": 128})


def test_a_mean_is_at_most_the_longest(make_job):
    assert make_job(training={"seq_len": 512, "mean_len": 512}).tokens == "512 tokens (512 in the mean)"
    with pytest.raises(dsgen.DsgenError, match="mean_len is 513; it must be at most"):
        make_job(training={"seq_len": 512, "mean_len": 513})


def test_samples_are_packed_where_attention_can_stop_at_their_borders(make_job):
    packed = make_job(training={"seq_len": 512, "mean_len": 128, "packing": True})
    assert packed.tokens == "512 tokens (samples packed, 128 in the mean)"
    with pytest.raises(dsgen.DsgenError, match=r"packing is true; training\.attention is sdpa: only"):
        make_job(training={"packing": True, "attention": "sdpa"})
    free = make_job(training={"seq_len": 512, "mean_len": 128, "padding_free": True})
    assert free.tokens == "512 tokens (samples end to end, 128 in the mean)"
    with pytest.raises(dsgen.DsgenError, match=r"padding_free is true; training\.attention is eager: only"):
        make_job(training={"padding_free": True, "attention": "eager"})
    for gpu, model, wishes, why in (
        ("a100-80g", "bloom-7b1", {}, "bloom has no FlashAttention, and eager runs"),
        ("v100-32g", "7b", {}, "this GPU has no FlashAttention, and sdpa runs"),
        ("a100-80g", "7b", {"precision": "fp32"}, "fp32 has no FlashAttention, and sdpa runs"),
        ("cpu", "125m", {}, "this GPU has no FlashAttention, and sdpa runs"),
        ("v100-32g", "gemma-2-9b", {}, "training.attention is eager"),
    ):
        with pytest.raises(dsgen.DsgenError, match=f"packing is true; {why}: only"):
            make_job(gpu, model, training={"packing": True, **wishes})
    encoder = {"architecture": "t5", "encoder_layers": 4, "relative_buckets": 32, "tied_embeddings": True}
    layer = dsgen.profile("a100-80g") | dsgen.profile("7b") | {"model": encoder, "training": {"packing": True}}
    with pytest.raises(dsgen.DsgenError, match="packing is true; t5 reads a sequence with an encoder"):
        dsgen.job(layer)


def test_learned_biases_are_not_for_a_fused_attention(make_job):
    biased = {"architecture": "t5", "encoder_layers": 4, "relative_buckets": 32, "tied_embeddings": True}
    biased = dsgen.profile("a100-80g") | dsgen.profile("7b") | {"model": biased}
    for attention in ("flash", "eager"):  # nor do such biases end or need scaling at any length
        assert not dsgen.job(biased | {"training": {"attention": attention, "seq_len": 8192}}).warnings

    with pytest.raises(dsgen.DsgenError, match=r"sdpa of t5.* which adds learned biases to its scores"):
        dsgen.plan(biased | {"training": {"attention": "sdpa"}})


@pytest.mark.parametrize("names", [("lora", "long-context"), ("long-context", "lora"), ("high-performance", "lora")])
def test_training_profiles_of_one_parent_join_in_any_order(make_job, names):
    """What both inherit is no conflict; what one of them changes wins over what the other only inherits."""
    job = make_job("a100-80g", "7b", profiles=names)
    other = make_job("a100-80g", "7b", profiles=tuple(reversed(names)))

    assert job.training.method == "lora"
    assert job.training == other.training
    assert dsgen.render(job).to_json() == dsgen.render(other).to_json()


def test_profiles_that_both_change_a_wish_still_conflict(make_job):
    with pytest.raises(dsgen.DsgenError, match="have the same rank"):
        make_job("a100-80g", "7b", profiles=("memory-saver", "high-performance"))


def test_an_optimizer_without_a_cpu_version_is_not_offloaded(make_job):
    with pytest.raises(dsgen.DsgenError, match=r"optimizer\.type = Lamb; offloaded, it must be one of"):
        dsgen.render(make_job(training={"offload": "optimizer"}, deepspeed={"optimizer": {"type": "Lamb"}}))


def test_a_release_of_liger_does_nothing_without_its_loss(make_job):
    said = ({"liger": "0.5.10", "chunked_loss": chunked} for chunked in (False, True))
    without, chunked = (make_job(model="7b", training=wishes) for wishes in said)

    assert [warning for warning in without.warnings if "training.liger does nothing" in warning]
    assert not [warning for warning in chunked.warnings if "liger" in warning]


def test_adapters_are_no_wider_than_the_model(make_job):
    lora = {"training.method": "lora"}
    with pytest.raises(
        dsgen.DsgenError, match=r"training\.lora_rank is 4097; it must be at most 4096, the width"
    ) as told:
        make_job(**lora, **{"training.lora_rank": 4097})

    assert "8 to 64" in str(told.value)
    assert make_job(**lora, **{"training.lora_rank": 4096}).training.lora_rank == 4096
    assert make_job(**{"training.lora_rank": 4097}).training.lora_rank == 4097  # nothing reads it without adapters


def test_a_memory_in_gb_is_told_that_a_shop_means_gib_by_it() -> None:
    (told,) = [warning for warning in sold_as("80GB").warnings if "80GB" in warning]

    assert told.endswith("80GB is 74.5 GiB; a card that is sold as 80 GB has 80 GiB: write 80GiB")
    assert not any("is sold as" in warning for warning in sold_as("80 GiB").warnings)


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        ({"micro_batch": 4, "accumulation": 4, "global_batch": 64}, True),
        ({"micro_batch": 4, "accumulation": 4, "global_batch": 128}, False),
        ({"micro_batch": 4, "accumulation": 4, "global_batch": 64, "tp": 2}, False),
        ({"micro_batch": 4, "global_batch": 64}, False),
    ],
)
def test_a_batch_that_only_tensor_parallelism_makes_so_small_is_told(batch, told):
    warnings = dsgen.job({"hw": "a100-80g", "model": "7b", "gpus": 8, **batch}).warnings

    assert any("x 8 GPUs are 128 sequences a step, not 64" in warning for warning in warnings) is told
