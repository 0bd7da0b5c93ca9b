"""What Muon takes to step whole matrices, counted by hand from the sizes of the matrices."""

from __future__ import annotations

import itertools
import math

import pytest

from dsgen.memory import muon
from dsgen.memory.muon import orthogonal, states
from dsgen.memory.muon_matrices import _batches
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
