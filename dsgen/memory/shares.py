"""How stage 3 cuts tensors and their gradients: each rank's shares, the groups that are flattened, the reduce-scatters.

Followed from the code of 0.19.8: runtime/zero/stage3.py (_create_fp16_sub_groups, __add_grad_to_ipg_bucket,
__avg_scatter_grads) with runtime/comm/coalesced_collectives.py.
"""

from __future__ import annotations

import functools

from dsgen.memory.buckets import Flush, Runs, arrivals
from dsgen.memory.trained import BEFORE, Trained

__all__ = ["FP32", "NORM", "flattened", "group_numels", "partition_numel", "scattered", "sub_groups"]

FP32 = 4  # bytes of a master weight, a moment, an fp32 gradient
NORM = 8  # bytes an element of a gradient whose norm is taken, in float64 (get_norm_dtype, runtime/utils.py)


@functools.lru_cache(maxsize=4096)
def partition_numel(trained: Trained, ranks: int) -> int:
    """Elements of one rank's partition at stage 3: every tensor is cut alone, the last shares padded."""
    return sum(-(-numel // ranks) for numel in trained.numels)


def split_of(trained: Trained, unsplit: Trained) -> int:
    """Elements of the tensors that AutoTP has split: stage 3 finds them whole when the optimizer has them already."""
    if trained is unsplit:
        return 0
    return sum(numel for numel, before in zip(trained.numels, unsplit.numels, strict=True) if numel < before)


@functools.lru_cache(maxsize=4096)
def flattened(trained: Trained, ranks: int, sub_group: int, split: Trained | None = None) -> tuple[int, int]:
    """Elements of the flat gradients of stage 3's largest sub-group, and of the largest that has several tensors.

    Whole tensors' shares are put together until they are `sub_group` elements (stage3.py, _create_fp16_sub_groups);
    one alone is flat already.

    Args:
        trained: The trained tensors.
        ranks: Ranks that a tensor is cut among.
        sub_group: sub_group_size, in elements.
        split: Those that AutoTP has left of them: what it has split has sub-groups of its own, as it is cut among other
            ranks (stage3.py, _get_trainable_parameter_groups).
    """
    most = joined = 0
    groups = sub_groups(trained, ranks, sub_group, split)
    for group, filled in zip(groups, group_numels(trained, ranks, sub_group, split), strict=True):
        most, joined = max(most, filled), max(joined, filled if len(group) > 1 else 0)
    return most, joined


@functools.lru_cache(maxsize=4096)
def sub_groups(
    trained: Trained, ranks: int, sub_group: int, split: Trained | None = None
) -> tuple[tuple[int, ...], ...]:
    """The tensors of each sub-group, by index; Muon's own groups come first.

    Args:
        trained, ranks, sub_group, split: As for `flattened`.
    """
    groups: list[list[int]] = [[], []]
    for index, numel in enumerate(trained.numels):
        groups[split.numels[index] < numel if split else bool(trained.shapes) and not trained.shapes[index]].append(
            index
        )
    made: list[tuple[int, ...]] = []
    for group in groups:
        shares = [-(-trained.numels[index] // ranks) for index in group]
        whole = sub_group >= sum(shares)
        filled = first = 0
        for place, share in enumerate(shares, 1):
            filled += share
            if (filled >= sub_group and not whole) or place == len(group):
                made.append(tuple(group[first:place]))
                filled, first = 0, place
    return tuple(made)


@functools.lru_cache(maxsize=4096)
def group_numels(trained: Trained, ranks: int, sub_group: int, split: Trained | None = None) -> tuple[int, ...]:
    """Elements that a rank has of each sub-group.

    Args:
        trained, ranks, sub_group, split: As for `flattened`.
    """
    shares = [-(-numel // ranks) for numel in trained.numels]
    return tuple(sum(map(shares.__getitem__, group)) for group in sub_groups(trained, ranks, sub_group, split))


@functools.lru_cache(maxsize=1024)
def scattered(
    trained: Trained,
    bucket: int,
    ranks: int,
    runs: Runs,
    swaps: bool = False,
    loose: bool = False,
    leaves: bool = False,
    unsplit: Trained | None = None,
    among: int = 0,
) -> tuple[Flush, ...]:
    """The reduce-scatters of stage 3, in order.

    Args:
        trained: The trained tensors.
        bucket: Elements of the bucket.
        ranks: Ranks that a tensor is cut among; beside AutoTP one that it has split.
        runs: As for `arrivals`.
        swaps: The shares leave together, in the order of the model, each as an fp32 copy until then: the optimizer is
            on NVMe (partition_grads, _offload_grad_partition_at_boundary).
        loose: Gradients wait where they were made, as those do that are larger than the bucket.
        leaves: The shares leave for the CPU one by one, and of loose gradients each goes with its share.
        unsplit: The tensors before AutoTP; those that it has split share no bucket with the others, which are cut
            among other ranks (stage3.py, reduce_independent_p_g_buckets_and_remove_grads).
        among: Ranks that those others are cut among.
    """
    made: list[Flush] = []
    group = 0
    filled = padded = count = 0
    shares: list[tuple[int, int]] = []  # (index, this rank's elements)

    def flush(block: int, place: int, current: int, index: int) -> None:
        nonlocal filled, padded, count
        if filled:
            whole = count == 1 and padded == filled
            larger = filled if loose or filled > bucket else 0
            before, widest = _most(sorted(shares)) if swaps else (0, max(share for _, share in shares))
            if loose and leaves:
                larger, widest = _leaving(trained, sorted(shares))
            copied = 0 if whole else padded
            if trained.shapes and filled <= bucket:  # Muon has no reduce-scatter: the bucket is divided into a copy
                copied = filled if ranks > 1 else 0
            numbers = (filled, copied, current, 0, widest, larger, index)
            made.append(Flush(block, place, *numbers, before=before))
        filled = padded = count = 0
        shares.clear()

    for index, place in arrivals(trained, runs):
        numel = trained.numels[index]
        own = among if unsplit and unsplit.numels[index] == numel else ranks
        if filled + numel > bucket or own != group:
            flush(trained.blocks[index], place, numel, index)
        group = own
        filled += numel
        padded += -(-numel // own) * own
        shares.append((index, -(-numel // own)))
        count += 1
    flush(BEFORE, -1, 0, -1)
    return tuple(made)


def _leaving(trained: Trained, shares: list[tuple[int, int]]) -> tuple[int, int]:
    """The elements of the gradients that are left when a share takes its norm, where both are most; and its own."""
    best = (0, 0, 0)
    left = sum(trained.numels[index] for index, _ in shares)
    for index, share in shares:
        best = max(best, (2 * left + (NORM + 2) * share, left, share))
        left -= trained.numels[index]
    return best[1], best[2]


def _most(shares: list[tuple[int, int]]) -> tuple[int, int]:
    """The elements before the share at which most is there, and its own: a copy of each of those, and its own norm."""
    best = (0, 0, 0)
    before = 0
    for _, share in shares:
        best = max(best, (FP32 * before + (NORM + 2) * share, before, share))
        before += share
    return best[1], best[2]
