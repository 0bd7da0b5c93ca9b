"""Samples of several lengths: what padding makes GPUs compute, who waits for whom, and what packed ones see."""

import attrs
import pytest

from dsgen.cost import cost, most_speed, steps
from dsgen.cost.micro_batches import passes
from dsgen.cost.model_flops import utilization
from dsgen.cost.sample_lengths import LEAST_SPREAD, MOST_SPREAD, computed_length
from dsgen.cost.steps import speed_interval
from dsgen.jobs.samples import SPREAD, seen_length
from dsgen.memory import estimate
from dsgen.planning import plan
from dsgen.planning.program_changes import program_changes
from dsgen.report import costs

# foundation-model-stack/fms-acceleration 876e2ed, a100_80gb_pf.csv of refs_orca: micro-batch -> tokens of a sequence
# with padding, of samples of 289 without; one GPU.
MEASURED = {2: 368.8, 4: 442.1, 8: 524.2}
MEAN = 289


def job_of(make_job, gpus=1, seq_len=4096, method="lora", **wishes):
    training = {"seq_len": seq_len, "method": method, **wishes}
    return make_job("a100-80g", "mistral-7b", training=training, cluster={"gpus": gpus})


def at(job, **facts):
    return attrs.evolve(plan(job).chosen.strategy, **facts)


@pytest.mark.parametrize(("micro_batch", "tokens"), MEASURED.items())
def test_padding_is_as_measured(make_job, micro_batch, tokens):
    job = job_of(make_job, mean_len=MEAN)
    assert computed_length(job, at(job, micro_batch=micro_batch)) == pytest.approx(tokens, rel=0.03)


def test_a_gpu_waits_for_the_longest_micro_batch(make_job):
    """In each micro-batch at stages 2 and 3, else in each step, where chance evens out what one GPU has."""
    job = job_of(make_job, gpus=8, mean_len=MEAN)
    alone = job_of(make_job, mean_len=MEAN)
    own = computed_length(alone, at(alone, micro_batch=1, accumulation=16, stage=1))
    once, each = (computed_length(job, at(job, micro_batch=1, accumulation=16, stage=stage)) for stage in (1, 2))

    assert own == MEAN < once < each
    assert each - own == pytest.approx(4 * (once - own), abs=4)
    assert each == computed_length(alone, at(alone, micro_batch=8, accumulation=1, stage=2))


@pytest.mark.parametrize("mean", [1, 40, 2000, 3900, 4095, 4096])
@pytest.mark.parametrize("spread", [LEAST_SPREAD, 0.5, MOST_SPREAD])
def test_lengths_lie_between_the_mean_and_the_longest(make_job, mean, spread):
    job = job_of(make_job, gpus=8, mean_len=mean)
    lengths = [
        computed_length(job, at(job, micro_batch=size, accumulation=1, stage=2), spread) for size in (1, 2, 16, 256)
    ]
    assert mean <= lengths[0] <= lengths[1] <= lengths[2] <= lengths[3] <= 4096


def test_a_step_has_the_samples_own_tokens_and_the_time_of_what_is_computed(make_job):
    job, plain = job_of(make_job, gpus=8, mean_len=MEAN), job_of(make_job, gpus=8)
    strategy = at(job, micro_batch=4, accumulation=2, stage=2)
    length = computed_length(job, strategy)
    told, whole = cost(job, strategy), cost(job_of(make_job, gpus=8, seq_len=length), strategy)

    assert told.tokens == strategy.global_batch * MEAN
    assert told.seconds == whole.seconds < cost(plain, strategy).seconds
    assert told.tokens_per_second_per_gpu <= most_speed(job, strategy)
    low, high = speed_interval(job, strategy)
    assert low < speed_interval(plain, strategy)[0] < 1 < speed_interval(plain, strategy)[1] < high


@pytest.mark.parametrize(
    ("wishes", "words", "share"),
    [
        ({"mean_len": MEAN}, "of those that a step computes, or waits for, are padding", True),
        ({"mean_len": MEAN, "padding_free": True}, "of those that a step waits for are another GPU's", True),
        ({"mean_len": 4096}, None, True),
        ({"packing": True}, "attention of whole sequences: packed samples see less of them", False),
        ({"packing": True, "mean_len": MEAN}, None, False),
        ({}, None, False),
    ],
)
def test_text_and_json_say_how_much_of_a_step_is_no_sample_s(make_job, wishes, words, share):
    chosen = plan(job_of(make_job, gpus=8, **wishes)).chosen
    lines, told = costs.padding_lines(chosen, 200), costs.data(chosen)

    assert [words in line for line in lines] == [True] * (words is not None)
    assert ("own_tokens_share" in told) is share
    if "mean_len" in wishes and share:
        own = wishes["mean_len"] / computed_length(chosen.job, chosen.strategy)
        assert told["own_tokens_share"] == pytest.approx(own)
        assert not words or f"{1 - own:.0%}" in lines[0]


@pytest.mark.parametrize("padding_free", [False, True])
def test_the_interval_of_several_lengths_is_that_of_their_spread_alone(make_job, monkeypatch, padding_free):
    """With the spread that is said it is as of sequences of one length: attention is divided in both, or in none."""
    wishes = {"seq_len": 131072, "method": "lora", "chunked_loss": True, "activation_offloading": True}
    varied = {**wishes, "mean_len": 60000, "padding_free": padding_free}
    job, alike = (make_job("a100-80g", "llama-3.1-8b", training=one, cluster={"gpus": 8}) for one in (varied, wishes))
    strategy = at(job, micro_batch=2, accumulation=4, stage=2, checkpointing=True)
    wide = speed_interval(job, strategy)
    for name in ("LEAST_SPREAD", "MOST_SPREAD"):
        monkeypatch.setattr(steps, name, SPREAD)

    low, high = speed_interval(job, strategy)
    assert (low, high) == pytest.approx(speed_interval(alike, strategy))
    assert wide[0] < low < 1 < high < wide[1]


def test_attention_of_packed_samples_stops_at_their_borders(make_job):
    """It takes what as many sequences of the length take that it sees; all else is as of whole sequences."""
    whole, packed = job_of(make_job, seq_len=16384), job_of(make_job, seq_len=16384, packing=True, mean_len=1000)
    strategy = at(packed, micro_batch=1, accumulation=1, global_batch=1)
    length = seen_length(16384, 1000)
    short = job_of(make_job, seq_len=length)
    shorter = attrs.evolve(strategy, micro_batch=16, global_batch=16)
    told, before, other = cost(packed, strategy), cost(whole, strategy), cost(short, shorter)

    assert length == pytest.approx(1250, rel=0.02)
    assert told.tokens == before.tokens == 16384
    assert told.parts["attention"] < before.parts["attention"] / 4
    assert told.parts["attention"] / 16384 == pytest.approx(other.parts["attention"] / (16 * length), rel=0.03)
    assert told.parts["matrix products"] == before.parts["matrix products"]
    assert utilization(packed, strategy, 1.0) < utilization(whole, strategy, 1.0)


def test_a_mask_of_padding_makes_sdpa_slower_and_one_sequence_has_none(make_job):
    """At up to 4,000 tokens, whose kernel without a mask takes a tenth of a step; memory is more too."""
    asked = {"gpus": 8, "seq_len": 4000, "mean_len": 2000, "checkpointing": "none"}
    flash, sdpa = (job_of(make_job, attention=attention, **asked) for attention in ("flash", "sdpa"))
    several, one = (at(flash, micro_batch=size, accumulation=1, stage=2, checkpointing=False) for size in (4, 1))
    flash_4, sdpa_4, flash_1, sdpa_1 = (cost(job, strategy) for strategy in (several, one) for job in (flash, sdpa))

    assert sdpa_1.parts["attention"] == flash_1.parts["attention"]
    assert 3 < sdpa_4.parts["attention"] / flash_4.parts["attention"] < 4.5
    assert sdpa_4.seconds > 1.1 * flash_4.seconds
    assert estimate(sdpa, one).gpu.peak_bytes == estimate(flash, one).gpu.peak_bytes
    assert estimate(sdpa, several).gpu.peak_bytes > 1.05 * estimate(flash, several).gpu.peak_bytes


@pytest.mark.parametrize(("mean_len", "masked"), [(None, False), (4000, False), (3999, True)])
def test_samples_that_are_all_as_long_have_no_padding(make_job, mean_len, masked):
    """transformers leaves a mask out where all of it is ones."""
    job, alike = (job_of(make_job, attention="sdpa", gpus=8, seq_len=4000, mean_len=mean) for mean in (mean_len, None))
    several = at(job, micro_batch=4, accumulation=1, stage=2)

    assert (cost(job, several).parts["attention"] > 2 * cost(alike, several).parts["attention"]) is masked
    assert (estimate(job, several).gpu.peak_bytes > estimate(alike, several).gpu.peak_bytes) is masked
    assert ("--attention flash" in {change.option for change in program_changes(job)}) is masked


@pytest.mark.parametrize("attention", ["flash", "sdpa"])
def test_some_micro_batches_reach_a_window_and_others_do_not(make_job, attention):
    """Gemma 3's is of 1,024 tokens; what all batches of a layout have in common is asked by its parts."""
    training = {"seq_len": 4096, "mean_len": 800, "attention": attention, "method": "lora"}
    job = make_job("a100-80g", "gemma-3-4b", training=training, cluster={"gpus": 1})
    short, long = (at(job, micro_batch=size, accumulation=1, stage=2) for size in (1, 8))

    assert computed_length(job, short) < job.model.sliding_window < computed_length(job, long)
    assert len(passes(job, short).order) < len(passes(job, long).order)
    assert min(cost(job, strategy).seconds for strategy in (short, long, short)) > 0


def test_a_window_gives_sdpa_a_mask_from_its_length_on(make_job):
    """Mistral's first has one of 4,096 tokens."""
    parts = {}
    for tokens in (4095, 4096):
        for attention in ("flash", "sdpa"):
            job = make_job("a100-80g", "mistral-7b", training={"seq_len": tokens, "attention": attention})
            strategy = at(job, micro_batch=1, accumulation=1, stage=3)
            parts[tokens, attention] = cost(job, strategy).parts["attention"]

    assert parts[4095, "sdpa"] == parts[4095, "flash"]
    assert 3 < parts[4096, "sdpa"] / parts[4096, "flash"] < 4.5


def test_without_padding_a_gpu_waits_for_the_most_tokens_in_all(make_job):
    """A sum of several spreads less than each of them; one GPU waits for none."""
    job, alone = (job_of(make_job, gpus=gpus, mean_len=MEAN, padding_free=True) for gpus in (8, 1))
    one, four = (computed_length(job, at(job, micro_batch=size, accumulation=1, stage=2)) for size in (1, 4))
    padded = job_of(make_job, gpus=8, mean_len=MEAN)

    assert computed_length(alone, at(alone, micro_batch=4)) == MEAN
    # Of eight numbers of a normal law the largest is 1.42 standard deviations above the mean.
    assert one == pytest.approx(MEAN * (1 + 0.5 * 1.424 * (1 - MEAN / 4096) ** 0.5), abs=1)
    assert four - MEAN == pytest.approx((one - MEAN) / 2, abs=1)
    for size in (2, 4, 8):
        strategy = at(job, micro_batch=size, accumulation=2, stage=2)
        assert computed_length(job, strategy) < computed_length(padded, strategy)
        assert cost(job, strategy).parts["attention"] < cost(padded, strategy).parts["attention"]


def test_packed_samples_of_unknown_length_may_be_faster_than_is_said(make_job):
    unknown, whole = job_of(make_job, packing=True), job_of(make_job)
    strategy = at(unknown, micro_batch=1)
    (low, high), (least, most) = speed_interval(unknown, strategy), speed_interval(whole, strategy)

    assert cost(unknown, strategy).seconds == cost(whole, strategy).seconds
    assert (low, high > most) == (least, True)


def test_samples_as_long_as_their_sequences_are_neither_padded_nor_divided(make_job):
    plain = job_of(make_job, gpus=8)
    strategy = at(plain, micro_batch=2)
    same = {"mean_len": 4096}
    for wishes in (same, {**same, "packing": True}, {**same, "padding_free": True}, {"padding_free": True}):
        assert cost(job_of(make_job, gpus=8, **wishes), strategy) == cost(plain, strategy)
