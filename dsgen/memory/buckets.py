"""How gradients pass through DeepSpeed's buckets in backward: which are on the GPU at once, and beside what.

Followed from the code of 0.19.8: runtime/zero/stage_1_and_2.py (reduce_independent_p_g_buckets_and_remove_grads,
average_tensor, allreduce_bucket, copy_grads_in_partition) and runtime/engine.py (buffered_allreduce_fallback).
"""

import bisect
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from dsgen.memory.cuts import Cut, cut, reaches
from dsgen.memory.trained import AFTER, BEFORE, Trained

__all__ = [
    "FLAT_CHUNK",
    "Flush",
    "Order",
    "Runs",
    "arrivals",
    "flat_chunk",
    "flat_chunks",
    "flushes",
    "kept_from",
    "larger_of",
    "pieces",
    "waiting_of",
    "worst",
]

FLAT_CHUNK = 500_000_000  # elements that stage 0 flattens for one all-reduce (engine.py, buffered_allreduce_fallback)


class Flush(NamedTuple):
    """One reduction of a bucket.

    Attributes:
        block: Block whose backward runs: BEFORE, AFTER, or counted from 0.
        place: Which of that block's gradients has just been made and did not fit; -1 at the end of backward.
        elements: Elements in the bucket.
        copied: Elements of the flat copy that is made of them, 0 where none is made.
        current: Elements of the gradient that did not fit, which waits outside; 0 at the end of backward.
        own: Elements of this rank's own gradients that were kept by earlier reductions.
        normed: Elements of the largest piece of an own gradient in the bucket.
        larger: Elements of the bucket's gradient where it is larger than the bucket, and so stays where it was made.
        tensor: Index of the gradient that did not fit among the trained tensors; -1 at the end of backward.
        begun: Elements of a buffer that it makes for all of this rank's own gradients, 0 if there is one or none of
            them is in the bucket.
        done: Elements of earlier reductions.
        before: Elements of this rank's shares of the gradients in the bucket that are handed over before that one.
        stay: Elements of earlier gradients larger than the bucket that stay where they were made.
        left: The same with those of this reduction.
    """

    block: int
    place: int
    elements: int
    copied: int
    current: int
    own: int
    normed: int
    larger: int
    tensor: int = -1
    begun: int = 0
    done: int = 0
    before: int = 0
    stay: int = 0
    left: int = 0


Runs = tuple[tuple[int, tuple[int, ...]], ...]  # of equal blocks: how many, and elements of one's gradients as made
Order = tuple[tuple[int, int], ...]  # (index of a tensor, its place among its block's gradients), as gradients are made


@functools.lru_cache(maxsize=1024)
def arrivals(trained: Trained, runs: Runs) -> Order:
    """The order in which backward makes the gradients.

    Args:
        trained: The trained tensors.
        runs: For every run of equal blocks how many, and elements of one's gradients as they are made.
    """
    kinds = [row for count, row in runs for _ in range(count)]
    members: dict[int, list[int]] = {}
    for index, block in enumerate(trained.blocks):
        members.setdefault(block, []).append(index)
    order: list[tuple[int, int]] = []
    for block in sorted(members, reverse=True):
        backwards = members[block][::-1]
        row = kinds[block] if 0 <= block < len(kinds) else ()
        if not Counter(row) - Counter(trained.numels[index] for index in backwards):
            waiting = list(backwards)
            made = []
            for numel in row:
                index = next(one for one in waiting if trained.numels[one] == numel)
                waiting.remove(index)
                made.append(index)
            backwards = made + waiting  # the sinks that a fused kernel does not know of have no gradient
        order += [(index, place) for place, index in enumerate(backwards)]
    return tuple(order)


@functools.lru_cache(maxsize=1024)
def flushes(trained: Trained, bucket: int, ranks: int, runs: Runs | None, stays: bool = False) -> tuple[Flush, ...]:
    """The reductions of stages 1 and 2 on rank 0, only those that no earlier one outdoes.

    Args:
        trained: The trained tensors.
        bucket: Elements of a bucket.
        ranks: Ranks that each group of tensors is cut among.
        runs: As for `arrivals`; None for the order of the model (stage 1 without overlap reduces after backward).
        stays: Gradients larger than the bucket stay, so that a later reduction may have more beside it.
    """
    made = _flushes(trained, bucket, ranks, runs)[0]
    if stays and runs is not None and max(trained.numels, default=0) > bucket:
        beside = [
            [larger_of(trained, bucket, ranks, runs, done) for done in (one.done, one.done + one.elements)]
            for one in made
        ]
        made = [one._replace(stay=stay, left=left) for one, (stay, left) in zip(made, beside, strict=True)]
        made = _ends(made, runs)
    return tuple(worst(made))


def _ends(made: Iterable[Flush], runs: Runs) -> list[Flush]:
    """Without those of equal blocks that lie evenly between two others, as activations do: none is above both."""
    of = [number for number, (count, _) in enumerate(runs) for _ in range(count)]
    kept: dict[int, Flush] = {}
    rows: dict[tuple[int, ...], list[int]] = {}  # alike but for the block and what stays -> the last two that are kept
    for number, one in enumerate(made):
        kept[number] = one
        if 0 <= one.block < len(of):
            how = (one.place, one.copied, one.current, one.own, one.normed, one.larger, one.begun)
            row = rows.setdefault((of[one.block], *how), [])
            if len(row) == 2 and _evenly(kept[row[0]], kept[row[1]], one):
                del kept[row.pop()]
            row[:] = [*row[-1:], number]
    return list(kept.values())


def _evenly(first: Flush, second: Flush, third: Flush) -> bool:
    """Whether what stays grows by as much a block from the first to the second as from there to the third."""
    before, behind = first.block - second.block, second.block - third.block
    stay = (second.stay - first.stay) * behind == (third.stay - second.stay) * before
    return stay and (second.left - first.left) * behind == (third.left - second.left) * before


def kept_from(trained: Trained, bucket: int, ranks: int, runs: Runs) -> int:
    """Elements of gradients that backward has handed over when stage 2 begins to keep those of rank 0's partition.

    Args:
        trained, bucket, ranks, runs: As for `flushes`.
    """
    return _flushes(trained, bucket, ranks, runs)[1]


@functools.lru_cache(maxsize=1024)
def _flushes(trained: Trained, bucket: int, ranks: int, runs: Runs | None) -> tuple[list[Flush], int]:
    """All of them, and the elements handed over by the first that has own gradients."""
    made: list[Flush] = []
    cuts = cut(trained, ranks)
    kept, split = sum(one.kept for one in cuts), cuts[-1].first
    filled = own = low = high = 0  # low and high: the first and the last rank that the bucket has something of
    handed = first = widest = 0
    last = Cut(0, 0, 1, 0, 0)
    begin = end = 0

    def flush(block: int, place: int, current: int, index: int) -> None:
        nonlocal filled, own, first, widest
        if not filled:
            return
        copied = 0
        if low != high:
            copied = filled if filled <= bucket else _flat(begin, end, last.share, bucket)
        larger = filled if filled > bucket else 0
        done = made[-1].done + made[-1].elements if made else 0
        begun = kept if not low and not own else 0
        made.append(Flush(block, place, filled, copied, current, own, widest, larger, index, begun, done))
        if not low and not own:
            first, own = handed, kept
        filled = widest = 0

    for index, place in ((at, 0) for at in range(len(trained.numels))) if runs is None else arrivals(trained, runs):
        numel = trained.numels[index]
        handed += numel
        if filled + numel > bucket:
            flush(trained.blocks[index], place, numel, index)
        last = cuts[index >= split] if split else cuts[0]
        end = trained.ends[index] - last.begin
        begin = end - numel
        ranks_of = begin // last.share, (end - 1) // last.share
        low, high = (min(low, ranks_of[0]), max(high, ranks_of[1])) if filled else ranks_of
        widest = max(widest, min(end, last.share) - begin)
        filled += numel
    flush(BEFORE, -1, 0, -1)
    return made, first


def _flat(low: int, high: int, share: int, bucket: int) -> int:
    """Elements of the largest flat copy of a range of flat weights; one piece alone is flat already."""
    return max((filled for filled, count in pieces(low, high, share, bucket) if count > 1), default=0)


def pieces(low: int, high: int, share: int, bucket: int) -> list[tuple[int, int]]:
    """The calls that reduce a range: its pieces, a rank's each, until they are more than a bucket.

    Source: stage_1_and_2.py, average_tensor and allreduce_no_retain.

    Returns:
        Elements of each call, and how many pieces it has.
    """
    made = []
    filled = count = 0
    while low < high:
        end = min((low // share + 1) * share, high)
        filled, count, low = filled + end - low, count + 1, end
        if filled > bucket or low == high:
            made.append((filled, count))
            filled = count = 0
    return made


def larger_of(trained: Trained, bucket: int, ranks: int, runs: Runs, handed: int) -> int:
    """Elements of gradients larger than the bucket among the first that backward has handed over.

    Args:
        trained, bucket, ranks, runs: As for `flushes`. Stage 1 copies this rank's own, which do not count.
        handed: Elements handed over by then.
    """
    ends, sums = _larger(trained, bucket, ranks, runs)
    return sums[bisect.bisect_right(ends, handed)]


@functools.lru_cache(maxsize=1024)
def _larger(trained: Trained, bucket: int, ranks: int, runs: Runs) -> tuple[list[int], list[int]]:
    """Elements handed over with each larger gradient, and those of all larger ones before it; then all of them."""
    ends, sums, handed = [], [0], 0
    for index, _ in arrivals(trained, runs):
        handed += trained.numels[index]
        if trained.numels[index] > bucket and not reaches(trained, ranks, index):
            ends.append(handed)
            sums.append(sums[-1] + trained.numels[index])
    return ends, sums


def waiting_of(trained: Trained, bucket: int, runs: Runs, handed: int) -> int:
    """Elements of gradients that wait for their reduction when backward has handed over so many.

    Args:
        trained, bucket, runs: As for `flushes`.
        handed: Elements handed over by then.
    """
    ends, sums = _waiting(trained, bucket, runs)
    return sums[bisect.bisect_right(ends, handed) - 1]


@functools.lru_cache(maxsize=1024)
def _waiting(trained: Trained, bucket: int, runs: Runs) -> tuple[list[int], list[int]]:
    """Elements handed over with each gradient, and those that wait then."""
    ends, sums = [0], [0]
    for index, _ in arrivals(trained, runs):
        numel = trained.numels[index]
        before = sums[-1] if sums[-1] + numel <= bucket else 0
        ends.append(ends[-1] + numel)
        sums.append(before + numel)
    return ends, sums


def worst(made: Iterable[Flush], beside: Callable[[Flush], int] | None = None) -> list[Flush]:
    """Those that none of an earlier block at the same place outdoes in all that takes memory: activations only fall.

    The last one, when backward has ended, has none beside it.

    Args:
        made: The reductions.
        beside: What is gathered beside one, in elements or bytes; None for nothing.
    """
    kept: list[Flush] = []
    at: dict[int, list[tuple[Flush, int]]] = {}  # place -> those kept there, and what is gathered beside each
    seen: dict[tuple[int, ...], int] = {}  # equal blocks have equal reductions: what they take -> the first such block
    for item in made:
        block, place, _, copied, current, own, normed, larger, _, begun, _, _, stay, left = item
        there = beside(item) if beside else 0
        takes = (place, copied, current, own, normed, larger, begun, stay, left, there)
        if AFTER > seen.setdefault(takes, block) > block:
            continue
        for other, other_there in at.get(place, ()) if place >= 0 else itertools.chain(*at.values()):
            if (
                other.copied >= copied
                and other.current >= current
                and AFTER > other.block > block
                and other.own >= own
                and other.normed >= normed
                and other.larger >= larger
                and other.own + other.begun >= own + begun
                and other.stay >= stay
                and other.left >= left
                and other_there >= there
            ):
                break
        else:
            kept.append(item)
            at.setdefault(place, []).append((item, there))
    return kept


def flat_chunks(trained: Trained) -> int:
    """All-reduces of stage 0: tensors until they are more than FLAT_CHUNK."""
    filled = made = 0
    for numel in trained.numels:
        filled += numel
        if filled > FLAT_CHUNK:
            made, filled = made + 1, 0
    return made + (filled > 0)


def flat_chunk(trained: Trained) -> int:
    """Elements of the largest flat copy that stage 0 reduces: tensors until they are more than FLAT_CHUNK."""
    most = filled = count = 0
    for numel in trained.numels:
        filled += numel
        count += 1
        if filled > FLAT_CHUNK:
            most = max(most, filled if count > 1 else 0)
            filled = count = 0
    return max(most, filled if count > 1 else 0)
