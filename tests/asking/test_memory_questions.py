"""Questions of memory: exact strategies from a job or a config, alternatives, and edges that really are edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

import dsgen
from dsgen.asking.memory_questions import (
    CHOSEN,
    Question,
    alternatives,
    answer,
    ask,
    ask_config,
    counterfactuals,
    given,
)
from dsgen.asking.memory_questions.counterfactuals import _largest, _least
from dsgen.asking.memory_questions.questions import DEFAULT, strategy_of
from dsgen.families.hf_config import model_from_hf
from dsgen.jobs.job import Job, Unsure
from dsgen.memory import Verdict, estimate
from dsgen.memory.estimates import worst
from dsgen.memory.later import later
from dsgen.memory.overheads import overhead
from dsgen.report import memory as report
from dsgen.shapes.profiles import Model


def job(hardware: str = "a100-40g", model: str = "7b", **sections: Any) -> Job:
    layers = dsgen.profile(hardware) | dsgen.profile(model)
    return dsgen.job(layers | sections if sections else layers)


BESIDE = {"method": "lora", "lora_train_embeddings": True}


def question(training: dict[str, Any], **named: Any) -> Question:
    return ask(job(training=training, **named))


def fits(asked: Job, strategy: Any) -> bool:
    return estimate(asked, strategy).verdict is Verdict.FITS


EXACT = {"zero_stage": 0, "tp": 1, "micro_batch": 3, "accumulation": 5, "checkpointing": "none", "precision": "bf16"}


def test_what_is_said_is_taken_exactly_though_it_does_not_fit() -> None:
    asked = question({**EXACT, "offload": "none"})
    found = asked.strategy

    assert (found.stage, found.tp, found.micro_batch, found.accumulation) == (0, 1, 3, 5)
    assert (found.checkpointing, found.precision, found.global_batch) == (False, "bf16", 3 * 5 * 8)
    assert asked.chosen == {}
    assert estimate(asked.job, found).verdict is Verdict.DOES_NOT_FIT


def test_what_is_not_said_is_what_the_planner_chooses_where_something_fits() -> None:
    whole = job()

    assert ask(whole).strategy == dsgen.plan(whole).chosen.strategy
    assert set(ask(whole).chosen) == {
        *("stage", "offload optimizer", "offload parameters", "tensor parallel", "micro-batch", "accumulation"),
        *("checkpointing", "precision"),
    }


def test_every_fact_names_who_said_it() -> None:
    asked = question({"zero_stage": 2, "seq_len": 1024})

    assert asked.said["stage"].by == "python"
    assert asked.said["sequence length"].by == "python"
    assert asked.said["micro-batch"].by == CHOSEN
    assert asked.said["attention"].by == "default"
    assert "lora rank" not in asked.said


@pytest.mark.parametrize(
    ("training", "place", "note"),
    [
        ({"zero_stage": 0, "offload": "optimizer"}, ("none", "none"), "at stage 0 DeepSpeed offloads nothing"),
        ({"zero_stage": 0, "offload": "all"}, ("none", "none"), "parameter offload works at stage 3 only"),
        ({"zero_stage": 2, "offload": "nvme"}, ("cpu", "none"), "below it DeepSpeed silently uses CPU memory"),
        ({"zero_stage": 1, "offload": "all"}, ("cpu", "none"), "parameter offload works at stage 3 only"),
    ],
)
def test_offload_that_a_stage_ignores_is_counted_where_it_really_is(
    training: dict[str, Any], place: tuple[str, str], note: str
) -> None:
    asked = question(training)

    assert (asked.strategy.offload_optimizer, asked.strategy.offload_param) == place
    assert any(note in line for line in asked.notes)


@pytest.mark.parametrize(
    ("training", "named", "note"),
    [
        ({"zero_stage": 0, "tp": 2}, {}, "wrong gradient norm"),
        ({"zero_stage": 0, "precision": "fp16"}, {}, "does not scale the loss"),
        ({"precision": "bf16"}, {"hardware": "v100-32g"}, "no bf16 units"),
        ({"zero_stage": 1, "tp": 16}, {"cluster": {"gpus": 16}, "model": "llama-2-7b"}, "leaves the node of 8"),
        ({"seq_len": 9000}, {}, "more than the 4096 of the model"),
        ({"zero_stage": 1, "tp": 2, "chunked_loss": True}, {}, "needs the whole head"),
        ({"lora_rank": 64}, {}, "training.lora_rank (python): method full has no adapters"),
        ({"lora_dropout": 0.05}, {}, "training.lora_dropout (python): method full has no adapters"),
        ({"lora_train_embeddings": True}, {}, "training.lora_train_embeddings (python): method full has no adapters"),
    ],
)
def test_what_the_planner_would_not_advise_is_answered_with_a_note(
    training: dict[str, Any], named: dict[str, Any], note: str
) -> None:
    asked = question(training, **named)

    assert any(note in line for line in asked.notes)
    assert estimate(asked.job, asked.strategy).gpu.peak_bytes > 0


@pytest.mark.parametrize(
    ("training", "named", "message"),
    [
        ({"tp": 3}, {}, "8 GPUs do not divide into tensor-parallel groups of 3"),
        ({"tp": 8}, {"model": "gemma-3-4b"}, "heads and 4 key heads do not divide by 8"),
        ({"micro_batch": 4, "global_batch": 30}, {}, "does not divide among 8 data-parallel replicas"),
        ({"micro_batch": 4, "accumulation": 2, "global_batch": 128}, {}, "cannot make 16 sequences"),
        ({"zero_stage": 4}, {}, "it must be 0, 1, 2 or 3"),
        ({"method": "lora", "lora_dropout": 0.1}, {"model": "mixtral-8x7b"}, "no dropout for adapters of experts"),
        ({**BESIDE, "lora_targets": ["lm_head"]}, {}, "the head must get one of the two: a trained copy or an adapter"),
        (BESIDE, {"model": "gemma-7b"}, "a head that is tied to its embedding is then no longer one tensor"),
        ({**BESIDE, "zero_stage": 3, "offload": "none"}, {}, "stage 3 takes trained tensors of one type"),
        ({"method": "lora", "zero_stage": 1, "tp": 2}, {}, "their weights are lost to the optimizer"),
        ({"zero_stage": 1, "tp": 2}, {"model": "phi-4"}, "DeepSpeed refuses AutoTP for phi3"),
        ({**BESIDE, "optimizer": "Muon"}, {}, "what Muon holds for embedding and head beside adapters is not known"),
    ],
)
def test_only_what_deepspeed_cannot_run_is_a_mistake(
    training: dict[str, Any], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(dsgen.DsgenError, match=message):
        question(training, **named)


def test_an_old_release_has_no_autotp() -> None:
    layers = dsgen.profile("a100-40g") | dsgen.profile("7b") | {"training": {"tp": 2}}

    with pytest.raises(dsgen.DsgenError, match="no AutoTP for training"):
        ask(dsgen.job(layers, deepspeed="0.14"))


def test_where_nothing_fits_the_strategy_nearest_to_fitting_is_shown() -> None:
    asked = ask(job(model="1t", cluster={"gpus": 1}))
    memory = estimate(asked.job, asked.strategy)

    assert memory.verdict is Verdict.DOES_NOT_FIT
    assert (asked.strategy.stage, asked.strategy.tp) == (3, 1)


def test_a_config_is_taken_as_it_is_with_deepspeeds_defaults() -> None:
    config = {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 2,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 1000},
    }
    asked = ask_config(job(), given(config))
    found = asked.strategy

    assert (found.stage, found.micro_batch, found.accumulation, found.precision) == (2, 2, 4, "bf16")
    assert found.buffers.reduce_bucket == 1000
    assert found.buffers.overlap_comm is False
    assert asked.said["stage"].by == "the config"
    assert set(asked.chosen) == {"checkpointing"}


def test_options_win_over_a_config() -> None:
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2, "overlap_comm": True}}
    said = {"zero_stage": 3, "offload": "all", "micro_batch": 5, "precision": "fp16"}
    asked = ask_config(job(training=said, zero_optimization={"overlap_comm": False}), given(config))
    found = asked.strategy

    assert (found.stage, found.offload_optimizer, found.offload_param) == (3, "cpu", "cpu")
    assert (found.micro_batch, found.precision, found.buffers.overlap_comm) == (5, "fp16", False)
    assert asked.said["stage"].by == "python"


def test_a_micro_batch_beside_a_config_divides_its_batch_anew() -> None:
    config = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2}

    assert ask_config(job(training={"micro_batch": 4}), given(config)).strategy.accumulation == 2


def test_the_config_names_the_optimizer_unless_an_option_does() -> None:
    config = {"train_batch_size": 8, "optimizer": {"type": "Lion"}}

    assert ask_config(job(), given(config)).job.training.optimizer == "Lion"
    assert ask_config(job(training={"optimizer": "SGD"}), given(config)).job.training.optimizer == "SGD"


def test_what_the_program_fills_in_is_chosen_so_that_it_fits() -> None:
    config = {
        "train_micro_batch_size_per_gpu": "auto",
        "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"},
    }
    asked = ask_config(job(), given(config))

    assert fits(asked.job, asked.strategy)
    assert asked.strategy.buffers.reduce_bucket == 4096**2
    assert {"micro-batch", "checkpointing"} <= set(asked.chosen)


@pytest.mark.parametrize(("hardware", "dtype"), [("t4-16g", "fp16"), ("a100-40g", "bf16")])
def test_a_dtype_that_the_program_fills_in_is_one_that_the_gpu_has(hardware: str, dtype: str) -> None:
    config = {"train_batch_size": 64, "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}
    asked = ask_config(job(hardware, "gpt2"), given(config))

    assert asked.strategy.precision == dtype
    assert asked.said["precision"].by == CHOSEN


@pytest.mark.parametrize(
    ("config", "said", "by"),
    [
        ({}, {}, DEFAULT),
        ({}, {"foreach": False}, None),
        ({"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}, {}, None),
        ({"optimizer": {"type": "AdamW", "params": {"torch_adam": True}}}, {}, "the config"),
        ({"optimizer": {"type": "AdamW", "params": {"torch_adam": True, "fused": True}}}, {}, None),
        ({"optimizer": {"type": "AdamW", "params": {"torch_adam": True, "foreach": False}}}, {}, None),
        ({"optimizer": {"type": "Lion", "params": {"lr": 1e-5}}}, {}, None),
        ({"gradient_clipping": "auto"}, {}, None),  # the Trainer's, which is fused
        ({"gradient_clipping": "auto"}, {"transformers": "4.51"}, DEFAULT),
        ({}, {"optimizer": "Lion"}, None),
    ],
)
def test_adamw_is_torchs_own_where_the_program_or_the_config_has_it(
    config: dict[str, Any], said: dict[str, Any], by: str | None
) -> None:
    whole = {
        "bf16": {"enabled": True},
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 3},
        **config,
    }
    asked = dsgen.memory({"hw": "a100-80g", "gpus": 2, "model": "llama-3.1-8b", **said}, config=whole).question

    told = asked.said.get("AdamW foreach")
    assert asked.job.foreach is (by is not None)
    assert (told and told.by) == by


def test_adamw_on_the_cpu_is_deepspeeds() -> None:
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    config = {"bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 1, "zero_optimization": zero}
    job = {"hw": "a100-80g", "gpus": 2, "model": "llama-3.1-8b"}
    told, never = (dsgen.memory({**job, "foreach": one}, config=config) for one in (True, False))

    assert "AdamW foreach" not in told.question.said
    assert told.memory.gpu.peak_bytes == never.memory.gpu.peak_bytes


def test_foreach_is_said_in_vain_where_the_optimizer_is_deepspeeds() -> None:
    job = {"hw": "a100-80g", "gpus": 2, "model": "llama-3.1-8b", "foreach": True}
    named = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2}}

    for found in (dsgen.memory(job), dsgen.memory(job, config=named)):
        assert any("training.foreach" in note and "does nothing" in note for note in found.question.notes)
    assert any("training.foreach does nothing in a plan" in warning for warning in dsgen.plan(job).warnings)


def test_bf16_in_a_config_for_a_gpu_without_it_is_answered_with_a_note() -> None:
    config = {"train_batch_size": 64, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}
    asked = ask_config(job("t4-16g", "gpt2"), given(config))

    assert asked.strategy.precision == "bf16"
    assert any("no bf16 units" in note for note in asked.notes)


@pytest.mark.parametrize(
    ("config", "note"),
    [
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 3}, "DeepSpeed refuses that"),
        ({"train_batch_size": 0}, "train_batch_size is 0: DeepSpeed refuses what is no whole number"),
        ({"train_micro_batch_size_per_gpu": "two"}, "train_micro_batch_size_per_gpu is two: DeepSpeed refuses"),
        ({"train_batch_size": 8, "sequence_parallel_size": 2}, "sequence_parallel_size: what it saves or takes is not"),
        (
            {"train_batch_size": 8, "bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "float"}},
            "data_types.grad_accum_dtype: what it takes is in the interval, not in the peak",
        ),
        ({"train_batch_size": 8, "optimizer": {"type": "OneBitAdam"}}, "counted as AdamW"),
        (
            {"train_batch_size": 8, "bf16": {"enabled": True, "bf16_master_weights_and_grads": True}},
            "master_weights_and_grads: what",
        ),
    ],
)
def test_what_a_config_says_and_is_not_counted_is_noted(config: dict[str, Any], note: str) -> None:
    assert any(note in line for line in ask_config(job(), given(config)).notes)


def test_ranks_that_share_a_sequence_are_not_counted_twice_in_the_batch() -> None:
    config = {"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "sequence_parallel_size": 2}

    assert not any("DeepSpeed refuses that" in note for note in ask_config(job(), given(config)).notes)


@pytest.mark.parametrize(
    "config",
    [
        {"data_types": {"grad_accum_dtype": "fp32"}},  # as the weights are
        {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "bf16"}},
        {"bf16": {"enabled": True}, "communication_data_type": "fp16"},
        {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}},
        {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 2}}},
        {"zero_optimization": {"stage": 2, "zero_quantized_weights": True}},
    ],
)
def test_a_key_that_changes_nothing_here_widens_nothing_and_is_not_noted(config: dict[str, Any]) -> None:
    asked = ask_config(job(), given({"train_batch_size": 8, **config}))
    plain = attrs.evolve(asked.job, unsure=Unsure())

    assert estimate(asked.job, asked.strategy) == estimate(plain, asked.strategy)
    assert not any("interval" in note for note in asked.notes)


def test_a_second_copy_that_deepspeed_refuses_is_said_to_be_not_counted() -> None:
    """3 does not divide 8 GPUs."""
    zero = {"stage": 3, "zero_hpz_partition_size": 3}
    asked = ask_config(job(), given({"train_batch_size": 8, "zero_optimization": zero}))

    assert "zero_optimization.zero_hpz_partition_size: what it saves or takes is not counted" in asked.notes


@pytest.mark.parametrize(
    ("zero", "tp", "groups"),
    [
        ({"stage": 3}, 1, 1),
        ({"stage": 3, "zero_hpz_partition_size": 4}, 1, 2),
        ({"stage": 3, "zero_hpz_partition_size": 8}, 1, 1),  # the group of all
        ({"stage": 2}, 2, 2),
        ({"stage": 3}, 2, 3),
        ({"stage": 2}, 8, 1),
    ],
)
def test_every_communicator_has_buffers(zero: dict[str, Any], tp: int, groups: int) -> None:
    config = {"train_batch_size": 8, "zero_optimization": zero, "tensor_parallel": {"autotp_size": tp}}
    asked = ask_config(job(), given(config))
    outside = estimate(asked.job, asked.strategy).gpu.overhead

    assert asked.job.world == 8
    assert outside["NCCL buffers"] == overhead(asked.job.hardware, 8, groups).parts["NCCL buffers"]


def test_what_fits_nowhere_of_a_model_with_an_encoder_is_answered_with_numbers() -> None:
    """And not refused for parameters on NVMe, which nobody asked for."""
    facts = {"d_model": 1024, "d_kv": 64, "num_heads": 16, "d_ff": 2816, "num_layers": 4, "vocab_size": 32128}
    model = Model(**model_from_hf({"model_type": "t5", **facts}, "t5"))
    like = attrs.evolve(job(), model=model)
    asked = ask(attrs.evolve(like, training=attrs.evolve(like.training, seq_len=512, target_len=200_000)))

    assert estimate(asked.job, asked.strategy).verdict is Verdict.DOES_NOT_FIT


BF16 = {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
CPU = {"offload_optimizer": {"device": "cpu"}}


@pytest.mark.parametrize(
    ("zero", "section", "weight", "state"),
    [
        ({"stage": 1}, {"bf16": BF16}, 2, 2),
        ({"stage": 2}, {"bf16": BF16}, 2, 2),
        ({"stage": 3}, {"bf16": BF16}, 2, 2),
        ({"stage": 2, **CPU}, {"bf16": BF16}, 2, 2),
        ({"stage": 2, **CPU}, {"bf16": {"bf16_master_weights_and_grads": True}}, 2, 4),
        ({"stage": 3, **CPU}, {"fp16": {"fp16_master_weights_and_grads": True}}, 2, 4),
    ],
)
def test_master_weights_and_states_in_16_bits_are_counted(
    zero: dict[str, Any], section: dict[str, Any], weight: int, state: int
) -> None:
    (dtype, keys), *_ = section.items()
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero, dtype: {"enabled": True, **keys}}
    asked = ask_config(job("v100-16g"), given(config))
    wide = attrs.evolve(asked.job, narrow="")
    place = "host" if CPU.keys() <= zero.keys() else "gpu"
    ours, theirs = (estimate(one, asked.strategy).phases[-1] for one in (asked.job, wide))
    found = {name: getattr(ours, place)[name] / size for name, size in getattr(theirs, place).items()}

    assert (found["fp32 master weights"], found["optimizer states"]) == (weight / 4, state / 4)
    assert found["gradients"] < 1
    assert asked.strategy.precision == dtype
    assert not any("not counted" in note for note in asked.notes)
    assert any("fp32 master weights: in 16 bits" in note for note in asked.notes)


@pytest.mark.parametrize(
    ("zero", "config"),
    [
        ({"stage": 0}, {"bf16": BF16}),
        ({"stage": 2}, {"bf16": {"bf16_master_weights_and_grads": True}}),
        ({"stage": 2, **CPU}, {"bf16": BF16, "optimizer": {"type": "Lion"}}),
        ({"stage": 2}, {"bf16": BF16, "optimizer": {"type": "Muon"}}),
        ({"stage": 3, "offload_optimizer": {"device": "nvme"}}, {"bf16": BF16}),
    ],
)
def test_master_weights_that_deepspeed_does_not_take_in_16_bits_are_noted(
    zero: dict[str, Any], config: dict[str, Any]
) -> None:
    """Or that nobody has counted; they have 4 bytes then."""
    config = {**config, "zero_optimization": zero, "bf16": {"enabled": True, **config["bf16"]}}
    asked = ask_config(job(), given(config))

    assert estimate(asked.job, asked.strategy) == estimate(attrs.evolve(asked.job, narrow=""), asked.strategy)
    assert "bf16.bf16_master_weights_and_grads: what it saves or takes is not counted" in asked.notes


def test_a_scenario_with_16_bit_master_weights_counts_them_in_every_other_row() -> None:
    """But at stage 0, which has none; and the planner leaves that out."""
    asked = question({"micro_batch": 1}, bf16=BF16)
    wide = attrs.evolve(asked, job=attrs.evolve(asked.job, narrow=""))
    pairs = list(zip(alternatives(asked), alternatives(wide), strict=True))
    less = {one.strategy.stage for one, other in pairs if one.memory.gpu.peak_bytes < other.memory.gpu.peak_bytes}

    assert asked.strategy.stage > 0
    assert less == {1, 2, 3}
    assert all(one.memory.gpu.peak_bytes <= other.memory.gpu.peak_bytes for one, other in pairs)


def test_a_key_beside_a_scenario_that_is_not_counted_is_noted() -> None:
    keys = {"zero_quantized_weights": True, "contiguous_gradients": True}
    apart = {"cpu_checkpointing": True}
    asked = question({"zero_stage": 3}, zero_optimization=keys, activation_checkpointing=apart)

    assert "activation_checkpointing.cpu_checkpointing: what it saves or takes is not counted" in asked.notes
    assert "zero_optimization.zero_quantized_weights: what it takes is in the interval, not in the peak" in asked.notes
    assert not any("contiguous_gradients" in note for note in asked.notes)


@pytest.mark.parametrize(
    ("config", "counted"),
    [
        ({"zero_optimization": {"stage": 3}}, True),
        ({"zero_optimization": {"stage": 3}, "optimizer": {"type": "Muon"}}, False),
        ({"zero_optimization": {"stage": 2}}, True),
        ({"zero_optimization": {"stage": 2}, "optimizer": {"type": "Muon"}}, False),
        ({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}}, True),
        ({"zero_optimization": {"stage": 0}}, True),
    ],
)
def test_gradients_that_wait_are_noted_where_they_are_not_counted(config, counted):
    """The optimizer on the CPU has them in a bucket whatever the key says, below stage 3."""
    said = {**config, "zero_optimization": {**config["zero_optimization"], "contiguous_gradients": False}}
    asked = ask_config(job(), given(said))

    assert any("contiguous_gradients" in note for note in asked.notes) is not counted


@pytest.mark.parametrize(
    ("config", "counted"),
    [
        ({"zero_optimization": {"stage": 3}}, True),
        ({"zero_optimization": {"stage": 2}}, True),
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}, True),
        ({"zero_optimization": {"stage": 3}, "tensor_parallel": {"autotp_size": 2}}, False),
    ],
)
def test_hpz_is_noted_where_its_copy_is_not_counted(config, counted):
    """Beside tensor parallelism it was not held against the simulation; below stage 3 there is none."""
    said = {**config, "zero_optimization": {**config["zero_optimization"], "zero_hpz_partition_size": 8}}
    asked = ask_config(job(), given(said))

    assert any("zero_hpz_partition_size" in note for note in asked.notes) is not counted


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"zero_optimization": {"stage": 7}}, "zero_optimization.stage is 7; it must be 0, 1, 2 or 3"),
        ({"zero_optimization": {"stage": "two"}}, "it must be 0, 1, 2 or 3"),
        ({"tensor_parallel": {"autotp_size": 3}}, "8 GPUs do not divide into tensor-parallel groups of 3"),
    ],
)
def test_a_config_that_cannot_run_is_a_mistake(config: dict[str, Any], message: str) -> None:
    with pytest.raises(dsgen.DsgenError, match=message):
        ask_config(job(), given(config))


def test_every_stage_and_offload_is_there_once_and_the_asked_one_is_marked() -> None:
    asked = question({**EXACT, "offload": "none"})
    found = alternatives(asked)
    ways = [(item.strategy.stage, item.strategy.offload_optimizer, item.strategy.offload_param) for item in found]

    assert len(ways) == len(set(ways)) == 10
    assert [item.strategy for item in found if item.asked] == [asked.strategy]
    assert {item.strategy.micro_batch for item in found} == {3}
    assert {item.strategy.checkpointing for item in found} == {False}


def test_with_all_each_is_there_with_and_without_checkpointing() -> None:
    asked = question({**EXACT, "offload": "none"})

    assert len(alternatives(asked, every=True)) == 20


def test_a_strategy_that_no_row_has_gets_one() -> None:
    asked = question({"zero_stage": 3, "micro_batch": 1}, zero_optimization={"offload_optimizer": {"device": "nvme"}})
    kept = attrs.evolve(asked, strategy=strategy_of(asked, offload_optimizer="nvme", offload_param="none"))

    assert [item.asked for item in alternatives(kept)].count(True) == 1


def test_adapters_offload_no_optimizer() -> None:
    found = alternatives(question({"method": "lora", "micro_batch": 1}))

    assert {item.strategy.offload_optimizer for item in found if item.strategy.stage == 3} == {"none"}


CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"zero_stage": 2, "micro_batch": 1}, {}),
    ({"zero_stage": 3, "offload": "all", "micro_batch": 2}, {"model": "13b"}),
    ({"zero_stage": 1, "micro_batch": 2, "method": "lora"}, {}),
    ({"zero_stage": 0, "micro_batch": 1}, {"model": "gpt2", "hardware": "v100-16g"}),
]


@pytest.mark.parametrize(("training", "named"), CASES)
def test_the_largest_micro_batch_fits_and_the_next_does_not(training: dict[str, Any], named: dict[str, Any]) -> None:
    asked = question(training, **named)
    largest = counterfactuals(asked).micro_batch

    assert largest is not None
    assert fits(asked.job, strategy_of(asked, micro_batch=largest))
    assert not fits(asked.job, strategy_of(asked, micro_batch=largest + 1))


@pytest.mark.parametrize(("training", "named"), CASES)
def test_the_longest_sequence_fits_and_one_token_more_does_not(training: dict[str, Any], named: dict[str, Any]) -> None:
    asked = question(training, **named)
    known = counterfactuals(asked)

    def at(tokens: int) -> bool:
        return fits(attrs.evolve(asked.job, training=attrs.evolve(asked.job.training, seq_len=tokens)), asked.strategy)

    assert known.seq_len is not None
    assert at(known.seq_len)
    assert known.seq_len_bound or not at(known.seq_len + 1)


def test_learned_positions_end_a_sequence() -> None:
    known = counterfactuals(question({"zero_stage": 1, "micro_batch": 1}, model="gpt2"))

    assert (known.seq_len, known.seq_len_bound) == (1024, True)


@pytest.mark.parametrize(("training", "named"), CASES)
def test_the_fewest_gpus_fit_and_fewer_do_not(training: dict[str, Any], named: dict[str, Any]) -> None:
    asked = question(training, **named)
    known = counterfactuals(asked)

    def on(gpus: int) -> bool:
        there = attrs.evolve(asked.job, nodes=1, gpus_per_node=gpus)
        return gpus % asked.strategy.tp == 0 and fits(there, asked.strategy)

    assert known.gpus is not None
    assert known.nodes == 1
    assert on(known.gpus)
    assert not any(on(fewer) for fewer in range(1, known.gpus))


def test_more_than_a_node_is_counted_in_whole_nodes() -> None:
    asked = question({"zero_stage": 3, "offload": "none", "micro_batch": 1}, model="70b")
    known = counterfactuals(asked)

    def on(nodes: int) -> bool:
        return fits(attrs.evolve(asked.job, nodes=nodes), asked.strategy)

    assert known.nodes > 1
    assert known.gpus == 8 * known.nodes
    assert on(known.nodes)
    assert not on(known.nodes - 1)


@pytest.mark.parametrize(("training", "named"), CASES)
def test_the_ram_needed_is_enough_and_a_gibibyte_less_is_not(training: dict[str, Any], named: dict[str, Any]) -> None:
    asked = question(training, **named)
    needed = counterfactuals(asked).host_bytes

    def with_ram(size: int) -> bool:
        there = attrs.evolve(asked.job, hardware=attrs.evolve(asked.job.hardware, host_memory_bytes=size))
        between = (one.host.verdict for one in later(there, asked.strategy))
        return worst((estimate(there, asked.strategy).host.verdict, *between)) is Verdict.FITS

    assert needed is not None
    assert with_ram(needed)
    assert not with_ram(needed - 2**30)


@pytest.mark.parametrize("start", [1, 2, 7, 100, 1000])
@pytest.mark.parametrize("edge", [0, 1, 2, 3, 31, 99, 100])
@pytest.mark.parametrize("slope", [1, 977])
def test_an_edge_is_found_from_anywhere_on_any_rising_line(start: int, edge: int, slope: int) -> None:
    """Also where the line has a step, a bend, or is flat but at the edge."""
    lines: list[Callable[[int], int]] = [
        lambda number: slope * (number - edge),
        lambda number: (number - edge) ** 3,
        lambda number: 1 if number > edge else 0,
        lambda number: 10**12 if number > edge else -1,
        lambda number: number - edge if number > edge else -(10**12),
    ]

    assert [_largest(line, 100, start) for line in lines] == [edge] * len(lines)


@pytest.mark.parametrize("start", [1, 50, 100])
@pytest.mark.parametrize(("edge", "answer"), [(1, 1), (2, 2), (77, 77), (100, 100), (101, 0)])
def test_the_least_that_is_enough_is_found_or_nothing(start: int, edge: int, answer: int) -> None:
    assert _least(lambda number: edge - number, 100, start) == answer


@pytest.mark.parametrize(
    ("wishes", "offered"),
    [
        ({}, True),
        ({"lora_targets": ["nowhere"]}, False),
        ({"lora_dropout": 0.05}, False),
        ({"lora_train_embeddings": True, "lora_targets": ["lm_head"]}, False),
    ],
)
def test_adapters_are_offered_only_where_peft_takes_what_was_wished(wishes: dict[str, Any], offered: bool) -> None:
    """Of a mixture it adapts experts too, for which it has no dropout."""
    asked = question(wishes, model="mixtral-8x22b", hardware="rtx3090-24g", cluster={"gpus": 1})

    assert any("method" in change.options for change in counterfactuals(asked).changes) is offered


def test_adapters_that_do_not_fit_are_offered_a_base_in_4_bits() -> None:
    asked = question({"method": "lora", "zero_stage": 2, "seq_len": 1024}, model="qwen2.5-14b", hardware="rtx4090-24g")

    offered = [change.options for change in counterfactuals(asked).changes]

    assert {"method": "qlora"} in offered
    assert {"method": "lora"} not in offered


def test_a_base_in_4_bits_that_no_gpu_holds_is_offered_one_in_16_that_stage_3_cuts() -> None:
    """As `dsgen plan` does; no strategy, length or number of GPUs makes one in 4 bits fit."""
    wanted = {"hw": "rtx4090-24g", "gpus": 2, "model": "llama-3.1-70b", "seq_len": 1024}
    asked = dsgen.memory({**wanted, "method": "qlora"})

    (change,) = asked.counterfactuals.changes

    assert change.options["method"] == "lora"
    assert change.words.startswith("adapters over a base in 16 bits, ZeRO-3 + CPU parameters")
    said = dict(pair.split("=") for pair in change.options["set"])
    again = dsgen.memory({**wanted, "method": "lora", "zero_stage": change.options["zero_stage"], "set": said})
    assert again.verdict is Verdict.FITS


def test_no_change_is_offered_where_it_fits() -> None:
    assert counterfactuals(ask(job())).changes == ()


MISFITS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"zero_stage": 0}, {}),
    ({"zero_stage": 3, "micro_batch": 64, "checkpointing": "none"}, {}),
    ({"zero_stage": 2, "micro_batch": 6, "accumulation": 1, "checkpointing": "none"}, {}),
    ({"zero_stage": 2, "micro_batch": 1}, {"model": "70b"}),
]


@pytest.mark.parametrize(("training", "named"), MISFITS)
def test_what_is_offered_fits_as_it_is_printed(training: dict[str, Any], named: dict[str, Any]) -> None:
    """The options of a change, said beside what was asked, make a question whose answer is FITS."""
    asked = question({**training, "tp": 1}, **named)
    changes = counterfactuals(asked).changes

    assert changes
    for change in changes:
        assert change.memory.verdict is Verdict.FITS
        said = {field: value for field, value in change.options.items() if field != "set"}
        keys = dict(item.split("=") for item in change.options.get("set", []))
        pinned = {
            **{field: getattr(asked.strategy, field) for field in ("micro_batch", "accumulation", "tp")},
            "zero_stage": asked.strategy.stage,
            "checkpointing": "full" if asked.strategy.checkpointing else "none",
        }
        again = question({**pinned, **said}, **named, **keys)
        assert fits(again.job, again.strategy), change


@pytest.mark.parametrize("offload", ["none", "cpu", "optimizer", "all"])
def test_nvme_is_offered_in_words_that_go_with_an_offload_that_was_said(offload: str) -> None:
    where: dict[str, Any] = {"hardware": "b300-288g", "model": "175b", "cluster": {"gpus": 1}}
    training = {"offload": offload, "zero_stage": 3, "micro_batch": 1, "tp": 1, "checkpointing": "full"}
    asked = question(training, **where)
    change = counterfactuals(asked).changes[0]
    keys = dict(item.split("=") for item in change.options["set"])
    said = {field: value for field, value in change.options.items() if field != "set"}
    again = question({**training, **said}, **where, **keys)

    assert change.options["offload"] == "nvme"
    assert fits(again.job, again.strategy)


def test_a_change_keeps_the_offload_that_was_asked_for() -> None:
    """The optimizer of adapters on the CPU is in no row of the table, and stays there all the same."""
    asked = question({"method": "lora", "zero_stage": 3, "offload": "all", "micro_batch": 8, "checkpointing": "none"})

    assert not fits(asked.job, asked.strategy)
    assert counterfactuals(asked).changes[0].options == {"checkpointing": "full"}


def test_the_fewest_gpus_have_the_buffers_of_so_many() -> None:
    """Buffers grow with the cluster: those of 512 GPUs would ask for a node more."""
    training = {
        "zero_stage": 3,
        "micro_batch": 1,
        "tp": 1,
        "optimizer": "Adagrad",
        "attention": "sdpa",
        "seq_len": 2048,
    }
    asked = question(
        {**training, "checkpointing": "full", "offload": "none"},
        hardware="a30-24g",
        model="qwen2.5-14b",
        cluster={"gpus": 512},
    )
    known = counterfactuals(asked)

    assert (known.gpus, known.nodes) == (20, 5)  # torch's Adagrad steps with two more fp32 copies of its share


def test_where_nothing_fits_offload_that_saves_next_to_nothing_is_not_shown() -> None:
    training = {"method": "lora", "micro_batch": 2, "checkpointing": "none", "zero_stage": 3}
    asked = question(training, hardware="generic-24g", model="bloom-560m")

    assert not fits(asked.job, asked.strategy)
    assert (asked.strategy.offload_optimizer, asked.strategy.offload_param) == ("none", "none")


def test_a_micro_batch_as_large_as_nobody_has_is_answered() -> None:
    asked = ask_config(job(), given({"train_micro_batch_size_per_gpu": 10**14, "zero_optimization": {"stage": 3}}))

    assert counterfactuals(asked).changes[0].options["micro_batch"] < 10
    assert "does not fit" in report.text(answer(asked))


def test_the_change_with_the_fewest_differences_comes_first() -> None:
    """Without checkpointing at a micro-batch that fits with it, checkpointing alone is the answer."""
    asked = question({"zero_stage": 3, "tp": 1, "micro_batch": 4, "checkpointing": "none", "offload": "none"})

    assert estimate(asked.job, asked.strategy).verdict is not Verdict.FITS
    assert counterfactuals(asked).changes[0].options == {"checkpointing": "full"}


@pytest.mark.parametrize(
    ("model", "more", "told"),
    [
        ("deepseek-v3", {}, True),
        ("deepseek-v3", {"zero_stage": 2}, False),
        ("deepseek-v3", {"lora_targets": ["o_proj"]}, False),
        ("deepseek-v3", {"method": "full"}, False),
        ("mixtral-8x7b", {}, False),  # gathered as one module
        ("7b", {}, False),
    ],
)
def test_adapters_of_experts_at_stage_3_are_doubted(model: str, more: dict[str, Any], told: bool) -> None:
    asked = question({"method": "lora", "zero_stage": 3, "micro_batch": 1, **more}, model=model)

    assert any("tracing error" in note for note in asked.notes) is told


def test_an_adapter_of_the_output_head_is_refused_where_it_would_be_lost() -> None:
    adapters = {"method": "lora", "lora_targets": ["q_proj", "lm_head"], "micro_batch": 1}

    with pytest.raises(dsgen.DsgenError, match="the head's adapter would learn nothing"):
        question({**adapters, "chunked_loss": True}, model="llama-3.1-8b")
    assert question({**adapters, "zero_stage": 1}, model="llama-3.1-8b").strategy.stage == 1


def test_muon_on_the_cpu_beside_autotp_at_stage_3_has_a_wide_interval() -> None:
    """A simulated run lay 7 % below what is counted."""
    wishes = {"optimizer": "Muon", "zero_stage": 3, "micro_batch": 1, "tp": 2}
    there, away = (question({**wishes, "offload": place}) for place in ("none", "optimizer"))
    widths = []
    for asked in (there, away):
        gpu = estimate(asked.job, asked.strategy).gpu
        widths.append(gpu.low_bytes / gpu.peak_bytes)

    assert widths[1] < 0.85 < widths[0]


def test_the_checkpointing_that_keeps_no_gathered_weights_is_the_smallest_change_of_qlora_at_stage_3() -> None:
    """As a config of one's own runs where nobody says the kind; at stage 2, and where it runs already, it is none."""
    training = {"method": "qlora", "seq_len": 16384, "checkpointing": "full", "expandable_segments": True}
    wanted = job("a100-80g", "llama-3.1-70b", training=training, cluster={"gpus": 4})

    def options(stage: int, **more: Any) -> list[dict[str, Any]]:
        held = given(
            {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": stage}}
        )
        asked = ask_config(attrs.evolve(wanted, training=attrs.evolve(wanted.training, **more)), held)
        return [change.options for change in counterfactuals(asked).changes]

    assert options(3)[0] == {"reentrant": True}
    assert {"reentrant": True} not in options(3, reentrant=True)
    assert {"reentrant": True} not in options(2)
