"""What the program could do otherwise: offered where it is worth it, with the plan that it really allows."""

from __future__ import annotations

import json
import sys

import attrs
import pytest
from constraint_cases import T5

import dsgen
from dsgen.asking.plan_questions.offers import FREE_GAIN, MOST_OFFERS, OTHER_GAIN, offers
from dsgen.planning.candidates import Search
from dsgen.planning.planner import best, offloaded, plan
from dsgen.planning.program_changes import degrees, fewest, program_changes
from dsgen.report import offers as report
from dsgen.report import plan as plan_report
from dsgen.report import summary

EIGHT_BITS = "--optimizer AdamW8bit"
ADAPTERS = ("--method lora", "--method qlora")
LORA_ON_A_3090 = {"training.method": "lora", "cluster.gpus": 1}


def on_a_3090(make_job, **more):
    return plan(make_job("rtx3090-24g", "llama-3.1-8b", **LORA_ON_A_3090, **more))


def test_a_chunked_loss_saves_the_offload_of_adapters_on_one_consumer_card(make_job):
    asked = on_a_3090(make_job)
    offer = offers(asked)[0]
    alone = plan(make_job("rtx3090-24g", "llama-3.1-8b", **LORA_ON_A_3090, **{"training.chunked_loss": True})).chosen

    assert offloaded(asked.chosen.strategy) > 0
    assert offer.change.option == "--chunked-loss"
    assert (offer.chosen.strategy, offer.chosen.speed) == (alone.strategy, alone.speed)
    assert offer.gain == pytest.approx(alone.speed / asked.chosen.speed - 1)
    assert offer.simpler
    assert offer.plain
    assert offer.chosen.sure


def test_what_is_offered_is_what_the_option_gives(make_job):
    """Each offer's number is that of a plan for which its option was said."""
    asked = plan(make_job("rtx4090-24g", "llama-3.1-8b", cluster={"gpus": 4}))

    told = offers(asked)

    assert {offer.change.field for offer in told} == {"chunked_loss", "method"}
    for offer in told:
        said = {f"training.{offer.change.field}": offer.change.value}
        alone = plan(make_job("rtx4090-24g", "llama-3.1-8b", cluster={"gpus": 4}, **said)).chosen
        assert offer.chosen.strategy.stage == alone.strategy.stage
        assert offer.gain >= (FREE_GAIN if offer.change.same else OTHER_GAIN)
        assert offer.saved_bytes == asked.chosen.memory.gpu.needed_bytes - offer.chosen.memory.gpu.needed_bytes


@pytest.mark.parametrize(
    ("gpus", "launcher", "told"), [(2, "torchrun", True), (2, "bound", False), (1, "torchrun", False)]
)
def test_a_launcher_that_binds_is_offered_where_adam_on_the_host_waits_for_cores(make_job, gpus, launcher, told):
    said = {"training.offload": "optimizer", "training.launcher": launcher, "training.seq_len": 512}
    asked = plan(make_job("a100-40g", "qwen2.5-3b", cluster={"gpus": gpus}, **said))
    bound = plan(make_job("a100-40g", "qwen2.5-3b", cluster={"gpus": gpus}, **{**said, "training.launcher": "bound"}))

    found = [offer for offer in offers(asked) if offer.change.field == "launcher"]

    assert [offer.change.option for offer in found] == ["--launcher bound"] * told
    assert [offer.gain for offer in found] == [pytest.approx(bound.chosen.speed / asked.chosen.speed - 1)] * told
    assert ("Adam on the host" in plan_report.text(asked, width=200)) is (gpus > 1)
    assert all(offer.change.field != "launcher" for offer in offers(plan(make_job("a100-80g", "1b"))))


def test_torchs_attention_is_offered_where_it_runs_cudnns_kernel(make_job):
    """At 32k tokens attention is 40 % of a step on Hopper; before torch 2.11, on Ampere and with a window it is not."""
    long = {"training.seq_len": 32768, "training.chunked_loss": True}

    def gains(gpu, model="llama-3.1-8b", **more):
        asked = plan(make_job(gpu, model, cluster={"gpus": 8}, **long, **more))
        return {one.change.option: one.gain for one in offers(asked)}

    assert gains("h100-80g")["--attention sdpa"] > 0.15
    for other in (gains("h100-80g", **{"training.torch": "2.8"}), gains("a100-80g"), gains("h100-80g", "mistral-7b"),
                  gains("h100-80g", **{"training.flash_attention": 3}),
                  gains("b200-180g", **{"training.flash_attention": 4})):  # fmt: skip
        assert "--attention sdpa" not in other


def test_adapters_of_the_base_s_type_are_offered_where_stage_3_leaves_them_in_fp32(make_job):
    """Their products run outside tensor cores: of a 70B, a fifth of its step. DeepSpeed casts them at other stages."""

    def gains(model, stage):
        wishes = {"training.method": "lora", "training.lora_rank": 64, "training.zero_stage": stage}
        asked = plan(make_job("a100-80g", model, cluster={"gpus": 8}, **wishes))
        return {one.change.option: one.gain for one in offers(asked)}

    assert gains("qwen2.5-72b", 3)["--no-lora-fp32"] > 0.15
    assert "--no-lora-fp32" not in gains("7b", 2)


def test_reentrant_checkpointing_is_offered_where_gathered_4_bit_weights_would_stay(make_job):
    """Of a 70B they are 34 GiB: bitsandbytes keeps what it multiplied by until backward, unless there is no graph."""
    wishes = {"training.method": "qlora", "training.seq_len": 16384, "training.zero_stage": 3}
    asked, left = (
        plan(make_job("a100-80g", "llama-3.1-70b", cluster={"gpus": 4}, **wishes, **{"training.reentrant": said}))
        for said in (False, None)
    )
    offer = {one.change.option: one for one in offers(asked)}["--reentrant"]

    assert not asked.chosen.sure
    assert left.chosen.sure
    assert offer.surer
    assert (offer.chosen.strategy, offer.chosen.speed) == (left.chosen.strategy, left.chosen.speed)
    assert offer.saved_bytes > 20 * 2**30


@pytest.mark.parametrize(
    "wishes",
    [
        {"training.method": "lora", "training.reentrant": False},
        {"training.method": "qlora", "training.reentrant": False, "cluster.gpus": 1},
        {"training.method": "qlora"},
    ],
)
def test_reentrant_checkpointing_is_no_change_where_nothing_is_gathered_or_it_runs_already(make_job, wishes):
    job = make_job("a100-80g", "7b", **wishes)

    assert "--reentrant" not in [change.option for change in program_changes(job)]


def test_reentrant_checkpointing_is_no_change_where_a_release_needs_it(make_job):
    job = make_job("a100-80g", "7b", **{"training.method": "qlora", "training.reentrant": False})
    options = {
        version: [change.option for change in program_changes(attrs.evolve(job, version=version))]
        for version in ("0.19.2", "0.19.3")
    }

    assert "--reentrant" not in options["0.19.2"]
    assert "--reentrant" in options["0.19.3"]


def test_what_fits_nowhere_may_with_reentrant_checkpointing(make_job):
    with pytest.raises(dsgen.DsgenError) as refused:
        plan(make_job("l40s-48g", "llama-3.1-70b", training={"method": "qlora", "seq_len": 8192, "reentrant": False}))

    assert "may fit with --reentrant, torch's reentrant checkpointing" in (refused.value.todo or "")


def test_states_in_8_bits_are_offered_where_they_leave_room_for_a_faster_plan(make_job):
    asked = plan(make_job("a100-80g", "34b", cluster={"gpus": 8}))

    (offer,) = [offer for offer in offers(asked) if offer.change.option == EIGHT_BITS]

    assert offer.gain >= FREE_GAIN
    assert offer.saved_bytes > 0
    assert offer.chosen.strategy.micro_batch > asked.chosen.strategy.micro_batch


def test_states_in_8_bits_are_not_offered_where_they_do_not_run(make_job):
    """bitsandbytes has none for Gaudi: the offer's own plan is refused."""
    asked = plan(make_job("gaudi2-96g", "34b", cluster={"gpus": 8}))

    assert EIGHT_BITS in [change.option for change in program_changes(asked.job)]
    assert EIGHT_BITS not in [offer.change.option for offer in offers(asked)]


def test_nothing_is_offered_where_nothing_is_gained(make_job):
    assert offers(plan(make_job("h100-80g", "7b"))) == ()


def test_who_trains_all_weights_with_room_is_not_told_to_train_less(make_job):
    """Adapters would be faster; that is no reason to train something else."""
    asked = plan(make_job("a100-80g", "7b"))
    adapters = plan(make_job("a100-80g", "7b", **{"training.method": "lora"}))

    assert not offloaded(asked.chosen.strategy)
    assert adapters.chosen.speed > asked.chosen.speed * 1.15
    assert not [offer for offer in offers(asked) if not offer.change.same]


def test_what_trains_the_same_comes_first(make_job):
    asked = plan(make_job("rtx4090-24g", "llama-3.1-8b", cluster={"gpus": 4}))
    told = offers(asked)

    assert [offer.change.same for offer in told] == sorted((offer.change.same for offer in told), reverse=True)
    assert len(told) <= MOST_OFFERS


@pytest.mark.parametrize(
    ("wishes", "options"),
    [
        ({}, ["--chunked-loss", EIGHT_BITS, *ADAPTERS, "--seq-len 2048"]),
        ({"chunked_loss": True, "attention": "eager", "seq_len": 9}, ["--attention sdpa", EIGHT_BITS, *ADAPTERS]),
        ({"chunked_loss": True, "optimizer": "Lion", "seq_len": 9}, [*ADAPTERS]),
        ({"chunked_loss": True, "optimizer": "AdamW8bit", "seq_len": 9}, [*ADAPTERS]),
        ({"method": "lora", "seq_len": 511}, ["--chunked-loss", "--no-lora-fp32", "--method qlora"]),
        ({"method": "lora", "lora_fp32": False, "seq_len": 511}, ["--chunked-loss", "--method qlora"]),
        ({"method": "lora", "zero_init": False, "seq_len": 511}, ["--chunked-loss", "--method qlora"]),
        ({"method": "qlora", "seq_len": 512}, ["--chunked-loss", "--kbit-fp32 never", "--seq-len 256"]),
        ({"method": "qlora", "reentrant": False, "seq_len": 511},
         ["--chunked-loss", "--kbit-fp32 never", "--reentrant"]),
        ({"lora_targets": ["no_such_matrix"], "seq_len": 256}, ["--chunked-loss", EIGHT_BITS]),
    ],
)  # fmt: skip
def test_only_what_the_program_does_not_do_already_is_asked(make_job, wishes, options):
    asked = make_job("a100-80g", "7b", training={"launcher": "bound", **wishes})
    unbound = [change.option for change in program_changes(make_job("a100-80g", "7b", training=wishes))]

    assert [change.option for change in program_changes(asked)] == options
    assert sorted(unbound) == sorted([*options, "--launcher bound"])


@pytest.mark.parametrize(
    ("gpu", "model", "wishes", "offered"),
    [
        ("a100-80g", "llama-3.1-8b", {"mean_len": 1000}, True),  # padding
        ("a100-80g", "llama-3.1-8b", {}, False),
        ("a100-80g", "gemma-3-12b", {}, True),  # windows of 1,024 tokens
        ("a100-80g", "gemma-3-12b", {"seq_len": 512}, False),
        ("v100-32g", "llama-3.1-8b", {"mean_len": 1000}, False),  # which has no FlashAttention
        ("a100-80g", "llama-3.1-8b", {"mean_len": 1000, "precision": "fp32"}, False),
    ],
)
def test_flashattention_is_offered_where_sdpa_gets_a_mask(make_job, gpu, model, wishes, offered):
    asked = make_job(gpu, model, training={"seq_len": 2048, "attention": "sdpa", **wishes})

    assert ("--attention flash" in {change.option for change in program_changes(asked)}) is offered


@pytest.mark.parametrize(
    ("gpu", "model", "wishes", "options"),
    [
        ("a100-80g", "7b", {"seq_len": 1024, "mean_len": 300}, ["--packing", "--seq-len 512"]),
        (
            "a100-80g",
            "7b",
            {"seq_len": 1024, "mean_len": 513},
            ["--packing"],
        ),  # a mean of 513 is no 512
        ("a100-80g", "7b", {"seq_len": 1024, "mean_len": 300, "packing": True}, ["--seq-len 512"]),
        ("h100-80g", "7b", {"seq_len": 1024, "packing": True}, ["--seq-len 512"]),  # sdpa packs nothing
        ("v100-32g", "7b", {"seq_len": 256, "mean_len": 30}, []),
        ("cpu", "125m", {"seq_len": 256, "mean_len": 30}, []),
        ("a100-80g", "bloom-7b1", {"seq_len": 256, "mean_len": 30}, []),
    ],
)
def test_samples_are_offered_to_be_packed_where_attention_can_stop_at_their_borders(
    make_job, gpu, model, wishes, options
):
    """And sequences of half the length where the mean of their samples is no longer."""
    asked = make_job(gpu, model, training={"chunked_loss": True, "optimizer": "Lion", "launcher": "bound", **wishes})
    told = [change.option for change in program_changes(asked) if change.field != "method"]

    assert told == options


def test_an_encoder_s_chunked_loss_is_refused_and_so_not_offered(tmp_path):
    """It is not counted behind an encoder; a plan that must offload still tells what else would do."""
    (tmp_path / "config.json").write_text(json.dumps({**T5, "d_model": 2048, "d_ff": 8192, "num_layers": 24}))
    layers = dsgen.profile("rtx3090-24g") | dsgen.profile(str(tmp_path / "config.json"))
    asked = plan(dsgen.job(layers | {"cluster.gpus": 1, "training.zero_stage": 2, "training.offload": "optimizer"}))

    assert {change.field for change in program_changes(asked.job)} == {"method", "optimizer", "seq_len"}
    assert "chunked_loss" not in {offer.change.field for offer in offers(asked)}


def test_a_change_that_may_not_fit_is_not_offered_where_the_plan_does(make_job, monkeypatch):
    asked = on_a_3090(make_job)
    unsure = attrs.evolve(asked.chosen, job=attrs.evolve(asked.job, hardware=_smaller(asked)))
    monkeypatch.setattr(sys.modules[best.__module__], "contenders", lambda *_: Search((unsure,), (), ()))

    assert not unsure.sure
    assert offers(asked) == ()


def _smaller(asked):
    usable = int(asked.chosen.memory.gpu.high_bytes) - 1
    return attrs.evolve(asked.job.hardware, usable_memory_bytes=usable)


ON_T4S = {"training.method": "qlora", "cluster.gpus": 2}
ON_A_3060 = {"training.method": "qlora", "cluster.gpus": 1, "training.seq_len": 2048}
ALL_OPTIONS = "--chunked-loss --activation-offloading --kbit-fp32 never"


def test_several_changes_at_once_are_offered_where_neither_alone_surely_fits_without_an_offload(make_job):
    asked = plan(make_job("rtx3060-12g", "phi-4", **ON_A_3060))
    told = {offer.change.option: offer for offer in offers(asked)}
    said = {"training.chunked_loss": True, "training.activation_offloading": True, "training.kbit_fp32": "never"}
    every = plan(make_job("rtx3060-12g", "phi-4", **ON_A_3060, **said)).chosen

    assert not asked.chosen.sure
    assert [*told] == ["--kbit-fp32 never", "--chunked-loss", "--activation-offloading", ALL_OPTIONS]
    assert told["--kbit-fp32 never"].surer
    assert offloaded(told["--kbit-fp32 never"].chosen.strategy) > 0
    assert not told["--chunked-loss"].chosen.sure
    assert not told["--activation-offloading"].chosen.sure
    assert told[ALL_OPTIONS].chosen.strategy == every.strategy
    assert told[ALL_OPTIONS].gain == pytest.approx(every.speed / asked.chosen.speed - 1)
    assert told[ALL_OPTIONS].surer
    assert told[ALL_OPTIONS].plain
    (line,) = [one for one in report.lines(tuple(told.values())) if one.startswith(f"with {ALL_OPTIONS}, ")]
    assert ", and without prepare_model_for_kbit_training" in line
    assert line.endswith("no offload, surely fits")
    (alone,) = [one for one in report.lines(tuple(told.values())) if one.startswith("with --chunked-loss, ")]
    assert alone.endswith("no offload, may not fit")
    assert report.data(tuple(told.values()))[3]["also"] == [
        {"field": "activation_offloading", "value": True},
        {"field": "kbit_fp32", "value": "never"},
    ]


@pytest.mark.parametrize(
    ("hardware", "gpus", "model", "method"),
    [
        ("rtx3090-24g", 1, "llama-3.1-8b", "lora"),  # a chunked loss alone fits without an offload
        ("rtx3090-24g", 4, "qwen2.5-32b", "qlora"),  # both are 7 % faster than the one that surely fits
        ("a100-80g", 8, "llama-3.1-8b", "full"),  # at ease
    ],
)
def test_no_two_at_once_where_one_does_or_none_is_needed(make_job, hardware, gpus, model, method):
    asked = plan(make_job(hardware, model, **{"training.method": method, "cluster.gpus": gpus}))

    assert [offer.change.option for offer in offers(asked) if offer.change.also] == []


def test_of_several_at_once_none_is_there_in_vain(make_job):
    """Three that a base in 4 bits could do otherwise on two GPUs; two of them are enough."""
    job = make_job("t4-16g", "qwen2.5-14b", **ON_T4S, **{"training.reentrant": False})
    changes = [change for change in program_changes(job) if change.same]

    kept = fewest(changes, lambda change: {"--chunked-loss", "--reentrant"} <= set(change.option.split()))

    assert {"--chunked-loss", "--kbit-fp32 never", "--reentrant"} <= {change.option for change in changes}
    assert kept is not None
    assert kept.option == "--chunked-loss --reentrant"
    assert kept.applied(job).training.chunked_loss
    assert kept.applied(job).training.reentrant
    assert kept.applied(job).training.kbit_fp32 == job.training.kbit_fp32
    assert fewest(changes, lambda change: False) is None


def test_plan_render_and_json_say_the_same_offer(make_job):
    asked = on_a_3090(make_job)
    offer = offers(asked)[0]
    text, data = plan_report.text(asked, width=200), plan_report.data(asked)["program_changes"]

    assert [line for line in text.splitlines() if line.startswith("with --chunked-loss, ")]
    assert f"{offer.gain:.0%} faster" in text
    assert data[0]["option"] == "--chunked-loss"
    assert data[0]["gain"] == offer.gain
    assert data[0]["trains_the_same"] is True
    assert data == report.data(offers(asked))
    said = " ".join(summary.text(dsgen.render(asked)).split())
    assert "with --chunked-loss (your program's part): plain data parallel, checkpointing" in said
    assert "no offload" in said


def test_a_summary_offers_nothing_where_the_plan_is_at_ease(make_job):
    assert "with --" not in summary.text(dsgen.render(make_job("a100-40g", "7b")))


def test_autotp_is_not_chosen_with_a_chunked_loss_unless_it_is_asked_for(make_job):
    """Liger's takes the whole head, of which AutoTP leaves each rank a part."""
    free = plan(make_job("a100-80g", "7b", **{"training.chunked_loss": True}))
    asked = plan(make_job("a100-80g", "7b", **{"training.chunked_loss": True, "training.tp": 2}))

    shared = [item for item in free.rejections if item.layout.tp > 1 and item.pin is None]
    assert shared
    assert {item.why for item in shared if not item.missing_bytes} == {
        "a chunked loss needs the whole head, and AutoTP shares it out: Liger's does not run like this"
    }
    assert asked.chosen.strategy.tp == 2


@pytest.mark.parametrize(
    ("hardware", "model", "key", "value"),
    [
        ("a100-80g", "llama-3.1-70b", "zero_hpz_partition_size", 8),
        ("h100-80g", "30b", "zero_hpz_partition_size", 8),
        ("h100-80g", "30b", "zero_quantized_weights", True),
    ],
)
def test_zeropp_is_offered_between_nodes_where_gathering_is_what_takes_the_time(make_job, hardware, model, key, value):
    cluster = {"profiles": ["ethernet-100g"], "cluster": {"nodes": 4}}
    asked = plan(make_job(hardware, model, **cluster))
    alone = plan(make_job(hardware, model, deepspeed={"zero_optimization": {key: value}}, **cluster)).chosen

    (offer,) = [one for one in offers(asked) if one.change.field == f"zero_optimization.{key}"]

    assert offer.change.option == f"--set zero_optimization.{key}={json.dumps(value)}"
    assert offer.chosen.strategy == alone.strategy
    assert offer.gain == pytest.approx(alone.speed / asked.chosen.speed - 1)
    assert offer.gain >= FREE_GAIN
    assert "watch that the loss is as without it" in plan_report.text(asked, width=200)


HPZ, QWZ = "zero_optimization.zero_hpz_partition_size", "zero_optimization.zero_quantized_weights"
BOTH = {"zero_hpz_partition_size": 8, "zero_quantized_weights": True}


@pytest.mark.parametrize(
    ("model", "network", "fields"),
    [
        ("70b", "ethernet-25g", [HPZ, QWZ, "zero_optimization"]),
        ("7b", "ethernet-25g", ["zero_optimization"]),  # neither alone is faster than ZeRO-2
        ("70b", "ethernet-100g", [HPZ, QWZ]),  # both are 7 % faster than hpZ
        ("7b", "ib-hdr-200g", []),
    ],
)
def test_both_keys_of_zeropp_are_offered_where_they_are_worth_more_than_one(make_job, model, network, fields):
    cluster = {"profiles": [network], "cluster": {"nodes": 4}}
    asked = plan(make_job("a100-80g", model, **cluster))
    told = offers(asked)
    zeropp = [offer for offer in told if offer.change.key]
    both = plan(make_job("a100-80g", model, deepspeed={"zero_optimization": BOTH}, **cluster)).chosen

    assert [offer.change.field for offer in zeropp] == fields
    assert len(told) <= MOST_OFFERS + ("zero_optimization" in fields)
    best = max((offer.gain for offer in zeropp if offer.change.field in (HPZ, QWZ)), default=0.0)
    gain = both.speed / asked.chosen.speed - 1
    assert (1 + gain >= (1 + best) * (1 + FREE_GAIN)) is ("zero_optimization" in fields)
    for offer in zeropp:
        if offer.change.field == "zero_optimization":
            assert offer.change.value == BOTH
            assert offer.change.option == f"--set {HPZ}=8 --set {QWZ}=true"
            assert (offer.chosen.strategy, offer.gain) == (both.strategy, pytest.approx(gain))
            assert "watch that the loss is as without them" in " ".join(plan_report.text(asked, width=200).split())


@pytest.mark.parametrize(("memory", "offered"), [("2000 GiB", True), ("480 GiB", False)])
def test_hpz_is_not_offered_where_ram_has_no_room_for_its_copy(make_job, memory, offered):
    """Beside parameters in RAM the copy lies there too: 128 GiB of a 70B."""
    cluster = {"profiles": ["ethernet-25g"], "cluster": {"nodes": 4}, "hardware.host_memory": memory}
    asked = plan(make_job("a100-80g", "70b", **cluster))
    told = [offer.change.field for offer in offers(asked)]

    assert asked.chosen.sure
    assert (HPZ in told) is offered
    assert ("zero_optimization" in told) is offered
    assert QWZ in told


@pytest.mark.parametrize("said", [{"zero_hpz_partition_size": 8}, {"zero_quantized_weights": True}])
def test_of_zeropp_s_keys_the_one_that_is_said_is_not_offered_with_the_other(make_job, said):
    cluster = {"profiles": ["ethernet-25g"], "cluster": {"nodes": 4}}
    asked = plan(make_job("a100-80g", "70b", deepspeed={"zero_optimization": said}, **cluster))

    assert "zero_optimization" not in [offer.change.field for offer in offers(asked)]


@pytest.mark.parametrize(
    ("key", "value"), [("zero_hpz_partition_size", 8), ("zero_quantized_weights", True), (None, None)]
)
def test_zeropp_is_not_asked_for_in_one_node_nor_where_it_is_said(make_job, key, value):
    network = {"profiles": ["ethernet-100g"], "cluster": {"nodes": 4}} if key else {"cluster": {"nodes": 1}}
    said = {"deepspeed": {"zero_optimization": {key: value}}} if key else {}
    changes = program_changes(make_job("a100-80g", "llama-3.1-70b", **network, **said))
    keys = {change.field for change in changes if change.key}

    both = {"zero_optimization.zero_hpz_partition_size", "zero_optimization.zero_quantized_weights"}
    assert keys == (both - {f"zero_optimization.{key}"} if key else set())


def test_autotp_over_pcie_is_offered_between_nodes_that_a_network_slows(make_job):
    """Of its degrees the fastest, and never in one node, beside NVLink, of adapters, or where a degree is said."""
    said = {"cluster": {"nodes": 4, "gpus": 32}, "profiles": ["ethernet-25g"]}
    asked = plan(make_job("rtx4090-24g", "llama-3.1-8b", **said))
    told = [one for one in offers(asked) if one.change.field == "tp"]
    every = {degree: dsgen.plan({"hw": "rtx4090-24g", "model": "llama-3.1-8b", "nodes": 4, "network": "ethernet-25g",
                                 "tp": degree}).chosen for degree in (2, 4, 8)}  # fmt: skip

    assert [one.change.option for one in told] == ["--tp 4"]
    assert told[0].chosen.speed == pytest.approx(max(one.speed for one in every.values()))
    assert told[0].gain == pytest.approx(every[4].speed / asked.chosen.speed - 1)
    alone = make_job("rtx4090-24g", "llama-3.1-8b", cluster={"nodes": 1, "gpus": 8})
    linked = make_job("a100-40g", "llama-3.1-8b", **said)
    adapters = make_job("rtx4090-24g", "llama-3.1-8b", **said, **{"training.method": "lora"})
    pinned = make_job("rtx4090-24g", "llama-3.1-8b", **said, **{"training.tp": 2})
    assert not any(list(degrees(job)) for job in (alone, linked, adapters, pinned))
