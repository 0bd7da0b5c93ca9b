"""Published speeds: every record accounted for, what their numbers mean, and the arithmetic of pairs and regret."""

from __future__ import annotations

import collections
import json
import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def records(module: Any) -> dict[str, Any]:
    """The published records by their ids."""
    return {record["id"]: record for record in module("published_cases").records()}


@pytest.fixture(scope="module")
def cases(module: Any) -> Any:
    """Every record with what became of it."""
    return module("published_speed_cases").speed_cases()


@attrs.frozen
class Row:
    """A measured speed and one that is said, of a made-up setup."""

    name: str
    measured: float
    speed: float
    setup: Mapping[str, Any]
    source: str = "a"
    within: bool = True


def row(name: str, measured: float, speed: float, *, source: str = "a", **setup: Any) -> Row:
    return Row(name, measured, speed, {"model": "7b", "stage": 2, "batch": 1, **setup}, source)


def test_every_record_is_accounted_for_once(cases: Any, records: Mapping[str, Any]) -> None:
    assert [case.name for case in cases] == list(records)
    assert len(records) == 923 + 624
    assert all(bool(case.reason) == (case.kind != "compared") for case in cases)
    assert all((case.ours is None) == (case.kind == "left out") for case in cases)
    padded = {"fms-pf": 289, "fms-moe": 194}  # tokens of a sample, where the printed speed counts padding
    told = [(case, records[case.name], padded.get(case.name.rpartition("-")[0])) for case in cases if case.ours]
    for case, record, own in told:
        printed, config = record["measured"]["tokens_per_second_per_gpu"], record["config"]
        if own is None or config.get("padding_free") or config["micro_batch"] == 1:
            assert case.measured == printed
        else:
            assert case.measured == record["measured"]["samples_per_second"] * own / record["hardware"]["gpus"]
            assert case.measured < printed


def test_as_many_are_compared_as_can_be_said(cases: Any) -> None:
    first, later = (collections.Counter(case.kind for case in part) for part in (cases[:923], cases[923:]))

    assert first == {"compared": 298, "apart": 72, "left out": 553}
    assert later == {"compared": 106, "apart": 209, "left out": 309}


def test_no_reason_stands_for_nothing(module: Any, cases: Any) -> None:
    reasons = module("published_speed_reasons")
    used = {case.reason for case in cases if case.reason}
    refused = {why for why in used if why.startswith(module("published_cases").REFUSED)}

    assert used - refused <= {*reasons.REASONS, *reasons.APART}
    # Each of these holds for records that an earlier reason has taken already.
    assert {*reasons.REASONS, *reasons.APART} - used == {
        "several models at once, or one without its head (RLHF, rewards)",
        "the GPU is not stated",
        "what is offloaded, and where to, is not stated",
        "layers spread over GPUs (device_map)",
        "a base in 8 bits (GPTQ)",
        "the ZeRO stage is not stated",
    }


# Record -> tokens of a sequence, nodes and GPUs of each, Gb/s out of a node, stage, offload, AutoTP, sequences of a
# micro-batch, and micro-batches of a step.
MAPPED = {
    "llmf-001": (2048, (64, 8), 3200, 3, ("none", "none"), 1, 8, 1),  # network not stated: that of its GPUs
    "llmf-078": (2048, (8, 8), 1600, 3, ("none", "none"), 1, 8, 4),
    "dsaz-1t-g512-b2": (1024, (64, 8), 1600, 3, ("none", "none"), 1, 2, 1),
    "dsdc-off2": (2048, (2, 8), 3200, 3, ("cpu", "none"), 1, 1, 1),
    "peftmc-lora-rank32": (210, (1, 1), 0, 0, ("none", "none"), 1, 4, 1),  # its mean length, not its longest
    "ullmt-a100-llama38b-lora": (8192, (1, 1), 0, 0, ("none", "none"), 1, 2, 32),
    "ullmt-a100-gemma7b-full": (8192, (1, 2), 0, 3, ("cpu", "cpu"), 1, 2, 32),
    "intern-tp2-zall-64": (2048, (8, 8), 400, 1, ("none", "none"), 2, 4, 4),
    "dsat-19": (1024, (1, 16), 0, 3, ("none", "none"), 1, 1, 1),
}


@pytest.mark.parametrize("name", sorted(MAPPED))
def test_a_record_becomes_the_question_that_it_answers(module: Any, records: Mapping[str, Any], name: str) -> None:
    question = module("published_speed_questions").speed_question(records[name])
    job, strategy = question.job, question.strategy
    gbps = job.network.bandwidth_bytes_per_second * 8 / 1e9
    offload = (strategy.offload_optimizer, strategy.offload_param)
    where = (job.seq_len, (job.nodes, job.gpus_per_node), pytest.approx(gbps))

    expected = MAPPED[name]
    assert where == expected[:3]
    assert (strategy.stage, offload, strategy.tp, strategy.micro_batch, strategy.accumulation) == expected[3:]


KINDS = {
    "bs-002": ("left out", "pipeline parallelism"),
    "mb-01": ("left out", "another training system (Megatron, nanotron, Colossal-AI)"),
    "litr-01": ("left out", "the length of its sequences, or their mean, is not stated"),
    "tune-02": ("left out", "the record itself doubts its figure"),
    "intern-tp1-z8-16": ("left out", "optimizer states over some of the replicas alone"),
    "dsat-17": ("apart", "a sum of timings, without what lies between them"),
    "fsdpq-05": ("apart", "FSDP with its base in 4 bits, which ZeRO-3 keeps whole"),
    "fsdpq-09": ("compared", ""),  # the same base, whole on each GPU
    "tune-11": ("apart", "torch.compile or DeepCompile"),
    "tune-10": ("compared", ""),
}


@pytest.mark.parametrize("name", sorted(KINDS))
def test_what_becomes_of_a_record(cases: Any, name: str) -> None:
    assert next((case.kind, case.reason) for case in cases if case.name == name) == KINDS[name]


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("llmf-177", 1),  # 1B on 128 A100: its table is older than FlashAttention 2
        ("llmf-008", 1),  # 13B on 256 H100: sweep.py says triton
        ("llmf-001", 2),  # 70B on 512 H100: and here flash
        ("llmf-020", 1),
        ("tune-10", 2),
    ],
)
def test_attention_is_what_the_script_of_a_table_asked_for(
    module: Any, records: Mapping[str, Any], name: str, release: int
) -> None:
    assert module("published_speed_questions").speed_question(records[name]).job.training.flash_attention == release


def test_mpt_is_timed_as_what_does_as_much_and_weighed_as_what_keeps_as_much(
    module: Any, records: Mapping[str, Any]
) -> None:
    """OPT has no rotary embedding, GPT-NeoX a GELU."""
    timed, weighed = module("published_speed_questions").speed_question, module("published_questions").question_of
    asked = timed(records["llmf-120"]).job.model, weighed(records["llmf-120"]).job.model

    assert [model.architecture for model in asked] == ["opt", "gpt_neox"]
    assert asked[0].hidden_size == asked[1].hidden_size == 1536


def test_adapters_that_fsdp_gathers_in_16_bits_are_multiplied_in_16_bits(
    module: Any, records: Mapping[str, Any]
) -> None:
    narrow = module("published_speed_facts").narrow_adapters
    mixed, pure = records["fms-liger-042"], records["fms-main-035"]  # the same program, two GPUs each

    assert (mixed["config"]["precision"], pure["config"]["precision"]) == ("bf16", "pure bf16")
    assert narrow(mixed)
    assert not narrow(pure)
    assert not narrow({**mixed, "config": {**mixed["config"], "zero_stage_equiv": 0}})  # nothing is gathered
    assert not narrow({**mixed, "system": "other"})


def test_a_sum_of_timings_is_never_held_against_an_end_to_end_speed(module: Any, cases: Any) -> None:
    said = [case for case in cases if case.source == "dsat" and case.ours]
    timed = {case.name for case in said if case.reason.startswith("a sum of timings")}
    found = module("published_speed_figures").pairs(said, "stage", "batch")

    assert found
    assert all((pair.faster in timed) == (pair.slower in timed) for pair in found)


def test_a_printed_step_is_the_speed_that_is_compared(cases: Any, records: Mapping[str, Any]) -> None:
    """But for universal-llm-trainer, whose steps are micro-batches; whole steps agree with the speed within 11 %."""
    ratios = {}
    for case in cases:
        seconds = records[case.name]["measured"].get("step_seconds")
        if case.ours and seconds and case.source != "ullmt":
            tokens = case.ours.seconds * case.speed
            ratios[case.name] = tokens / seconds / case.measured

    assert len(ratios) > 400
    assert all(math.isclose(ratio, 1, abs_tol=0.11) for ratio in ratios.values())
    assert statistics.median(abs(ratio - 1) for ratio in ratios.values()) < 0.001


def test_a_third_is_held_back_and_stays_so(cases: Any) -> None:
    said = [case for case in cases if case.ours]
    held = [case for case in said if case.held_back]

    assert len(held) / len(said) == pytest.approx(1 / 3, abs=0.05)
    assert [case.name for case in held[:3]] == ["llmf-002", "llmf-005", "llmf-009"]


def test_the_page_is_current_and_hides_what_is_held_back(module: Any, cases: Any) -> None:
    text = (REPOSITORY / "docs" / "speed.md").read_text(encoding="utf-8")
    rows = collections.Counter(line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if "|" in line)

    assert text == module("published_speed_page").page(cases), "docs/speed.md is stale. Run: nox -s published"
    assert all(rows[case.name] >= 1 for case in cases if case.kind == "compared" and not case.held_back)
    assert not [case.name for case in cases if case.ours and case.held_back and case.name in text.split()]


def test_rows_are_written_with_their_parts(module: Any, cases: Any) -> None:
    said = [case for case in cases if case.ours]
    found = json.loads(module("published_speed").rows(said))

    assert [one["id"] for one in found] == [case.name for case in said]
    for one in found:
        assert math.fsum(one["parts"].values()) == pytest.approx(one["step_seconds"])
        assert one["step_seconds"] / one["measured_seconds"] == pytest.approx(one["measured"] / one["predicted"])


def test_another_model_drops_in(module: Any) -> None:
    found = module("published_speed_cases")
    names = ["llmf-001", "bs-002"]
    said, left = found.speed_cases(lambda *_: found.Prediction(2.0, 1.0, 3.0, 4.0, {"all": 4.0}), names)

    assert (said.speed, said.ours.parts, said.within) == (2.0, {"all": 4.0}, False)
    assert said.error == pytest.approx(2.0 / said.measured - 1)
    assert left.ours is None


def test_errors_are_signed_and_of_the_measured_speed(module: Any) -> None:
    rows = [row("x", 100, 110), row("y", 100, 80), attrs.evolve(row("z", 200, 300), within=False)]

    assert module("published_speed_figures").agreement(rows) == (
        3,
        pytest.approx(0.10),
        pytest.approx(0.20),
        pytest.approx(2 / 3),
    )


def test_a_pair_differs_in_one_fact_and_clearly(module: Any) -> None:
    pairs = module("published_speed_figures").pairs
    rows = [
        row("slow", 100, 120, stage=3),
        row("fast", 150, 110),
        row("like the fast one", 153, 100),
        row("two facts", 300, 300, stage=3, batch=2),
        row("another source", 900, 900, stage=3, source="b"),
        row("another model", 900, 900, stage=3, model="8b"),
    ]
    found = pairs(rows, "stage")

    assert [(pair.faster, pair.slower) for pair in found] == [("fast", "slow"), ("like the fast one", "slow")]
    assert found[0].measured == pytest.approx(1.5)
    assert found[0].said == pytest.approx(110 / 120)
    assert not found[0].right
    assert pairs(rows, "batch")[0][:3] == ("batch", "two facts", "slow")
    assert {pair.faster for pair in pairs(rows, "stage", "batch")} == {"fast", "like the fast one", "two facts"}


def test_equal_speeds_are_in_no_order(module: Any) -> None:
    figures = module("published_speed_figures")
    found = figures.pairs(
        [row("slow", 100, 100, stage=3), row("fast", 150, 100), row("mid", 120, 90, stage=1)], "stage"
    )

    assert [(pair.faster, pair.right) for pair in found] == [("fast", False), ("mid", False), ("fast", True)]
    assert figures.ordered(found) == pytest.approx(1 / 3)


def test_regret_is_how_much_longer_the_pick_takes(module: Any) -> None:
    rows = [
        row("picked", 100, 200),
        row("best", 150, 190, stage=3),
        row("third", 50, 10, batch=4),
        row("alone", 900, 900, model="8b"),
        row("right", 10, 10, model="70b"),
        row("wrong", 5, 5, model="70b", stage=3),
        row("again", 7, 7, model="1b"),
        row("the same again", 8, 6, model="1b"),
    ]
    found = module("published_speed_figures").regrets(rows, ("stage", "batch"))

    assert [(one.names, one.pick, one.best) for one in found] == [
        (("picked", "best", "third"), "picked", "best"),
        (("right", "wrong"), "right", "right"),
    ]
    assert [one.cost for one in found] == [pytest.approx(0.5), 0]


def test_of_equally_fast_strategies_the_slowest_counts(module: Any) -> None:
    rows = [row("best", 150, 10), row("slowest", 100, 10, stage=3), row("other", 120, 10, stage=1)]
    (found,) = module("published_speed_figures").regrets(rows, ("stage",))

    assert (found.pick, found.cost) == ("slowest", pytest.approx(0.5))


def test_a_plan_takes_only_what_it_says_fits(module: Any) -> None:
    rows = [row("too large", 100, 30), row("best", 150, 20, stage=3), row("leanest", 120, 10, stage=2)]
    regrets = module("published_speed_figures").regrets
    doubts = {"too large": math.inf, "best": 1.0, "leanest": 0.0}

    assert [one.pick for one in regrets(rows, ("stage",), lambda one: doubts[one.name])] == ["leanest"]
    assert [one.pick for one in regrets(rows, ("stage",), lambda one: max(doubts[one.name], 1.0))] == ["best"]
    assert regrets(rows, ("stage",), lambda _: math.inf) == []


def test_of_measured_strategies_a_plan_takes_the_smallest_near_the_best_and_the_simplest(
    module: Any, cases: Any
) -> None:
    named = {case.name: case for case in cases}
    decided = module("published_speed_choices").decided
    batches = [named[name] for name in ("coast-043", "coast-044", "coast-046", "coast-047")]
    stages = [named[name] for name in ("dsat-18", "dsat-19")]

    assert max(batches, key=lambda case: case.speed).name == "coast-047"
    assert decided(batches).name == "coast-046"  # 8 sequences are said to be 1 % slower than 16, 2 are 8 %
    assert decided(batches[:2]).name == "coast-044"
    assert stages[1].speed > 0.93 * stages[0].speed
    assert decided(stages).name == "dsat-18"


def test_a_fit_never_sees_the_source_that_it_is_judged_by(module: Any) -> None:
    rows = [row("1", 2, 1), row("2", 4, 1), row("3", 10, 1, source="b")]
    seen = []

    def fit(those: Any) -> float:
        seen.append([one.name for one in those])
        return statistics.mean(one.measured for one in those)

    found = module("published_speed_figures").leave_one_source_out(rows, fit, lambda one, mean: mean / one.measured - 1)

    assert seen == [["3"], ["1", "2"]]
    assert found == {"a": [pytest.approx(4), pytest.approx(1.5)], "b": [pytest.approx(-0.7)]}


def test_a_constant_is_told_by_the_sources_that_it_was_not_fitted_on(module: Any) -> None:
    """Of one source it is 2, of the others 3: each is judged by what the other alone would say."""
    made = [row(name, 100, 50, source="qwen") for name in "ab"]
    made += [row(name, 150, 50, source="llmf") for name in "cde"]
    fits = module("published_speed_fits")
    one = fits.Fit(
        "it", "x {:.1f}".format, 2.0, (1.0, 2.0, 3.0), made, lambda case, x: x * case.speed / case.measured - 1
    )

    assert fits.refitted(one) == [
        ("LLM Foundry, benchmarking", "x 2.0", "3", "-33.3 %", "33.3 %", "-33.3 %", "33.3 %"),
        ("Qwen, README", "x 3.0", "2", "+50.0 %", "50.0 %", "+0.0 %", "0.0 %"),
        ("all, each without its own", "", "5", "-33.3 %", "33.3 %", "-33.3 %", "33.3 %"),
    ]


def test_every_constant_that_rests_on_published_runs_is_judged_without_a_source(module: Any, cases: Any) -> None:
    """The page has them; as they are they are the errors that the rest of the page has."""
    compared = [case for case in cases if case.kind == "compared"]
    fits = module("published_speed_fits")
    host, share = fits.fits(compared)

    assert len(host.rows) > 20
    assert len(share.rows) > 70
    assert len({case.source for case in share.rows}) > 5
    assert not any(case.held_back for case in (*host.rows, *share.rows))
    for one in (host, share):
        for case in one.rows:
            assert one.error(case, one.value) == pytest.approx(case.error, abs=1e-6)
    assert host.fitted([case for case in host.rows if case.source == "qwen"]) == pytest.approx(host.value, abs=1e-6)


def test_an_interval_is_chosen_on_the_sources_that_it_is_not_judged_by(module: Any) -> None:
    cases = module("published_speed_cases")
    ours = cases.Prediction(100.0, 80.0, 125.0, 1.0, {})
    low, high = (cases.SpeedCase(name=source, source=source, grade="A", kind="compared", measured=measured, ours=ours)
                 for source, measured in (("qwen", 99.0), ("llmf", 130.0)))  # fmt: skip
    setups = [attrs.evolve(one, setup={}) for one in (low, high)]

    assert module("published_speed_fits").interval(setups) == (
        "any speed",
        "0.76 to 1.32, at the narrowest 0.99 to 1.01",
        "2",
        "50%",
        "50% in 0.80 to 1.25",
        "0% of 1: LLM Foundry, benchmarking",
    )


def test_a_measured_run_foretells_another_of_its_machine(module: Any, cases: Any) -> None:
    page = module("published_speed_calibrated")
    compared = [case for case in cases if case.kind == "compared"]

    for same, bounds, least in (
        (page.MACHINE, (page.LOW_MEASURED, page.HIGH_MEASURED), 250),
        (page.ALIKE, (page.LOW_ALIKE, page.HIGH_ALIKE), 190),
    ):
        seen = page.foretold(compared, same, *bounds, held_back=False)
        held = page.foretold(compared, same, *bounds, held_back=True)
        assert seen.runs >= least
        assert 0.88 <= seen.inside <= 0.95
        assert held.inside >= 0.86
        assert held.error < held.alone_error


@attrs.frozen(kw_only=True)
class Run(Row):
    """A made-up run that may be held back."""

    held_back: bool = False


def test_runs_are_foretold_from_others_of_their_machine_alone(module: Any) -> None:
    foretold = module("published_speed_calibrated").foretold
    facts = {"length": 1, "GPUs": 8, "method": "full", "offload": "", "tensor parallelism": 1, "checkpointing": False}
    made = [
        Run(name="a", measured=80.0, speed=100.0, setup={"model": "7b", "batch": 1, "stage": 2, **facts}, source="a"),
        Run(name="b", measured=40.0, speed=50.0, setup={"model": "7b", "batch": 1, "stage": 3, **facts}, source="a"),
        Run(name="c", measured=99.0, speed=100.0, setup={"model": "7b", "batch": 1, "stage": 2, **facts}, source="b"),
    ]

    told = foretold(made, ("model",), 0.99, 1.01, False)

    assert (told.runs, told.inside) == (2, 1.0)  # both are a fifth slower; the third is of another source, alone
    assert told.error == pytest.approx(0.0)
    assert told.alone_error == pytest.approx(0.2)
    twice = [made[0], attrs.evolve(made[0], name="again")]
    assert foretold(twice, ("model",), 0.9, 1.1, False) is None  # one run twice foretells nothing
