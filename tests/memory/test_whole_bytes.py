"""Bytes of states are whole elements, peaks those of the moments they come from, whatever a layout is."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import attrs
import pytest
from test_memory import BUFFERS, strategy

from dsgen.families import family_of
from dsgen.families.parameters import parameter_count, parameters
from dsgen.memory import estimate, parts
from dsgen.memory.activations import AT, BACKWARD, FORWARD, Position
from dsgen.memory.buckets import larger_of
from dsgen.memory.gathered import EMBEDDING, Gathered
from dsgen.memory.numbers import partitioned
from dsgen.memory.parts import _lines
from dsgen.memory.runs import Run
from dsgen.memory.trained import BEFORE, Trained
from dsgen.strategies.buffers import choose

STATES = (
    "weights", "fp32 master weights", "optimizer states", "offload buffers", "gathered parameters", "gradients",
    "communication buckets",
)  # fmt: skip
LAYOUTS = [
    *({"stage": stage} for stage in (0, 1, 2, 3)),
    *({"stage": stage, "offload_optimizer": "cpu"} for stage in (1, 2, 3)),
    {"stage": 3, "offload_optimizer": "cpu", "offload_param": "cpu"},
    {"stage": 3, "offload_optimizer": "nvme", "offload_param": "nvme"},
]


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD", "Adagrad", "Muon"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_no_state_has_an_odd_number_of_bytes(make_job, optimizer, layout):
    """An element of a weight, a gradient or a moment has 2 bytes or 4."""
    job = make_job(training={"seq_len": 128, "optimizer": optimizer})
    chosen = strategy(**layout)
    if chosen.stage == 0 and optimizer == "Adagrad":
        chosen = attrs.evolve(chosen, precision="fp32")

    moments = parts(job, chosen, BUFFERS, 2).moments

    odd = {(one.phase, part) for one in moments for part in STATES if one.parts.get(part, (0, 0))[0] % 2}
    assert moments
    assert odd == set()


@pytest.mark.parametrize("tokens", [128, 32768])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_peak_is_that_of_the_highest_moment_at_every_micro_batch(make_job, tokens, layout):
    job = make_job(model="125m", training={"seq_len": tokens})
    chosen = strategy(**layout, checkpointing=True, buffers=choose(job, layout["stage"], 1))

    counted = parts(job, chosen, chosen.buffers, 1)

    for micro_batch in (1, 2, 7, 64):
        assert counted.peak(micro_batch) == max(one.total(micro_batch) for one in counted.moments)


def test_only_lines_that_another_is_not_above_everywhere_make_a_peak():
    """By what a sequence adds, and what is there without one."""
    moments = [SimpleNamespace(each=each, fixed=fixed) for each, fixed in ((8, 7), (10, 5), (6, 6), (8, 3), (1, 9))]

    assert _lines(moments) == ((5, 10), (7, 8), (9, 1))


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_weights_below_stage_3_are_all_of_them_to_the_byte(make_job, stage):
    job = make_job(training={"seq_len": 128})

    moments = parts(job, strategy(stage), BUFFERS, 1).moments

    weights = {one.parts["weights"][0] for one in moments if one.phase in ("forward", "backward", "step")}
    assert weights == {2 * parameter_count(job.model) + family_of(job.model).buffers(job.model)}


def test_a_phase_says_the_ram_of_its_node(make_job):
    """Loading is over when training begins."""
    job, chosen = make_job(), strategy(2, offload_optimizer="cpu")
    counted = parts(job, chosen, BUFFERS, 1)

    said = {phase.phase: phase.host for phase in estimate(job, chosen, counted).phases}

    trains = ("forward", "backward", "step")
    assert said == {name: counted.host.phases["training" if name in trains else "load"] for name in said}
    assert set(trains) < set(said)


def test_in_ram_a_rank_keeps_its_summed_gradients_at_stage_2_too(make_job):
    """From the second pass of a step on: 16-bit ones of the tensors that reach into its share."""
    job = make_job()

    def gradients(passes):
        found = parts(job, strategy(2, offload_optimizer="cpu", accumulation=passes), BUFFERS, passes)
        return found.host.phases["training"]["gradients"]

    assert gradients(2) - gradients(1) == pytest.approx(2 * parameter_count(job.model), rel=0.1)


def test_gradients_that_wait_where_they_were_made_count_at_stage_3_wherever_the_optimizer_is(make_job):
    job = make_job(training={"seq_len": 128})
    peaks = {}
    for place, contiguous in itertools.product(("none", "cpu"), (True, False)):
        buffers = BUFFERS._replace(reduce_bucket=10**9, contiguous=contiguous)
        chosen = strategy(3, offload_optimizer=place, checkpointing=True, buffers=buffers)
        peaks[place, contiguous] = parts(job, chosen, buffers, 1).peak(1)

    assert peaks["none", True] != peaks["none", False]
    assert peaks["cpu", True] != peaks["cpu", False]


def test_gradients_larger_than_a_bucket_are_those_handed_over_that_another_rank_owns():
    """Backward makes the last tensor first: of 10, 30 and 40 elements the first rank of eight has 10 alone."""
    numels = (10, 30, 40)
    tensors = Trained(numels, (BEFORE, 0, 1), tuple(itertools.accumulate(numels)), 40, 0, False)

    def larger(bucket, handed):
        return larger_of(tensors, bucket, 8, ((2, ()),), handed)

    assert [larger(100, handed) for handed in (0, 40, 80)] == [0, 0, 0]
    assert [larger(35, handed) for handed in (0, 39, 40, 70, 80)] == [0, 0, 40, 40, 40]
    assert [larger(20, handed) for handed in (0, 39, 40, 70, 80)] == [0, 0, 40, 70, 70]
    assert larger(5, 80) == 70


@pytest.mark.parametrize(
    ("changes", "precision", "told", "reads"),
    [
        ({}, "fp32", True, True),
        ({}, "bf16", True, False),  # it is told the type there
        ({}, "fp32", False, False),  # nothing is gathered
        ({"attention": "eager"}, "fp32", True, False),
        ({"method": "lora"}, "fp32", True, True),
        ({"method": "qlora"}, "fp32", True, False),  # a weight in 4 bits tells no type
    ],
)
def test_flash_attention_reads_a_weight_to_learn_the_type(make_job, changes, precision, told, reads):
    job = make_job(training={"attention": "flash"})
    training = attrs.evolve(job.training, **changes)

    assert Run(job.model, training, 128, precision, 1, False, told).reads is reads


def test_of_hpz_a_gradient_s_copies_are_its_own_or_those_where_most_is_gathered():
    block, other = Position(1, AT), Position(2, AT)
    places = {(0, BACKWARD, *block): 5, (0, BACKWARD, *other): 9, (0, FORWARD, *other): 99}
    copies = {7: 3, (BEFORE, BACKWARD, *EMBEDDING): 4, (0, BACKWARD, *block): 1, (0, BACKWARD, *other): 2}
    found = Gathered(places, {}, 0, {}, {}, {}, copies)

    assert found.copied(0, BACKWARD, block, None) == 1
    assert found.copied(0, BACKWARD, block, 7) == found.copied(BEFORE, BACKWARD, block, 7) == 3
    assert found.copied(0, BACKWARD, block, 8) == 2
    assert found.copied(BEFORE, BACKWARD, block, 8) == found.copied(BEFORE, BACKWARD, block, None) == 4
    assert found.copied(1, BACKWARD, block, 8) == 0


def test_four_weights_in_4_bits_are_one_element_for_stage_3(make_job):
    """Rounded up; what is no matrix of a block is not packed."""
    llama = make_job().model
    matrix, norm = (
        next(one for one in parameters(llama) if one.layer and one.matrix is kind) for kind in (True, False)
    )
    head = next(one for one in parameters(llama) if one.kind == "head")
    odd = matrix._replace(shape=(3, 5))

    assert partitioned(llama, odd, 1, True) == 4
    assert [partitioned(llama, one, 1, True) for one in (norm, head)] == [norm.numel, head.numel]
    assert partitioned(llama, odd, 1, False) == 15
