"""Published measurements: every record accounted for, the units, the mapping, and the errors as they are."""

from __future__ import annotations

import collections
import statistics
from collections.abc import Mapping
from typing import Any

import pytest

GIB = 2**30


@pytest.fixture(scope="module")
def records(module: Any) -> dict[str, Any]:
    """The published records by their ids."""
    return {record["id"]: record for record in module("published_cases").records()}


@pytest.fixture(scope="module")
def cases(module: Any) -> Any:
    """Every record with what became of it."""
    return module("published_cases").cases()


def test_every_record_is_accounted_for_once(cases: Any, records: Mapping[str, Any]) -> None:
    assert [case.name for case in cases] == list(records)
    assert len(records) == 1547
    assert all(bool(case.reason) == (case.kind == "left out") for case in cases)
    assert all(bool(case.peaks) == (case.kind == "peak") for case in cases)
    assert all(0 < peak.low <= peak.ours <= peak.high for case in cases for peak in case.peaks)
    assert all((case.verdict is None) == (case.kind == "left out") for case in cases)


def test_a_compared_peak_is_one_that_the_record_states(cases: Any, records: Mapping[str, Any]) -> None:
    for case in cases:
        found = records[case.name]["measured"]
        stated = found.get("peak_gib") or found.get("peak_gb") or found.get("nvidia_smi_gib")
        assert case.kind == "left out" or (case.kind == "peak") == (stated is not None), case.name


def test_no_reason_stands_for_nothing(module: Any, cases: Any) -> None:
    """A reason that no record has is a rule that nobody sees to be wrong; the rest say why dsgen itself refuses."""
    used = collections.Counter(case.reason for case in cases if case.reason)
    refused = {why for why in used if why.startswith(module("published_cases").REFUSED)}
    assert set(used) - refused <= set(module("published_reasons").REASONS)
    # Each of these holds for records that an earlier reason has taken already.
    assert set(module("published_reasons").REASONS) - set(used) == EARLIER


EARLIER = {
    "the host's memory ran out, whose size is not stated",
    "the ZeRO stage is not stated",
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("litr-01", 4.82e9),  # GB is 1e9: LitGPT divides by it
        ("swb-44", 37.7 * GIB),  # in GiB and in GB: GiB is what was printed
        ("belle-1", 12.6 * GIB),  # nvidia-smi counts in MiB
        ("llmf-001", None),  # no peak
    ],
)
def test_a_measured_peak_in_bytes(module: Any, records: Mapping[str, Any], name: str, expected: float | None) -> None:
    found = module("published_sources").measured_bytes(records[name])
    assert found == (None if expected is None else round(expected))


def test_a_reading_is_compared_with_the_number_of_ours_that_means_the_same(module: Any) -> None:
    place = module("dsgen.memory").Place
    gpu = place(
        peak_bytes=1000,
        low_bytes=1,
        high_bytes=9999,
        limit_bytes=9999,
        parts={},
        phase="step",
        holds=module("dsgen.memory.reserved").ReservedBytes(1100, 1000, 1200),
        overhead={"CUDA context": 50, "NCCL buffers": 20, "cuBLAS workspace": 7},
    )
    found = module("dsgen.memory").MemoryEstimate(gpu=gpu, host=gpu, nvme=gpu)
    readings = module("published_sources").Reading
    ours = {reading.name: module("published_cases").ours(found, reading).bytes for reading in readings}
    assert ours == {"ALLOCATED": 1007, "RESERVED": 1107, "UNSTATED": 1107, "DRIVER": 1177}


def test_a_number_without_a_meaning_may_be_any_of_the_three(module: Any, cases: Any) -> None:
    """From the lowest that may be allocated, which lies below what may be reserved, to what nvidia-smi may show."""
    reading = module("published_sources").Reading
    question = module("published_questions").question_of
    estimate = module("dsgen.memory").estimate
    record = next(one for one in module("published_cases").records() if one["id"] == "qwen-01")
    found = estimate(question(record).job, question(record).strategy)
    each = {one.name: module("published_cases").ours(found, one) for one in reading}
    assert each["UNSTATED"].bytes == each["RESERVED"].bytes
    assert each["UNSTATED"].low == each["ALLOCATED"].low < each["RESERVED"].low
    assert each["UNSTATED"].high == each["DRIVER"].high > each["RESERVED"].high


def test_the_loss_of_a_program_is_its_own(module: Any, records: Mapping[str, Any]) -> None:
    """ColossalAI-Pytorch-lightning's GPTLMLoss; GPT2-XL's 40 sequences have 1.9 billion logits."""
    model = module("published_questions").question_of(records["clpl-z3-xl"]).job.model
    assert (model.logits_upcast, model.logits_shifted) == ("none", True)


def test_the_classes_of_litgpt_are_its_own(module: Any, records: Mapping[str, Any]) -> None:
    """fp32 logits of 128 tokens at a time; one adapter of query, key and value on one GPU over 16 bits."""
    models = {
        name: module("published_questions").question_of(records[name]).job.model
        for name in ("lith-35", "litr-14", "litr-12", "litr-42")
    }
    losses = {(one.logits_upcast, one.logits_shifted, one.head_chunk) for one in models.values()}
    assert losses == {("model", True, 128)}
    assert models["lith-35"].architecture == "llama"  # Phi-3, whose gate transformers joins
    assert models["lith-35"].litgpt == "qkv"
    assert models["litr-14"].litgpt == "qv"


def test_what_litgpt_ran_on_one_gpu_is_said_to_six_thousandths(cases: Any) -> None:
    """But for a model whose eager attention it writes out otherwise, and one with eight sequences."""
    errors = {case.name: case.error for case in cases if case.source in ("lith", "litr") and case.peaks}
    near = {name for name, error in errors.items() if abs(error) < 0.006}
    compared = {case.name for case in cases if case.source in ("lith", "litr") and case.peaks and not case.apart}
    assert len(compared) == 19
    assert compared - near == {"lith-08", "lith-42"}
    assert all(abs(errors[name]) < 0.039 for name in compared)


def facts(question: Any) -> tuple[Any, ...]:
    job, strategy = question.job, question.strategy
    return (
        strategy.stage,
        (strategy.offload_optimizer, strategy.offload_param),
        strategy.micro_batch,
        strategy.accumulation,
        strategy.precision,
        strategy.checkpointing,
        (job.nodes, job.gpus_per_node),
        job.seq_len,
        job.training.attention,
        job.training.method,
        (job.model.architecture, job.model.layers, job.model.tied_embeddings),
    )


NONE = ("none", "none")
# Record -> stage, offload of optimizer and parameters, micro-batch, accumulation, precision, checkpointing, nodes and
# GPUs of each, tokens, attention, method, and of the model its type, layers and whether its head is tied; LitGPT's
# never is.
MAPPED = {
    "litr-14": (0, NONE, 2, 1, "bf16", False, (1, 1), 1304, "sdpa", "lora", ("llama", 32, False)),
    "lith-09": (0, NONE, 2, 1, "bf16", False, (1, 1), 512, "sdpa", "qlora", ("gemma2", 26, False)),
    "litr-42": (3, NONE, 1, 1, "bf16", True, (1, 2), 1304, "sdpa", "lora", ("llama", 32, False)),
    "swb-46": (0, NONE, 1, 16, "bf16", False, (1, 1), 2048, "eager", "lora", ("qwen2", 32, False)),
    "qwen-43": (3, NONE, 1, 8, "bf16", True, (1, 2), 256, "flash", "full", ("qwen2", 32, False)),
    "sws-04": (3, NONE, 1, 2, "bf16", True, (1, 4), 8192, "flash", "full", ("qwen2", 28, False)),
    "llmf-001": (3, NONE, 8, 1, "bf16", True, (64, 8), 2048, "flash", "full", ("gpt_neox", 80, True)),
    "dsaz-175b-s512-g512-b2": (3, NONE, 2, 1, "fp16", True, (64, 8), 512, "eager", "full", ("gpt2", 96, True)),
    "qwen-70": (3, NONE, 1, 8, "bf16", True, (1, 4), 256, "flash", "lora", ("qwen2", 80, False)),
    "dsdc-off2": (3, ("cpu", "none"), 1, 1, "bf16", True, (2, 8), 2048, "sdpa", "full", ("llama", 80, False)),
    "iss-hf10326": (2, ("cpu", "none"), 4, 1, "fp16", False, (1, 2), 512, "eager", "full", ("t5", 24, True)),
}


@pytest.mark.parametrize("name", sorted(MAPPED))
def test_a_record_becomes_the_question_that_it_answers(module: Any, records: Mapping[str, Any], name: str) -> None:
    assert module("published_reasons").reason(records[name]) is None
    assert facts(module("published_questions").question_of(records[name])) == MAPPED[name]


def test_targets_have_their_own_length_where_a_record_says_it(module: Any, records: Mapping[str, Any]) -> None:
    question_of = module("published_questions").question_of

    assert question_of(records["iss-hf10326"]).job.target_len == 4
    assert question_of(records["hfb-t53b-2"]).job.target_len == 128  # as the sequence


@pytest.mark.parametrize("name", ["hfb-t53b-2", "hfb-t511b"])
def test_what_the_page_says_of_two_runs_of_t5_is_so(module: Any, records: Mapping[str, Any], name: str) -> None:
    """They are left out for their lengths; at the longest ones dsgen says that they do not fit."""
    question = module("published_questions").question_of(records[name])
    memory = module("dsgen.memory.estimates").estimate(question.job, question.strategy)

    assert module("published_reasons").reason(records[name])
    assert records[name]["measured"]["fits"]
    assert memory.verdict.value == "does not fit"
    assert name != "hfb-t511b" or memory.gpu.phase == "init"


FSDP = "FSDP with fp32 weights, which ZeRO has twice, or with a 4-bit base, which ZeRO-3 keeps gathered"
LEFT_OUT = {
    "ttn-20": "fp8",
    "ttn-10": "checkpointing of a part of each block, or not stated",
    "tune-10": "all weights and states in 16 bits, without an fp32 copy",
    "swb-48": "a base in 8 bits (GPTQ)",
    "hfb-fsdp10": FSDP,
    "peft-fs3": FSDP,
    "litr-24": "adapters that are no plain LoRA",
    "bs-002": "pipeline parallelism",
    "mb-01": "another training system (Megatron, nanotron, Colossal-AI)",
    "hfb-fsdp08": "DDP keeps a second copy of every gradient in its buckets",
    "tunel2-1": "the real sequences were shorter, by how much is not stated",
    "dsaz-1t-g512-b2": "what is offloaded, and where to, is not stated",
    "hfb-t53b-2": "the real sequences were shorter, by how much is not stated",
    "hfb-t511b": "the configuration is not described",
    "h2o-2": "checkpointing of a part of each block, or not stated",
}


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_a_record_is_left_out_for_its_own_reason(module: Any, records: Mapping[str, Any], name: str) -> None:
    assert module("published_reasons").reason(records[name]) == LEFT_OUT[name]


def test_the_model_of_a_record_has_as_many_parameters_as_it_says(module: Any, records: Mapping[str, Any]) -> None:
    """LitGPT's untied heads and MPT's tables of positions are not in the record's count, or only there."""
    count, wrong = module("dsgen.families.parameters").parameter_count, []
    for record in records.values():
        if module("published_reasons").reason(record) is None and not record["id"].startswith(("lit", "llmf")):
            found = count(module("published_models").model_of(record))
            if abs(found / record["model"]["params"] - 1) > 0.001:
                wrong.append((record["id"], found, record["model"]["params"]))
    assert not wrong


# Source -> records compared by their peak, and the largest median absolute error allowed: as it is, and a little more.
BOUNDS = {
    "clpl": (2, 0.04),
    "dsgist": (1, 0.40),
    "dsmuon": (2, 0.19),
    "flagp": (3, 0.056),
    "fms": (19, 0.005),
    "fsdpq": (6, 0.025),
    "intern": (4, 0.24),
    "lith": (13, 0.004),
    "litr": (6, 0.002),
    "peftmc": (5, 0.036),
    "sws": (7, 0.05),
}
# What was measured -> how many numbers, the largest median absolute error allowed, and fewest in the interval.
READINGS = {
    "ALLOCATED": (41, 0.004, 37),
    "RESERVED": (11, 0.030, 10),
    "DRIVER": (19, 0.034, 18),
    "UNSTATED": (55, 0.062, 51),
}


# The largest source by how it ran, as its 39 together tell of no part.
QWEN = {
    ("deepspeed", "lora"): (12, 0.0225),
    ("deepspeed", "full"): (9, 0.125),
    ("other", "lora"): (18, 0.048),
}


@pytest.mark.parametrize("system", sorted(QWEN))
def test_qwen_s_peaks_are_as_near_as_they_were(cases: Any, system: tuple[str, str]) -> None:
    count, bound = QWEN[system]
    errors = [abs(case.error) for case in cases if case.peaks and case.source == "qwen" and not case.apart
              and case.system == system]  # fmt: skip
    assert len(errors) == count
    assert statistics.median(errors) <= bound


@pytest.mark.parametrize("source", sorted(BOUNDS))
def test_peaks_are_as_near_as_they_were(cases: Any, source: str) -> None:
    count, bound = BOUNDS[source]
    errors = [abs(case.error) for case in cases if case.peaks and not case.apart and case.source == source]
    assert len(errors) == count
    assert statistics.median(errors) <= bound


def test_every_source_with_a_peak_has_a_bound(cases: Any) -> None:
    assert {case.source for case in cases if case.peaks and not case.apart} == {*BOUNDS, "qwen"}


@pytest.mark.parametrize("reading", sorted(READINGS))
def test_every_meaning_of_a_number_is_as_near_as_it_was(cases: Any, reading: str) -> None:
    count, bound, within = READINGS[reading]
    peaks = [peak for case in cases if not case.apart for peak in case.peaks if peak.reading.name == reading]
    assert len(peaks) == count
    assert statistics.median(abs(peak.error) for peak in peaks) <= bound
    assert sum(peak.within for peak in peaks) >= within


def test_every_reason_to_show_a_record_apart_holds_for_some(module: Any, cases: Any) -> None:
    used = collections.Counter(case.apart for case in cases if case.apart)
    later = {case.apart for case in module("unseen").compared() if case.apart}
    assert {*used, *later} == set(module("published_apart").APART)
    assert used.total() == 212


def test_embeddings_trained_without_an_fp32_copy_take_less_than_dsgen_says(cases: Any) -> None:
    """Less by what DeepSpeed keeps: an fp32 copy, two fp32 moments instead of 16-bit ones, and fp32 gradients."""
    those = [case.error for case in cases if case.apart.startswith("adapters, embedding and head") and case.peaks]
    assert len(those) == 18
    assert all(0.15 < error < 0.7 for error in those)


def test_all_peaks_together_are_as_near_as_they_were(cases: Any) -> None:
    errors = [case.error for case in cases if case.peaks and not case.apart]
    assert len(errors) == 107
    assert -0.02 <= statistics.median(errors) <= 0.02
    assert statistics.median(map(abs, errors)) <= 0.0284
    assert sum(case.peaks[0].within for case in cases if case.peaks and not case.apart) >= 98


def test_verdicts_are_as_right_as_they_were(cases: Any) -> None:
    """Of 351 runs whose program dsgen has words for one is said not to fit; of those that died none is said to fit."""
    known = [case for case in cases if case.verdict is not None and not case.apart]
    found = collections.Counter((case.fits, case.right) for case in known)
    assert found.total() == len(known)
    assert found[True, False] <= 1
    assert found[False, False] == 0
    everything = collections.Counter((case.fits, case.right) for case in cases if case.verdict is not None)
    assert everything[True, False] <= 5
    assert everything[False, False] <= 1


def test_the_page_names_every_compared_record_and_every_reason(module: Any, cases: Any) -> None:
    text = module("published_page").page(cases)
    rows = collections.Counter(line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if "|" in line)
    assert all(rows[case.name] == 1 for case in cases if case.kind != "left out")
    assert all(f"| {why} |" in text for why in {case.reason for case in cases} if why)
