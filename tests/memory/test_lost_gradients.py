"""Gradients that lie where a drive may not read to, counted by hand for a small model and for models of the catalog."""

from __future__ import annotations

import pytest

from dsgen import catalog
from dsgen.families.hf_config import model_from_hf
from dsgen.linting.subjects import Facts
from dsgen.memory.lost_gradients import Sharing, lost
from dsgen.shapes.profiles import Model

HIDDEN, BETWEEN, WORDS = 544, 1024, 512  # 544 elements are 2,176 bytes, 4.25 times 512
MIB = 1 << 20
LLAMA = {"model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": BETWEEN, "num_hidden_layers": 2,
         "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": WORDS, "tie_word_embeddings": False,
         "max_position_embeddings": 64}  # fmt: skip
MATRICES = 4 * HIDDEN**2 + 3 * HIDDEN * BETWEEN  # of a block; a multiple of 128
TABLE = HIDDEN * WORDS


def small(**changed: int) -> Model:
    return Model(**model_from_hf({**LLAMA, **changed}, "llama"))


def sharing(world: int, sub_group: int = 1_000_000_000, width: int = 4, block: int = MIB, threads: int = 1) -> Sharing:
    return Sharing(world, sub_group, width, block, threads)


def known(name: str) -> Model:
    model = Facts(model=name).model
    assert model is not None
    return model


def test_behind_two_norms_a_block_is_lost_and_behind_four_it_is_not() -> None:
    """The first block follows the table, the second its two norms of 544, the head those of both and the last norm."""
    got = lost(small(), sharing(1))

    assert (got.tensors, got.of) == (7 + 1, 9 * 2 + 3)
    assert got.share == pytest.approx((MATRICES + TABLE) / (2 * (MATRICES + 2 * HIDDEN) + 2 * TABLE + HIDDEN))


def test_each_sub_group_begins_anew() -> None:
    assert lost(small(), sharing(1, sub_group=1)).tensors == 0


def test_what_is_below_1_mib_of_a_rank_or_below_a_block_of_the_drive_stays_in_memory() -> None:
    assert lost(small(), sharing(2)).tensors == 3  # half of a feed-forward matrix is 1.06 MiB, of any other 0.6 at most
    assert lost(small(), sharing(4)).tensors == 0
    assert lost(small(), sharing(1, block=4 * MIB)).tensors == 0


def test_gradients_of_16_bits_are_half_as_far_apart() -> None:
    assert lost(small(), sharing(1, width=2)).tensors > 0
    assert lost(small(num_hidden_layers=1), sharing(1)).tensors == 1  # the head: behind three norms of 4.25 x 512


def test_many_threads_leave_a_longer_end_in_memory() -> None:
    """4 x 1,024 bytes: of 544 x 512 x 4 = 1,114,112 all but nothing, of 1 MiB and 1,024 threads all."""
    assert lost(small(), sharing(1, threads=4)).tensors == lost(small(), sharing(1)).tensors
    assert lost(small(), sharing(1, threads=1500)).tensors < lost(small(), sharing(1)).tensors


@pytest.mark.parametrize(
    ("name", "world", "some"),
    [("llama-3-8b", 8, False), ("llama-3-8b", 32, False), ("llama-3-8b", 64, True), ("qwen3-8b", 2, False),
     ("qwen3-8b", 4, True), ("qwen2.5-7b", 4, False), ("qwen2.5-7b", 8, True), ("gpt2-xl", 1, True),
     ("llama-3-70b", 64, False), ("llama-3-70b", 128, True)],
)  # fmt: skip
def test_which_models_are_hit_on_how_many_ranks(name: str, world: int, some: bool) -> None:
    """A part of a norm, of a bias or of the norm of a head is a multiple of 128 elements, or is not."""
    assert (lost(known(name), sharing(world)).tensors > 0) == some


def test_every_model_of_the_catalog_is_counted() -> None:
    for name in catalog.names("model"):
        got = lost(known(name), sharing(8))
        assert 0 <= got.tensors < got.of
        assert 0.0 <= got.share < 1.0
