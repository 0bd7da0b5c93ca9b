"""What Muon takes to step whole matrices, counted by hand from the sizes of the matrices."""

from __future__ import annotations

import itertools
import math

import attrs
import pytest

from dsgen.memory import muon
from dsgen.memory.muon import orthogonal, states
from dsgen.memory.muon_matrices import _batches, _Kept, states_at_stage_3
from dsgen.memory.trained import Trained

MIB = 2**20
SQUARE, WIDE, OTHER = (256, 256), (128, 512), 1000  # two that Muon steps, and elements of what it does not


def tensors(shapes: list[tuple[int, ...]], rest: tuple[int, ...] = ()) -> Trained:
    """Trained tensors: matrices of one block that Muon steps, then others."""
    numels = (*(math.prod(shape) for shape in shapes), *rest)
    blocks, ends = (0,) * len(numels), tuple(itertools.accumulate(numels))
    made = (*shapes, *((),) * len(rest))
    return Trained(numels, blocks, ends, max(numels), 0, False, shapes=made, split=len(shapes))


@pytest.mark.parametrize("size", [2, 4])
def test_one_rank_updates_its_matrices_one_after_the_other(size):
    """Updates of earlier ones wait in the type of the gradients; the last one is made beside them all."""
    given = tensors([SQUARE, WIDE], (OTHER,))

    held, momentum, most = states(given, 1, size, "bf16")

    first, second = math.prod(SQUARE), math.prod(WIDE)
    assert momentum == size * (first + second)
    assert held == momentum + 8 * OTHER  # Adam's two moments in fp32
    assert most == max(orthogonal(SQUARE, size, "bf16"), size * first + orthogonal(WIDE, size, "bf16"))


def test_one_matrix_alone_takes_what_its_own_update_does():
    assert states(tensors([SQUARE], (OTHER,)), 1, 2, "bf16")[2] == orthogonal(SQUARE, 2, "bf16")


def test_without_matrices_muon_is_adam():
    assert states(tensors([], (OTHER,)), 1, 2, "bf16") == (8 * OTHER, 0, 0)


def test_without_zero_momenta_are_of_fp32_and_only_the_largest_matrix_counts():
    held, most = muon.single(tensors([SQUARE, WIDE, (64, 64)], (OTHER,)))

    assert held == 4 * (math.prod(SQUARE) + math.prod(WIDE) + 64 * 64) + 8 * OTHER
    assert most == muon.single(tensors([SQUARE], (OTHER,)))[1]
    assert muon.single(tensors([], (OTHER,))) == (8 * OTHER, 0)


@pytest.mark.parametrize("elements", [MIB, 3 * MIB, 5 * MIB, 9 * MIB])
def test_matrices_come_to_the_gpu_by_64_mib_of_fp32_gradients_and_momenta(elements):
    """As many as fit, at least one: _muon_allgather_max_buffer_bytes is 64 MiB, and an element takes 8 of them."""
    given = tensors([(1, elements)] * 10, (OTHER,))

    sizes = [len(batch) for batch in _batches(given)]

    full = max(1, 8 * MIB // elements)
    assert sizes == [full] * (10 // full) + [10 % full] * (10 % full > 0)
    assert [index for batch in _batches(given) for index in batch] == list(range(10))


def at_stage_3(shapes: list[tuple[int, ...]], on_gpu: bool) -> tuple[int, ...]:
    """Bytes of states, of momenta among them, of buffers and of updates, of one of two ranks in bf16."""
    given = attrs.evolve(tensors(shapes, (OTHER,)), split=0)
    own = sum(given.numels) // 2
    return states_at_stage_3(given, 2, own, 10**9, 10**9, 2, "bf16", on_gpu)


def test_at_stage_3_gradients_and_momenta_of_all_matrices_are_gathered_beside_the_share_they_came_from():
    """Then each rank updates one matrix, and equal ones are gathered where they are."""
    shares = 2 * math.prod(SQUARE)  # bytes of one rank's halves of two
    kept = 3 * shares  # a flat buffer: what is sent, and what comes from two ranks

    found = at_stage_3([SQUARE, SQUARE], True)

    states = 8 * OTHER // 2 + shares
    assert found == (states, shares, kept, 2 * 2 * shares + shares + kept + orthogonal(SQUARE, 2, "bf16"))


def test_of_unequal_matrices_a_round_leaves_what_it_gathered_to_the_next():
    """In pieces as large as the larger one; the third is updated beside them and the first update."""
    first = 2 * math.prod(SQUARE)  # bytes; as large as the second, which has another shape
    shares = 3 * first // 2

    found = at_stage_3([SQUARE, WIDE, SQUARE], True)

    there = 2 * 2 * shares + shares + 3 * shares
    rounds = 2 * 2 * first + 2 * first + first + orthogonal(SQUARE, 2, "bf16")
    assert found == (8 * OTHER // 2 + shares, shares, 3 * shares, there + rounds)


def test_with_the_states_in_ram_a_sub_group_is_gathered_at_once_and_updates_add_up():
    elements = math.prod(SQUARE)  # of one rank's halves of two
    full, kept = 2 * 2 * elements * 2, 2 * elements * 3

    found = at_stage_3([SQUARE, SQUARE], False)

    update = 2 * math.prod(SQUARE)  # the first, beside the work on the second
    there = (4 + 2) * elements + full + kept + 2 * kept
    assert found == (8 * OTHER // 2 + 2 * elements, 0, kept, there + update + orthogonal(SQUARE, 2, "bf16"))


def test_buffers_are_kept_by_what_they_are_for_and_the_oldest_go_first():
    """Up to 256 MiB of them; one that is larger alone is not kept."""
    kept = _Kept()

    assert kept.taking((1, 1, 100 * MIB)) == 100 * MIB
    assert kept.taking((1, 1, 100 * MIB)) == 100 * MIB
    assert kept.taking((1, 2, 100 * MIB)) == 200 * MIB
    assert kept.taking((1, 1, 100 * MIB)) == 200 * MIB  # used again, it is the youngest
    assert kept.taking((3, 1, 300 * MIB)) == 500 * MIB
    assert kept.taking((2, 1, 100 * MIB)) == 200 * MIB
    assert sorted(kept) == [(1, 1), (2, 1)]
