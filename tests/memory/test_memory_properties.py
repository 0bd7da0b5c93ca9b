"""Laws of `dsgen memory` on questions that nobody thought of: sums, intervals, order, and edges that are edges."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
from hypothesis import assume, given, settings
from hypothesis import strategies as draw
from tries import tries

import dsgen
from dsgen.asking.memory_questions import Question, answer, ask, ask_config, counterfactuals
from dsgen.asking.memory_questions import given as from_config
from dsgen.asking.memory_questions.questions import strategy_of
from dsgen.jobs.job import Job
from dsgen.memory import MemoryEstimate, Place, Verdict, estimate
from dsgen.memory.estimates import worst
from dsgen.memory.later import later
from dsgen.memory.limits import PINNED
from dsgen.report import memory as report
from dsgen.strategies.constraints import cannot
from dsgen.strategies.wishes import check_wishes

# Share by which torch may reserve less for more: requests that are a little larger can leave fewer holes in segments. A
# hole may have the size of the largest tensor, so it is rarely more, and how rarely is counted among batches in use.
FEWER_HOLES, RARELY = 0.05, 0.02
QUESTIONS = settings(max_examples=tries(60))  # each answers some dozens of estimates

HARDWARE = draw.sampled_from(["a100-40g", "rtx4090-24g", "t4-16g", "mi300x-192g", "v100-32g", "generic-24g"])
MODELS = draw.sampled_from(
    [
        "7b",
        "gpt2",
        "bloom-560m",
        "qwen3-0.6b",
        "gemma-2-2b",
        "mixtral-8x7b",
        "falcon-7b",
        "llama-3.1-405b",
        "phi-3-mini",
    ]
)
WISHES = {
    "zero_stage": draw.sampled_from([0, 1, 2, 3]),
    "offload": draw.sampled_from(["none", "cpu", "optimizer", "all", "nvme"]),
    "micro_batch": draw.integers(1, 40),
    "accumulation": draw.sampled_from([1, 2, 8]),
    "tp": draw.sampled_from([1, 2]),
    "checkpointing": draw.sampled_from(["none", "full"]),
    "precision": draw.sampled_from(["bf16", "fp16", "fp32"]),
    "method": draw.sampled_from(["full", "lora", "qlora"]),
    "optimizer": draw.sampled_from(["AdamW", "Lion", "Adagrad", "SGD", "Muon"]),
    "attention": draw.sampled_from(["flash", "sdpa", "eager"]),
    "chunked_loss": draw.booleans(),
    "seq_len": draw.integers(1, 40_000),
    "lora_rank": draw.sampled_from([1, 8, 64]),
    "lora_dropout": draw.sampled_from([0.0, 0.05]),
    "lora_train_embeddings": draw.booleans(),
}
GPUS = draw.sampled_from([1, 2, 8, 64, 512])


@draw.composite
def questions(choose: draw.DrawFn) -> Question:
    """A question that dsgen takes: any part of the wishes said, the rest chosen by it."""
    said = choose(draw.fixed_dictionaries({}, optional=WISHES))
    layers = dsgen.profile(choose(HARDWARE)) | dsgen.profile(choose(MODELS))
    try:
        return ask(dsgen.job(layers | {"training": said, "cluster": {"gpus": choose(GPUS)}}))
    except dsgen.DsgenError:
        assume(False)
        raise


SIZES = draw.sampled_from(["auto", 1, 2, 4, 2e8])
PLACES = draw.fixed_dictionaries({"device": draw.sampled_from(["none", "cpu", "nvme"])})
ON = draw.fixed_dictionaries({"enabled": draw.sampled_from([True, False, "auto"])})
ZERO = draw.fixed_dictionaries(
    {},
    optional={
        "stage": draw.sampled_from([0, 1, 2, 3, "auto"]),
        "offload_optimizer": PLACES,
        "offload_param": PLACES,
        "overlap_comm": draw.sampled_from([True, False, "auto"]),
        "reduce_bucket_size": SIZES,
        "stage3_prefetch_bucket_size": SIZES,
        "stage3_param_persistence_threshold": SIZES,
        "stage3_max_live_parameters": SIZES,
        "sub_group_size": draw.sampled_from(["auto", 1e8, 10**9]),
    },
)
CONFIGS = draw.fixed_dictionaries(
    {"zero_optimization": ZERO},
    optional={
        "train_micro_batch_size_per_gpu": draw.sampled_from(["auto", 0, 1, 3, 10**14, 2.0, "two", None]),
        "gradient_accumulation_steps": draw.sampled_from(["auto", 1, 4, None]),
        "train_batch_size": draw.sampled_from(["auto", 1, 64, -1]),
        "bf16": ON,
        "fp16": ON,
        "optimizer": draw.fixed_dictionaries({"type": draw.sampled_from(["AdamW", "auto", "OneBitAdam", "Muon"])}),
    },
)


@draw.composite
def config_questions(choose: draw.DrawFn) -> Question:
    """What a config asks, whatever it says; what neither it nor the wishes beside it say is chosen."""
    wishes = {name: WISHES[name] for name in ("checkpointing", "method", "attention", "seq_len")}
    said = choose(draw.fixed_dictionaries({}, optional=wishes))
    layers = dsgen.profile(choose(HARDWARE)) | dsgen.profile(choose(MODELS))
    try:
        job = dsgen.job(layers | {"training": said, "cluster": {"gpus": choose(GPUS)}})
        check_wishes(job)
    except dsgen.DsgenError:
        assume(False)
        raise
    return ask_config(job, from_config(choose(CONFIGS)))


def at_length(asked: Question, tokens: int) -> Job:
    return attrs.evolve(asked.job, training=attrs.evolve(asked.job.training, seq_len=tokens))


def places(memory: MemoryEstimate) -> tuple[Place, ...]:
    return memory.gpu, memory.host, memory.nvme


def fits(job: Job, strategy: Any) -> bool:
    return estimate(job, strategy).verdict is Verdict.FITS


@QUESTIONS
@given(questions())
def test_the_parts_of_every_place_and_phase_add_up_to_its_peak(asked: Question) -> None:
    memory = estimate(asked.job, asked.strategy)

    for place in places(memory):
        assert sum(place.parts.values()) == place.peak_bytes
        assert sum(place.overhead.values()) == place.overhead_bytes
        assert min((*place.parts.values(), *place.overhead.values()), default=0) >= 0
    assert max(phase.gpu_bytes for phase in memory.phases) == memory.gpu.peak_bytes
    # Of a node's RAM what torch holds page-locked beside the tensors may put a step before a loading that has more.
    host, most = memory.host, max(phase.host_bytes for phase in memory.phases)
    assert host.peak_bytes in {phase.host_bytes for phase in memory.phases}
    assert host.peak_bytes <= most <= host.peak_bytes + host.overhead.get(PINNED, 0)
    assert most == host.peak_bytes or most == max(memory.phases, key=lambda phase: phase.host_bytes).host["weights"]


@QUESTIONS
@given(questions())
def test_a_peak_is_inside_its_interval_and_below_what_is_reserved(asked: Question) -> None:
    memory = estimate(asked.job, asked.strategy)

    assert memory.gpu.peak_bytes <= memory.gpu.reserved_bytes
    for place in places(memory):
        assert place.low_bytes <= place.peak_bytes
        assert place.peak_bytes + place.overhead_bytes <= place.high_bytes


@QUESTIONS
@given(questions(), draw.integers(1, 9))
def test_a_larger_micro_batch_or_a_longer_sequence_never_takes_less(asked: Question, more: int) -> None:
    small = estimate(asked.job, asked.strategy)
    larger = strategy_of(asked, micro_batch=asked.strategy.micro_batch + more)
    longer = at_length(asked, asked.job.seq_len + more)

    for grown in (estimate(asked.job, larger), estimate(longer, asked.strategy)):
        for before, after in zip(places(small), places(grown), strict=True):
            assert (before.low_bytes, before.peak_bytes) <= (after.low_bytes, after.peak_bytes)
            assert before.high_bytes <= after.high_bytes
        assert small.gpu.peak_bytes <= grown.gpu.reserved_bytes


def test_more_sequences_rarely_reserve_less() -> None:
    falls = steps = 0
    for model, stage, checkpointing in itertools.product(
        ("7b", "qwen3-0.6b", "gemma-2-2b"), range(4), ("none", "full")
    ):
        said = {"zero_stage": stage, "checkpointing": checkpointing, "offload": "none", "seq_len": 1024}
        layers = dsgen.profile("mi300x-192g") | dsgen.profile(model)
        asked = ask(dsgen.job(layers | {"training": said, "cluster": {"gpus": 8}}))
        reserved = [
            estimate(asked.job, strategy_of(asked, micro_batch=size)).gpu.reserved_bytes for size in range(1, 7)
        ]
        steps += len(reserved) - 1
        falls += sum(more < (1 - FEWER_HOLES) * fewer for fewer, more in itertools.pairwise(reserved))
        assert max(reserved) == reserved[-1], asked

    assert falls <= RARELY * steps


@QUESTIONS
@given(questions())
def test_the_largest_micro_batch_and_the_longest_sequence_are_edges(asked: Question) -> None:
    known = counterfactuals(asked)

    assert not known.micro_batch or fits(asked.job, strategy_of(asked, micro_batch=known.micro_batch))
    assert not fits(asked.job, strategy_of(asked, micro_batch=(known.micro_batch or 0) + 1))
    assert not known.seq_len or fits(at_length(asked, known.seq_len), asked.strategy)
    assert known.seq_len_bound or not fits(at_length(asked, (known.seq_len or 0) + 1), asked.strategy)


@QUESTIONS
@given(questions())
def test_the_fewest_gpus_are_enough_and_no_fewer_are(asked: Question) -> None:
    known = counterfactuals(asked)
    full = asked.job.hardware.gpus_per_node

    def on(nodes: int, per_node: int) -> bool:
        there = attrs.evolve(asked, job=attrs.evolve(asked.job, nodes=nodes, gpus_per_node=per_node))
        return nodes * per_node % asked.strategy.tp == 0 and fits(there.job, strategy_of(there))

    fewer = [(1, count) for count in range(1, full + 1) if count < (known.gpus or full + 1)]
    assert not any(on(nodes, per_node) for nodes, per_node in fewer)
    if known.gpus:
        assert on(known.nodes, known.gpus // known.nodes)
        assert known.nodes < 3 or not on(known.nodes - 1, full)
    else:
        assert not any(on(2**power, full) for power in range(1, 11))


@QUESTIONS
@given(questions())
def test_the_ram_needed_is_enough_and_a_gibibyte_less_is_not_for_any_question(asked: Question) -> None:
    needed = counterfactuals(asked).host_bytes

    def with_ram(size: int) -> bool:
        there = attrs.evolve(asked.job, hardware=attrs.evolve(asked.job.hardware, host_memory_bytes=size))
        between = (one.host.verdict for one in later(there, asked.strategy))
        return worst((estimate(there, asked.strategy).host.verdict, *between)) is Verdict.FITS

    assume(needed is not None)
    assert with_ram(needed or 0)
    assert not with_ram((needed or 0) - 2**30)


@QUESTIONS
@given(questions())
def test_changes_fit_as_they_are_said_and_are_there_where_any_stage_would_do(asked: Question) -> None:
    """Said beside the whole strategy that was asked for; nothing is changed where it fits."""
    job, strategy = asked.job, asked.strategy
    changes = counterfactuals(asked).changes

    assert not changes or not fits(job, strategy)
    assert all(change.memory.verdict is Verdict.FITS for change in changes)
    least = strategy_of(asked, stage=max(strategy.stage, 3), checkpointing=True, micro_batch=1)
    assert changes or fits(job, strategy) or not fits(job, least) or cannot(job, least)


@QUESTIONS
@given(config_questions(), draw.sampled_from([80, 200]))
def test_any_config_is_answered_within_the_width_and_its_largest_micro_batch_is_one(
    asked: Question, width: int
) -> None:
    found = answer(asked)
    largest = found.counterfactuals.micro_batch or 0

    if asked.strategy.micro_batch < 10**6:  # the table of what nobody can train has wider numbers
        assert max(map(len, report.text(found, width).splitlines())) <= width
    assert report.data(found)["question"]["micro_batch"] == asked.strategy.micro_batch
    assert not largest or fits(asked.job, strategy_of(asked, micro_batch=largest))
    assert not fits(asked.job, strategy_of(asked, micro_batch=largest + 1))
