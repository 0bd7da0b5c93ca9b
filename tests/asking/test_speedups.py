"""What would make a config faster: every change surely fits, gains what it says, and is what its keys give."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import attrs
import pytest

import dsgen
from dsgen.asking.memory_questions import ask_config, given
from dsgen.asking.plan_questions.rewrites import rewrites
from dsgen.asking.plan_questions.speedups import LEAST_GAIN, Speedup, Speedups, speedups
from dsgen.cost import cost
from dsgen.memory import Verdict, estimate
from dsgen.report import speedups as report

SLOW_LINK = {"hardware": {"host_link_bandwidth": "1 GB/s"}}
OFFLOADED = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 16,
    "bf16": {"enabled": True},
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": False,
        "reduce_bucket_size": 1_000_000,
        "stage3_prefetch_bucket_size": 1_000_000,
        "offload_optimizer": {"device": "cpu"},
        "offload_param": {"device": "cpu"},
    },
}
SMALL_BUCKETS = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 2,
    "fp16": {"enabled": True},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 1_000_000, "allgather_bucket_size": 1_000_000},
}
OLD_SWITCH = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 4,
    "zero_optimization": {"stage": 2, "cpu_offload": True},
}
SPLIT = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 1},
    "tensor_parallel": {"autotp_size": 4},
}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "offloaded": (OFFLOADED, {"hw": "a100-80g", "model": "7b", "checkpointing": "full"}),
    "small buckets": (
        SMALL_BUCKETS,
        {"hw": "a100-80g", "model": "llama-3.1-8b", "nodes": 2, "network": "ethernet-25g"},
    ),
    "fp32 and an old switch": (OLD_SWITCH, {"hw": "a100-80g", "model": "1b", "checkpointing": "none"}),
    "split": (SPLIT, {"hw": "a100-80g", "model": "7b", "checkpointing": "full"}),
    "adapters": (OFFLOADED, {"hw": "a100-40g", "model": "7b", "method": "lora", "checkpointing": "full"}),
    "does not fit": (
        {**OFFLOADED, "zero_optimization": {"stage": 0}},
        {"hw": "a100-40g", "model": "7b", "checkpointing": "none"},
    ),
}


def answer(config: Mapping[str, Any], scenario: Mapping[str, Any], **sections: Any) -> Speedups:
    layers = dsgen.scenario(scenario)
    return speedups(ask_config(dsgen.job(layers | sections if sections else layers), given(config)))


def every(told: Speedups) -> tuple[Speedup, ...]:
    return (*told.changes, *([told.together] if told.together is not None else []))


@pytest.mark.parametrize(("card", "smaller"), [("l40s-48g", True), ("a100-80g", False)])
def test_a_smaller_micro_batch_is_offered_where_it_lies_in_the_l2_cache(card, smaller):
    config = {"train_micro_batch_size_per_gpu": 16, "bf16": {"enabled": True}, "zero_optimization": {"stage": 1}}
    wish = {"hw": card, "model": "13b", "method": "lora", "checkpointing": "full", "gpus": 8, "seq_len": 1024}
    told = answer(config, wish)

    alone = [one for one in told.changes if one.words[0].startswith("micro-batch ")]
    assert [one.words for one in alone] == ([("micro-batch 2 instead of 16",)] if smaller else [])
    assert all(one.gain > 0.1 and one.after.memory.verdict is Verdict.FITS for one in alone)


def written(config: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """The config with the keys of a change."""
    changed = copy.deepcopy(dict(config))
    for path, value in keys.items():
        *parents, last = path.split(".")
        node = changed
        for parent in parents:
            node = node.setdefault(parent, {})
        if value is None:
            node.pop(last, None)
        else:
            node[last] = value
    return changed


@pytest.mark.parametrize("name", CASES)
def test_every_change_fits_and_gains_what_it_says(name: str) -> None:
    told = answer(*CASES[name])
    job = told.question.job

    assert every(told) or name == "does not fit"
    for one in every(told):
        assert estimate(one.after.job, one.after.strategy).verdict is Verdict.FITS
        now = cost(job, told.question.strategy).tokens_per_second_per_gpu
        assert one.gain == pytest.approx(cost(one.after.job, one.after.strategy).tokens_per_second_per_gpu / now - 1)
        assert one.gain >= LEAST_GAIN
        assert one.after.strategy.global_batch == told.now.strategy.global_batch
    assert [one.gain for one in told.changes] == sorted((one.gain for one in told.changes), reverse=True)
    assert told.together is None or all(told.together.gain > one.gain for one in told.changes)


OFFLOADED_3B = (
    {
        "train_micro_batch_size_per_gpu": 4,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    },
    {"hw": "a100-40g", "model": "qwen2.5-3b", "gpus": 2, "seq_len": 512, "checkpointing": "none"},
)


@pytest.mark.parametrize(
    ("launcher", "measured"), [("bound", (2.38316, 2.497)), ("deepspeed", (2.887, 3.08444)), ("torchrun", ())]
)
def test_two_ranks_with_adam_on_a_dgx_a100_take_what_was_measured(launcher: str, measured: tuple[float, ...]) -> None:
    """DeepSpeed pull request 7474, and blogs/zenflow-corebinding."""
    told = answer(OFFLOADED_3B[0], {**OFFLOADED_3B[1], "launcher": launcher})

    assert told.question.job.training.launcher == launcher
    for seconds in measured:
        assert told.now.cost.seconds == pytest.approx(seconds, rel=0.05)


def test_another_launcher_is_told_of_a_config_whose_adam_has_one_thread_a_rank() -> None:
    usual, bound = (answer(OFFLOADED_3B[0], {**OFFLOADED_3B[1], **said}) for said in ({}, {"launcher": "bound"}))
    text = report.text(usual, width=200)

    assert usual.question.job.training.launcher == "torchrun"  # of a config of one's own, as nobody says another
    assert "Adam on the host: 1 thread a rank as torchrun or accelerate starts it (--launcher torchrun; nobody" in text
    first = usual.changes[0]
    assert first.after.job.training.launcher == "bound"
    assert first.gain == pytest.approx(bound.now.speed / usual.now.speed - 1)
    assert first.gain > 2
    assert "start it with deepspeed --bind_cores_to_rank" in first.programs[0]
    assert all("--bind_cores" not in program for one in every(bound) for program in one.programs)
    assert "64 threads a rank on cores of its own" in report.text(bound, width=200)


MIXTURE = (
    {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 4,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    },
    {"hw": "h200-141g", "nodes": 2, "network": "ib-ndr-3200g", "model": "qwen3-30b-a3b", "checkpointing": "full"},
)


def test_what_the_program_could_do_is_told_where_the_config_stays_as_it_is() -> None:
    old = answer(MIXTURE[0], {**MIXTURE[1], "transformers": "4.57"})
    (change,) = [one for one in old.changes if one.after.job.training.transformers == "5"]

    assert change.keys == {}
    assert change.gain == pytest.approx(answer(*MIXTURE).now.speed / old.now.speed - 1)
    assert change.gain > 1
    text = " ".join(report.text(old, width=200).split())
    assert "--transformers 5, whose experts are grouped products: now each is called by itself" in text

    scores = answer(MIXTURE[0], {**MIXTURE[1], "attention": "eager", "seq_len": 8192})
    assert any(one.after.job.training.attention == "sdpa" for one in (*scores.changes, *scores.tried))


def test_what_the_program_could_do_and_does_not_surely_fit_is_told_as_tried() -> None:
    tight = answer(MIXTURE[0], {**MIXTURE[1], "hw": "a100-80g", "transformers": "4.57", "micro_batch": 4})
    assert not any(one.after.job.training.transformers == "5" for one in tight.changes)
    assert "--transformers 5 (" in " ".join(report.text(tight).split())


def test_one_rank_of_a_node_has_all_cores_whoever_starts_it() -> None:
    alone = answer(OFFLOADED_3B[0], {**OFFLOADED_3B[1], "gpus": 1})

    assert "Adam on the host" not in report.text(alone, width=200)
    assert not [one for one in alone.changes if one.after.job.training.launcher != "torchrun"]


def test_over_several_nodes_threads_are_told_and_no_binding() -> None:
    """pdsh drops --bind_cores_to_rank."""
    many = answer(OFFLOADED_3B[0], {**OFFLOADED_3B[1], "gpus": 4, "nodes": 2, "network": "ib-hdr-200g"})
    told = [one for one in many.changes if one.after.job.training.launcher != "torchrun"]

    assert [one.after.job.training.launcher for one in told] == ["deepspeed"]
    assert "OMP_NUM_THREADS=64" in told[0].programs[0]


@pytest.mark.parametrize("name", CASES)
def test_what_was_tried_and_is_not_offered_is_said_with_why(name: str) -> None:
    told = answer(*CASES[name])
    text, data = " ".join(report.text(told).split()), report.data(told)["tried"]

    assert told.tried
    assert [one.gain for one in told.tried] == sorted((one.gain for one in told.tried), reverse=True)
    assert [(one["gain"], one["keys"], one["verdict"]) for one in data] == [
        (one.gain, dict(one.keys), one.after.memory.verdict.value) for one in told.tried
    ]
    offered = [dict(one.keys) for one in told.changes]
    for one in told.tried:
        assert one.gain < LEAST_GAIN or one.after.memory.verdict is not Verdict.FITS
        assert one.gain == pytest.approx(one.after.speed / told.now.speed - 1)
        assert one.keys not in offered
        assert one.words
    for lead, count in (
        ("gains less than 2 %", sum(-0.005 < one.gain < LEAST_GAIN for one in told.tried)),
        ("is slower", sum(one.gain <= -0.005 for one in told.tried)),
        ("does not surely fit", sum(one.gain >= LEAST_GAIN for one in told.tried)),
    ):
        assert (f"tried, and {lead}: " in text) is bool(count)


def test_a_larger_bucket_and_overlap_are_named_whether_they_gain_or_not() -> None:
    """So that a person who asks of a bucket of 1e6 reads that it was considered."""
    told = answer(*CASES["offloaded"])
    spread = answer(OFFLOADED, {**CASES["offloaded"][1], "nodes": 4, "network": "ethernet-25g"})

    assert [one for one in told.changes if _about(one, "overlap_comm")]
    for asked, keys in ((told, ("reduce_bucket_size", "stage3_prefetch_bucket_size")), (spread, ("overlap_comm",))):
        said = report.text(asked, width=2000)
        (line,) = [line for line in said.splitlines() if line.startswith("tried, and gains less than 2 %: ")]
        for key in keys:
            (one,) = [one for one in asked.tried if _about(one, key)]
            value = one.keys[f"zero_optimization.{key}"]
            assert f"{key} {'true' if value is True else f'{value:,}'}" in line
    assert all(one.keys["zero_optimization.reduce_bucket_size"] > 1_000_000 for one in told.tried
               if _about(one, "reduce_bucket_size"))  # fmt: skip


def test_what_would_gain_and_may_not_fit_is_named_as_such() -> None:
    config = dsgen.render({"hw": "a100-40g", "model": "7b"})
    told = answer(config.to_dict(), {"hw": "a100-40g", "model": "7b", "checkpointing": "full"})

    (line,) = [one for one in report.text(told, width=2000).splitlines() if "does not surely fit" in one]
    assert "tried, and does not surely fit: no checkpointing (+" in line


@pytest.mark.parametrize("name", CASES)
def test_the_keys_of_a_change_give_the_strategy_that_was_costed(name: str) -> None:
    config, scenario = CASES[name]
    told = answer(config, scenario)

    for one in every(told):
        after = one.after.strategy
        layers = dsgen.scenario({**scenario, "checkpointing": "full" if after.checkpointing else "none"})
        again = ask_config(dsgen.job(layers), given(written(config, one.keys)))
        assert attrs.evolve(again.strategy, buffers=after.buffers) == after
        assert again.strategy.buffers._asdict() | {"swap_buffers": 0} == after.buffers._asdict() | {"swap_buffers": 0}
        assert ("gradient_checkpointing_enable" in " ".join(one.programs)) == (
            after.checkpointing != told.now.strategy.checkpointing
        )


def test_a_needless_offload_is_offered_away() -> None:
    told = answer(OFFLOADED, CASES["offloaded"][1], **SLOW_LINK)

    gone = [one for one in told.changes if None in one.keys.values()]
    assert gone
    assert told.together is not None
    assert (told.together.after.strategy.offload_optimizer, told.together.after.strategy.offload_param) == (
        "none",
        "none",
    )
    assert set(told.together.keys) >= {"zero_optimization.offload_optimizer", "zero_optimization.offload_param"}


def test_small_buckets_are_offered_larger_where_each_call_costs() -> None:
    slow = {"network": {"latency": "5 ms"}}

    near, far = (answer(*CASES["small buckets"], **more) for more in ({}, slow))

    gain = {name: max((one.gain for one in told.changes if _about(one, "reduce_bucket_size")), default=0.0)
            for name, told in (("near", near), ("far", far))}  # fmt: skip
    assert gain["far"] > gain["near"]
    assert all(one.keys["zero_optimization.reduce_bucket_size"] > 1_000_000 for one in far.changes
               if _about(one, "reduce_bucket_size"))  # fmt: skip


def _about(one: Speedup, key: str) -> bool:
    return f"zero_optimization.{key}" in one.keys


def test_what_the_plan_renders_leaves_little_to_gain() -> None:
    scenario = {"hw": "a100-40g", "model": "7b", "objective": "throughput"}
    config = dsgen.render(scenario)
    recomputes = "full" if config.plan.chosen.strategy.checkpointing else "none"

    told = answer(config.to_dict(), {"hw": "a100-40g", "model": "7b", "checkpointing": recomputes})

    assert told.now.strategy.buffers.reduce_bucket == config.plan.chosen.strategy.buffers.reduce_bucket
    assert [one.words for one in every(told) if one.gain > 0.05] == []


def test_several_changes_are_offered_where_no_single_one_gains() -> None:
    """Recomputation pays for itself only where what is offloaded comes back with it: both ends of a plan are tried."""
    told = answer(OFFLOADED, {"hw": "a100-40g", "model": "llama-3.1-8b", "checkpointing": "none"}, **SLOW_LINK)

    assert told.together is not None
    assert len(told.together.words) > 1
    assert told.together.after.strategy.checkpointing


def test_where_a_key_stands_is_said(tmp_path: Any) -> None:
    from dsgen.linting import config_reader

    file = tmp_path / "ds.json"
    file.write_text(
        '{\n  "bf16": {"enabled": true},\n  "train_micro_batch_size_per_gpu": 1,\n  "gradient_accumulation_steps": 8,\n'
        '  "zero_optimization": {\n    "stage": 3,\n    "offload_optimizer": {"device": "cpu"}\n  }\n}\n'
    )

    told = speedups(
        ask_config(dsgen.job(dsgen.scenario({"hw": "a100-80g", "model": "1b"})), config_reader.read(str(file)))
    )

    places = {key: place for one in every(told) for key, place in one.where.items()}
    assert places["zero_optimization.offload_optimizer"] == f"{file}:7"
    assert places["train_micro_batch_size_per_gpu"] == f"{file}:3"


def test_a_dtype_that_the_gpu_lacks_has_no_speed() -> None:
    with pytest.raises(dsgen.DsgenError, match="bf16 on t4-16g; it has no units for it") as raised:
        answer(OFFLOADED, {"hw": "t4-16g", "model": "1b"})

    assert raised.value.todo is not None
    assert "--precision fp16" in raised.value.todo
    assert answer(OFFLOADED, {"hw": "t4-16g", "model": "1b", "precision": "fp16"}).now.speed > 0


@pytest.mark.parametrize(("release", "reentrant"), [("0.18", True), ("0.19", False)])
def test_checkpointing_of_adapters_at_stage_3_is_asked_for_as_the_release_can_run_it(
    release: str, reentrant: bool
) -> None:
    job = dsgen.job({"hw": "a100-80g", "model": "7b", "method": "lora", "checkpointing": "none"}, release)
    question = ask_config(job, given(OFFLOADED))
    after = attrs.evolve(question.strategy, checkpointing=True)

    (program,) = (one.program for one in rewrites(question, question.strategy, after) if one.program)
    assert ('gradient_checkpointing_kwargs={"use_reentrant": True}' in program) is reentrant
    assert program.startswith("call model.gradient_checkpointing_enable(")
