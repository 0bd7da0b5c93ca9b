"""What no simulated peak shows, counted by hand: whole elements, moments below the highest, rules on a few tensors."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import attrs
import pytest
from test_memory import BUFFERS, highest, strategy

from dsgen.families import family_of
from dsgen.families.parameters import parameter_count, parameters
from dsgen.memory import estimate, parts
from dsgen.memory.activations import AT, BACKWARD, FORWARD, Position, activations
from dsgen.memory.backward import epilogue, reductions
from dsgen.memory.buckets import larger_of
from dsgen.memory.events import Step, first_asked, unasked
from dsgen.memory.gathered import EMBEDDING, Gathered, gathered
from dsgen.memory.modules import modules
from dsgen.memory.moments import ResidentStates
from dsgen.memory.numbers import partitioned
from dsgen.memory.parts import _lines
from dsgen.memory.runs import Run
from dsgen.memory.stepping import stepped
from dsgen.memory.together import together
from dsgen.memory.trained import BEFORE, Trained, trained
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


@pytest.mark.parametrize("bucket", [50_000_000, 60_000_000])
def test_in_whatever_block_gradients_wait_until_the_next_does_not_fit_into_the_bucket(make_job, bucket):
    """Both buckets are nearly full in a block that is neither the first nor the last of its kind."""
    job = make_job(model="125m")
    buffers = BUFFERS._replace(reduce_bucket=bucket, contiguous=False)
    widest = max(one.numel for one in parameters(job.model) if one.layer)

    both = together(Run(job.model, job.training, 16, "bf16", 1, False, True), buffers, False, True)

    assert bucket - widest < max(waiting for *_, waiting in both.backward) / 2 <= bucket


@pytest.mark.parametrize("group", [2, 8])
def test_beside_hpz_s_copies_stage_3_gathers_whole_tensors(make_job, group):
    """One at a time where nothing is fetched ahead and nothing stays for a later use."""
    model = make_job(model="125m").model
    sizes = {0, *(one.numel for one in parameters(model))}

    there = gathered(Step(model, "full", 0, (), 1), (0, 0, 0, 0), group=group)

    assert {elements - there.copies.get(place, 0) for place, elements in there.places.items()} == sizes
    assert {elements - there.copies[place] for place, elements in there.uses.items()} <= sizes


def test_what_autotp_has_split_takes_a_place_when_it_is_gathered_unless_there_is_one_replica(make_job):
    """Halves of the matrices; norms and embedding are not split."""
    model = make_job(model="125m").model
    matrix, norm = (model.hidden_size**2, model.hidden_size)

    def sizes(**one_replica):
        return set(gathered(Step(model, "full", 0, (), 2, **one_replica), (0, 0, 0, 0)).places.values())

    assert sizes(free=True) == {0, norm, model.vocab_size * model.hidden_size}
    assert matrix // 2 in sizes()


@pytest.mark.parametrize("reads", [False, True])
def test_attention_that_reads_the_type_of_a_weight_is_gathered_with_it(make_job, reads):
    """That of its first linear layer, which is gathered with its own module too."""
    made = modules(make_job(model="125m").model, "full", 0, (), 1, reads=reads)
    block = {one.name: one.tensors for one in made.parts[1][1]}

    assert block["self_attn"] == (block["self_attn.q_proj"] if reads else ())
    assert [one.read for one in block["self_attn.q_proj"]] == [reads]


def test_the_peak_of_stage_2_is_in_the_first_block_behind_this_rank_s_own_gradients(make_job):
    """The first of eight ranks has the embedding and the first blocks, whose backward is the last."""
    job = make_job(training={"seq_len": 2048})
    model = job.model
    own = parameter_count(model) / 8
    blocks = (own - model.vocab_size * model.hidden_size) // sum(one.numel for one in parameters(model) if one.layer)
    attention = job.training.attention
    course = activations(model, precision="bf16", attention=attention, seq_len=2048, checkpointing=True).backward
    first = [one for one in course if (one.where, one.blocks) == ("block", model.layers - 1)]

    most = highest(job, strategy(2, checkpointing=True), "backward")

    assert most["gradients"] >= 2 * own
    alone = sum(max(first, key=lambda one: one.total(1) - one.fresh).activations)
    assert most["activations"] == alone + (blocks - 1) * 2 * 2048 * model.hidden_size


@pytest.mark.parametrize("name", ["opt-125m", "125m"])
def test_when_backward_has_ended_at_stage_0_all_gradients_are_there_once(make_job, name):
    """That of OPT's head too, which is its embedding."""
    job = make_job(model=name)

    moments = [one.parts for one in parts(job, strategy(0), BUFFERS, 1).moments if one.phase == "backward"]

    flat = {one["gradients"][0] for one in moments if one["communication buckets"][0]}
    assert flat == {2 * parameter_count(job.model)}
    head = trained(job.model, "full", 0, (), 1)
    assert (head.head, head.tied) == (job.model.vocab_size * job.model.hidden_size, name == "opt-125m")


@pytest.mark.parametrize(("name", "seconds"), [("llama-2-7b", set()), ("mixtral-8x7b", {("mlp", 2)})])
def test_experts_alone_multiply_twice(make_job, name, seconds):
    """By the third of their tensors the second time."""
    made = modules(make_job(model=name).model, "full", 0, (), 1)

    assert {(one.name, one.second) for _, part in made.parts for one in part if one.second} == seconds


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize(("hardware", "times"), [("a100-80g", 2), ("generic-24g", 1)])
def test_weights_are_flattened_beside_themselves_where_the_gpu_has_room_for_both(make_job, hardware, times, stage):
    """13.5 GB of a model of 7B; else in the node's RAM."""
    job = make_job(hardware, training={"seq_len": 128})

    init = [one.parts["weights"][0] for one in parts(job, strategy(stage), BUFFERS, 1).moments if one.phase == "init"]

    assert max(init) == pytest.approx(times * 2 * parameter_count(job.model), rel=1e-3)


@pytest.mark.parametrize(
    ("optimizer", "stage", "states", "gradients"),
    [
        ("AdamW", 0, 8, 4),  # the wrapper steps once with fp32 gradients of nothing
        ("Lion", 0, 4, 4 + 2),  # that for other optimizers gives the weights some too
        ("SGD", 0, 0, 4 + 2),
        ("AdamW", 1, 0, 4 / 8),
        ("Lion", 2, 0, 4 / 8),
        ("Adagrad", 1, 2 + 4 / 8, 4 / 8),  # torch makes its states for the weights that it is given, then for its part
    ],
)
def test_init_makes_an_optimizer_s_states_at_stage_0_alone(make_job, optimizer, stage, states, gradients):
    """Bytes a parameter, on one of eight ranks."""
    job = make_job(model="125m", training={"optimizer": optimizer})
    count = parameter_count(job.model)

    *_, last = (one.parts for one in parts(job, strategy(stage), BUFFERS, 1).moments if one.phase == "init")

    assert last.get("optimizer states", (0, 0))[0] == pytest.approx(states * count, rel=1e-6)
    assert last["gradients"][0] == pytest.approx(gradients * count, rel=1e-6)


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


def reduced(numels: tuple[int, ...], **states: object) -> SimpleNamespace:
    """States of the first of two ranks in 16 bits, the optimizer in RAM, of tensors of one block."""
    tensors = Trained(numels, (0,) * len(numels), tuple(itertools.accumulate(numels)), max(numels), 0, False)
    return SimpleNamespace(size=2, wide=4, listed=0, tensors=tensors, ranks=2, on_gpu=False, **states)


def test_after_backward_stage_1_copies_a_bucket_flat_beside_what_has_not_gone():
    """Eight gradients of 10 elements fit into one bucket of 80: nothing is left but it and its copy."""
    buffers = BUFFERS._replace(reduce_bucket=80)

    before, copied = epilogue(reduced((10,) * 8), 1, buffers)

    assert (before.gradients, before.buckets, before.temporaries) == (2 * 80, 2 * 80, 0)
    assert (copied.gradients, copied.buckets, copied.temporaries) == (0, 2 * 80 + 2 * 80, 0)


def test_beside_backward_stage_1_ends_with_the_norm_of_the_largest_piece_beside_all_large_gradients():
    """Of 100, 60 and 40 elements the first rank has the 100, and the others are left where they were made."""
    buffers = BUFFERS._replace(reduce_bucket=20, overlap_comm=True)
    states = reduced((100, 60, 40), kept=100)

    *_, last = reductions(states, 1, buffers, False, SimpleNamespace(runs=((1, ()),)))

    assert (last.gradients, last.buckets, last.temporaries) == (2 * (60 + 40), 2 * 2 * 20, 8 * 100)


def test_the_first_step_gathers_modules_of_several_tensors_into_a_buffer_and_out_of_it(make_job):
    """A linear layer of OPT and its bias: twice the elements; Llama's have no bias."""

    def found(name):
        job = make_job(model=name)
        return together(Run(job.model, job.training, 128, "bf16", 1, False, True), BUFFERS, False, True).first_step

    opt = make_job(model="opt-125m").model
    layer = opt.hidden_size * opt.ffn_size
    assert {alive.where for alive, *_ in found("opt-125m")} == {"block"}
    assert {elements for _, elements, _ in found("opt-125m")} == {
        2 * 2 * (layer + bias) for bias in (opt.hidden_size, opt.ffn_size)
    }
    assert found("llama-2-7b") == ()


def test_muon_steps_its_matrices_before_the_updates_are_gone(make_job):
    """At stages 1 and 2, in 16 bits: its updates wait beside the flat share of the first group, and of no other."""
    shapes = ((8, 8), (8, 4))
    numels = (64, 32, 10)
    tensors = attrs.evolve(reduced(numels).tensors, shapes=(*shapes, ()), split=2)
    states = reduced(numels, kept=106, own=106, updates=0, swaps=False)
    states.tensors, states.ranks, states.on_gpu = tensors, 1, True
    both = SimpleNamespace(active=SimpleNamespace(asked=(0, 0)))

    made = stepped("Muon", 1, "bf16", BUFFERS, states, both, ResidentStates(0, 0, 0, 0, 0))

    gradients = [one.parts["gradients"][0] for one in made]
    own, first, second = 2 * 106, 2 * 96 + (2 + 4) * 96, 4 * 10  # one tensor is flat already
    assert gradients == [own + 2 * 96, own + first, own + second]


@pytest.mark.parametrize(
    ("method", "embeddings", "checkpointing", "asks"),
    [
        ("full", False, False, True),
        ("lora", True, False, True),
        ("lora", False, True, True),
        ("lora", False, False, False),
    ],
)
def test_the_first_block_s_matrices_have_a_backward_unless_nothing_before_them_asks_for_one(
    make_job, method, embeddings, checkpointing, asks
):
    """Adapters alone leave the embedding frozen, so what first reads its output saves no weight."""
    step = Step(make_job().model, method, 8, ("all-linear",), 1, embeddings, checkpointing)

    assert (unasked(step) == frozenset()) is asks
    assert first_asked(step) == 0


@pytest.mark.parametrize(
    ("method", "embeddings", "checkpointing", "first"),
    [("lora", False, False, 3), ("lora", True, False, 0), ("lora", False, True, 0), ("full", False, False, 0)],
)
def test_backward_ends_at_the_first_adapter_unless_the_embedding_asks_for_a_gradient(
    make_job, method, embeddings, checkpointing, first
):
    """DeepSeek-V3's routers begin in its fourth block."""
    model = make_job(model="deepseek-v3").model

    assert first_asked(Step(model, method, 8, ("gate",), 1, embeddings, checkpointing)) == first
    if not (embeddings or checkpointing):  # whoever says nothing means neither
        assert first_asked(Step(model, method, 8, ("gate",), 1)) == first
