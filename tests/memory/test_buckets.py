"""Gradients in DeepSpeed's buckets, and what stage 3 gathers: sequences worked out by hand from its code."""

from __future__ import annotations

import itertools

import attrs
import pytest

from dsgen.families.parameters import lora_parameters, parameter_count
from dsgen.memory.activations import AT, BACKWARD, FETCHED, FORWARD, Position
from dsgen.memory.buckets import (
    Flush,
    _ends,
    _flushes,
    arrivals,
    flat_chunk,
    flushes,
    kept_from,
    larger_of,
)
from dsgen.memory.cuts import widest_of
from dsgen.memory.events import Step
from dsgen.memory.filled_buckets import filled_buckets
from dsgen.memory.gathered import gathered
from dsgen.memory.shares import flattened, partition_numel, scattered
from dsgen.memory.trained import AFTER, BEFORE, Trained, trained
from dsgen.strategies.buffers import Buffers

BUFFERS = Buffers(
    reduce_bucket=100,
    prefetch=0,
    persistence=0,
    max_live=10**12,
    max_reuse=0,
    sub_group=10**9,
    swap_buffers=4,
    overlap_comm=False,
)


def tensors(*numels: int, blocks: tuple[int, ...] | None = None) -> Trained:
    """Trained tensors of these sizes, each a block of its own unless `blocks` says more."""
    return Trained(
        numels, blocks or tuple(range(len(numels))), tuple(itertools.accumulate(numels)), max(numels), 0, False
    )


def test_a_bucket_is_reduced_when_the_next_gradient_does_not_fit():
    """40 + 50 fit into 100; the 30 that comes then does not, and waits outside while the 90 are reduced."""
    found = tensors(20, 30, 50, 40)

    first, last = flushes(found, 100, 1, ())

    assert (first.block, first.elements, first.current) == (1, 90, 30)
    assert (last.block, last.elements, last.current) == (BEFORE, 50, 0)
    assert first.copied == last.copied == 0  # all of it belongs to one rank: one slice, which is not copied


def test_a_bucket_that_two_ranks_share_is_copied_flat():
    """Shares of 70 end inside the second tensor: the bucket of the last three holds slices of two ranks."""
    found = tensors(40, 40, 40, 20)

    shared, alone = flushes(found, 100, 2, ())

    assert (shared.elements, shared.copied) == (100, 100)
    assert (alone.elements, alone.copied) == (40, 0)


@pytest.mark.parametrize(
    ("numels", "ranks", "calls", "late"),
    [
        ((20, 30, 50, 40), 1, 2, 50),  # 90, and the 50 that are left when backward is over
        ((20, 30, 50, 10), 1, 2, 110),  # 90 that the embedding's 20 drive out, and these alone
        ((250, 30, 50, 40), 0, 3, 280),  # the embedding is larger than a bucket, and the 30 wait for it
        ((250, 30, 50, 40), 4, 4, 280),  # in pieces: 94 of each of two ranks are more than a bucket, and 62 are left
        ((20, 30), 1, 1, 50),  # adapters that fill no bucket leave when backward is over
    ],
)
def test_buckets_of_one_backward(numels: tuple[int, ...], ranks: int, calls: int, late: int) -> None:
    blocks = (BEFORE, *range(len(numels) - 1))

    made = filled_buckets(tensors(*numels, blocks=blocks), 100, ranks)

    assert (made.calls, made.late, made.elements) == (calls, late, sum(numels))


@pytest.mark.parametrize(
    ("numels", "ranks", "larger", "flattened"),
    [
        ((20, 30, 50, 40), 1, 0, 0),  # one rank: every bucket is one slice
        ((40, 40, 40, 20), 2, 0, 100),  # shares of 70 end inside the second tensor, which is in the first bucket
        ((250, 30, 50, 40), 4, 250, 188 + 90),  # shares of 94 end inside the embedding, and inside the 50
        ((250, 30, 50, 40), 0, 250, 0),
    ],
)
def test_what_a_bucket_is_put_together_of(numels: tuple[int, ...], ranks: int, larger: int, flattened: int) -> None:
    blocks = (BEFORE, *range(len(numels) - 1))

    made = filled_buckets(tensors(*numels, blocks=blocks), 100, ranks)

    assert (made.larger, made.flattened) == (larger, flattened)


@pytest.mark.parametrize(
    ("numels", "blocks", "bucket", "begun"),
    [
        ((60, 30, 60, 30, 60, 30), (0, 0, 1, 1, 2, 2), 100, 2),  # 30, 60 are a bucket: the next block's 30 empties it
        ((50, 40, 40, 30, 50, 40), (0, 0, 0, 1, 1, 1), 100, 0),  # 40, 50; 30, 40; 40, 50: a block's second empties it
        ((6000, 3000, 1, 6000, 3000, 1), (0, 0, 0, 1, 1, 1), 9500, 1),  # a norm that came before it changes nothing
    ],
)
def test_calls_that_make_room_for_the_first_matrix_of_a_block(
    numels: tuple[int, ...], blocks: tuple[int, ...], bucket: int, begun: int
) -> None:
    made = filled_buckets(tensors(*numels, blocks=blocks), bucket, 1)

    assert made.begun == begun


def test_own_gradients_are_kept_whole_from_their_first_reduction_on():
    """Rank 0 of six owns the first 28 elements, which reach into two tensors of 20: it keeps 40 of them."""
    found = tensors(20, 20, 60, 60)

    made = flushes(found, 60, 6, ())

    assert [flush.own for flush in made] == [0] * len(made)  # the own tensors are the last to be reduced
    assert [(flush.elements, flush.own) for flush in flushes(found, 60, 6, None)] == [(40, 0), (60, 40)]
    assert [flush.begun for flush in flushes(found, 60, 6, None)] == [40, 0]
    assert kept_from(found, 60, 6, ()) == 160  # when the last of them has been made


def test_a_gradient_larger_than_the_bucket_is_reduced_alone():
    found = tensors(10, 300, 10)

    made = flushes(found, 100, 1, ())

    assert [flush.elements for flush in made] == [10, 300]


def test_stage_3_pads_every_tensor_to_whole_shares():
    """Over 8 ranks 10 elements become 16, and 20 become 24; one tensor that divides needs no copy."""
    found = tensors(10, 20)

    assert partition_numel(found, 8) == 2 + 3
    assert [flush.copied for flush in scattered(found, 100, 8, ())] == [16 + 24]
    assert [flush.copied for flush in scattered(tensors(64), 100, 8, ())] == [0]


def test_stage_0_flattens_tensors_until_they_are_more_than_its_chunk():
    million = 10**6

    assert flat_chunk(tensors(300 * million, 300 * million, 100 * million)) == 600 * million
    assert flat_chunk(tensors(600 * million, 100 * million)) == 0  # each chunk is a single tensor, which is not copied
    # engine.py, buffered_allreduce_fallback: it flattens once there are more than 500,000,000.
    assert flat_chunk(tensors(300 * million, 200 * million, 100 * million)) == 600 * million
    assert flat_chunk(tensors(300 * million, 200 * million + 1, 100 * million)) == 500 * million + 1


def test_gradients_come_in_the_order_of_backward():
    """The block says that its second tensor's gradient is made first; around it the order is reversed."""
    found = Trained((5, 1, 2, 1, 2, 7), (BEFORE, 0, 0, 1, 1, AFTER), (5, 6, 8, 9, 11, 18), 7, 0, False)

    order = arrivals(found, ((2, (1, 2)),))

    assert [index for index, _ in order] == [5, 3, 4, 1, 2, 0]
    assert [place for _, place in order] == [0, 0, 1, 0, 1, 0]


@pytest.mark.parametrize("name", ["7b", "gpt2", "mixtral-8x7b", "deepseek-v3", "llama-3.2-1b", "falcon-7b"])
def test_the_tensors_of_a_model_are_all_of_its_parameters(make_job, name):
    model = make_job(model=name).model

    assert trained(model, "full", 16, ("all-linear",), 1).elements == parameter_count(model)
    assert trained(model, "lora", 16, ("all-linear",), 1).elements == lora_parameters(model, 16, ("all-linear",))


def live(job, *, checkpointing=False, alone=False, chunked=False, **changes):
    """What is gathered of a model of three blocks."""
    model = attrs.evolve(job.model, layers=3)
    buffers = BUFFERS._replace(**changes)
    limits = (buffers.persistence, buffers.prefetch, buffers.max_live, buffers.max_reuse)
    return model, gathered(Step(model, "full", 16, ("all-linear",), 1, False, checkpointing, chunked), limits, alone)


AT_HEAD = (AFTER, FORWARD, Position(0, AT))


def at_matrices(found, way, block=1):
    """Elements at each matrix of a block."""
    matrices = sorted(before for *where, before, stage in found.places if (*where, stage) == (block, way, AT))
    return [found.at(block, way, Position(before, AT)) for before in matrices]


def test_without_fetching_ahead_or_reuse_one_tensor_is_gathered_at_a_time(make_job):
    model, found = live(make_job(model="7b"))
    square, wide = model.hidden_size**2, model.ffn_size * model.hidden_size

    assert found.at(*AT_HEAD) == model.vocab_size * model.hidden_size
    assert at_matrices(found, BACKWARD) == at_matrices(found, FORWARD) == [square] * 4 + [wide] * 3
    assert found.at(BEFORE, BACKWARD) == model.vocab_size * model.hidden_size


def test_fetching_ahead_gathers_all_of_a_model_that_may_live(make_job):
    model, found = live(make_job(model="7b"), prefetch=50_000_000)

    assert found.at(*AT_HEAD) == parameter_count(model)


def test_the_limit_of_live_parameters_is_crossed_by_less_than_one_tensor(make_job):
    model, found = live(make_job(model="7b"), prefetch=50_000_000, max_live=300_000_000)

    assert 300_000_000 <= found.at(*AT_HEAD) < 300_000_000 + model.vocab_size * model.hidden_size


def test_persistent_tensors_are_not_gathered(make_job):
    _, found = live(make_job(model="7b"), persistence=10**12)

    assert set(found.places.values()) == {0}


def test_a_block_that_runs_forward_again_keeps_each_weight_until_its_backward(make_job):
    """Its last matrix asked for that and is there once; the others are gathered for backward a second time."""
    model, found = live(make_job(model="7b"), checkpointing=True, persistence=4096)
    square, wide = model.hidden_size**2, model.ffn_size * model.hidden_size
    kept = [square, 2 * square, 3 * square, 4 * square, 4 * square + wide, 4 * square + 2 * wide]

    assert at_matrices(found, BACKWARD)[:6] == [
        before + own for before, own in zip(kept, [square] * 4 + [wide] * 2, strict=True)
    ]
    assert at_matrices(found, BACKWARD)[6] == 4 * square + 3 * wide
    assert found.uses[0] == model.vocab_size * model.hidden_size


def test_a_gradient_is_handed_over_when_the_second_view_of_its_weight_is_gone(make_job):
    model, found = live(make_job(model="7b"), checkpointing=True, persistence=4096)
    square, query = model.hidden_size**2, 1  # the tensor behind the embedding

    assert (found.at(0, BACKWARD, Position(0, AT)), found.uses[query]) == (2 * square, square)


def test_a_module_without_tensors_fetches_ahead_too(make_job):
    """Between the two halves of a gated feed-forward part is a function, which is a module."""
    _, found = live(make_job(model="7b"), prefetch=1)

    assert found.at(1, FORWARD, Position(5)) > found.at(1, FORWARD, Position(4, AT)) / 2


def test_experts_are_gathered_together_and_copied_out_of_one_buffer(make_job):
    model, found = live(make_job(model="mixtral-8x7b"), persistence=8 * 4096)  # the router stays
    experts = 3 * model.experts * model.expert_ffn_size * model.hidden_size
    coming, there = (found.at(0, FORWARD, Position(4, stage)) for stage in (FETCHED, AT))

    assert (coming, there) == (2 * experts, experts)


def test_a_single_rank_needs_no_buffer_to_gather_into(make_job):
    _, together = live(make_job(model="7b"), prefetch=50_000_000)
    _, alone = live(make_job(model="7b"), prefetch=50_000_000, alone=True)

    assert max(alone.places.values()) < max(together.places.values())


def test_a_chunked_loss_gathers_the_head_with_the_model(make_job):
    model, found = live(make_job(model="7b"), chunked=True)
    head = model.vocab_size * model.hidden_size

    assert at_matrices(found, FORWARD) == [head + most for most in at_matrices(live(make_job(model="7b"))[1], FORWARD)]


def test_a_gradient_larger_than_the_bucket_stays_where_it_was_made():
    found = Trained((5, 30, 2), (BEFORE, 0, 0), (5, 35, 37), 30, 0, False)

    made = scattered(found, 10, 2, ((1, (2, 30)),))

    assert [(flush.larger, flush.current) for flush in made] == [(0, 30), (30, 5), (0, 0)]


def test_a_sub_group_ends_with_the_tensor_that_fills_it():
    found = Trained((6, 6, 20, 2), (0, 0, 0, 0), (6, 12, 32, 34), 20, 0, False)

    assert flattened(found, 2, 10**9) == (17, 17)
    assert flattened(found, 2, 5) == (10, 6)  # 3 + 3, 10 alone, 1 alone


def test_a_flat_copy_has_pieces_until_they_are_more_than_a_bucket():
    """A gradient of 300 begins 5 into shares of 40: its pieces are copied two by two, or not at all."""
    found = tensors(5, 300)

    alone = next(flush for flush in flushes(found, 50, 8, ()) if flush.larger)

    assert alone.copied == 80  # 40 + 40: more than 50
    assert next(flush for flush in flushes(found, 30, 8, ()) if flush.larger).copied == 0  # each piece alone is more


def test_stage_1_leaves_only_larger_gradients_of_other_ranks():
    """Of four tensors backward hands over the last first; those of 60 are larger than the bucket of 50."""
    found = tensors(60, 20, 60, 60)

    # Of seven ranks the first has a share of 30, of two 100: that reaches into three of the tensors.
    assert [larger_of(found, 50, 7, (), handed) for handed in (0, 60, 120, 140, 200)] == [0, 60, 120, 120, 120]
    assert [larger_of(found, 50, 2, (), handed) for handed in (0, 60, 120, 140, 200)] == [0, 60, 60, 60, 60]
    assert larger_of(found, 50, 1, (), 200) == 0


def test_the_largest_own_piece_ends_with_the_share():
    found = tensors(10, 100, 30)

    assert [widest_of(found, ranks) for ranks in (28, 14, 4, 1)] == [6, 10, 26, 100]  # shares of 6, 10, 36 and 140


def test_a_reduction_outdoes_only_those_at_its_own_place():
    """Three equal blocks whose gradients fill the bucket at another place each time: all three count."""
    found = tensors(*(30, 20, 20) * 3, blocks=(0, 0, 0, 1, 1, 1, 2, 2, 2))

    places = {flush.place for flush in flushes(found, 60, 1, ((3, (20, 20, 30)),))}

    assert places >= {0, 1, 2}


@pytest.mark.parametrize(
    ("stay", "left", "kept"),
    [
        ((0, 30, 60), (30, 60, 90), [2, 0]),  # evenly: the one between is never above both
        ((0, 50, 60), (30, 60, 90), [2, 1, 0]),
        ((0, 30, 60), (30, 70, 90), [2, 1, 0]),
    ],
)
def test_a_reduction_is_left_out_where_it_lies_evenly_between_two(
    stay: tuple[int, ...], left: tuple[int, ...], kept: list[int]
):
    made = [Flush(2 - step, 1, 30, 0, 30, 0, 0, 30, stay=stay[step], left=left[step]) for step in range(3)]

    assert [flush.block for flush in _ends(made, ((3, (30, 30)),))] == kept
    assert len(_ends(made, ((2, (30, 30)), (1, (30, 30))))) == 3  # blocks of another kind keep another amount


@pytest.mark.parametrize("bucket", [15, 25, 45, 60, 300])
@pytest.mark.parametrize("ranks", [2, 7])
def test_what_is_left_out_is_never_the_highest_where_gradients_stay(bucket: int, ranks: int):
    """Of 40 equal blocks whose larger gradients stay while their activations go, at any size of these."""
    count, rows = 40, (30, 20, 50)
    found = tensors(70, *rows * count, 70, blocks=(BEFORE, *(block for block in range(count) for _ in rows), AFTER))
    runs = ((count, rows[::-1]),)
    left = flushes(found, bucket, ranks, runs, stays=True)
    every = _flushes(found, bucket, ranks, runs)[0]

    def behind(done: int) -> int:
        return larger_of(found, bucket, ranks, runs, done)

    whole = [flush._replace(stay=behind(flush.done), left=behind(flush.done + flush.elements)) for flush in every]
    assert len(left) < len(whole) / 2 or len(whole) < 30
    for each in (0, 1, 7, 29, 30, 31, 49, 50, 51, 80, 101, 500):  # elements of activations that a block keeps
        for what in ("stay", "left"):
            assert max(_there(flush, each, what) for flush in left) == max(_there(flush, each, what) for flush in whole)


def _there(flush: Flush, each: int, what: str) -> int:
    blocks = 40 if flush.block == AFTER else max(flush.block, 0)
    return each * blocks + getattr(flush, what) + flush.current + flush.own + flush.larger
