"""How one backward fills DeepSpeed's buckets of gradients: how often they are reduced, and what of that comes last."""

import functools
from typing import NamedTuple

from dsgen.memory.buckets import Runs, arrivals, pieces
from dsgen.memory.cuts import cut
from dsgen.memory.trained import BEFORE, Trained

__all__ = ["Buckets", "filled_buckets"]

# Of the elements of a matrix that no longer fits into a bucket: the norms and biases that a block begins with, a few
# times its width, are fewer, for the matrix has hundreds of rows of that width at least. Our choice: of 134 built-in
# models on an A100 and an H100 nothing that comes before such a matrix is between 0.0008 and 0.0117 of it.
NORMS = 0.01


class Buckets(NamedTuple):
    """How one backward fills the buckets of gradients from stage 1 on.

    Attributes:
        calls: Reductions.
        late: Elements that are reduced when all blocks have had their backward.
        larger: Elements of gradients larger than a bucket, which stay where they were made.
        flattened: Elements of calls that reduce pieces of several ranks, which are put together for it.
        elements: All of them.
        begun: Calls that make room for the first matrix of a block; norms may have come before it.
    """

    calls: int
    late: int
    larger: int
    flattened: int
    elements: int
    begun: int = 0

    @property
    def late_share(self) -> float:
        """Of all gradients, those that are reduced when all blocks have had their backward."""
        return self.late / max(self.elements, 1)


@functools.lru_cache(maxsize=1024)
def filled_buckets(trained: Trained, bucket: int, ranks: int = 0, runs: Runs = ()) -> Buckets:
    """The buckets of one backward: a gradient that does not fit empties the bucket first.

    Args:
        trained: The trained tensors.
        bucket: Elements of the bucket.
        ranks: Ranks that the flat weights are cut among, at stages 1 and 2: a gradient larger than the bucket goes in
            pieces, a rank's each, several in a call until they are more than a bucket (stage_1_and_2.py,
            average_tensor and allreduce_no_retain).
        runs: As for `arrivals`; without, the gradients of a block come in the order of the model, from behind.
    """
    filled = calls = done = larger = flattened = low = high = begun = 0
    early: int | None = None
    block, handed = BEFORE, 0  # of which gradients come, and how many elements of it have
    cuts = cut(trained, max(ranks, 1))
    split = cuts[-1].first

    def flush() -> None:
        nonlocal calls, done, filled, flattened
        calls, done = calls + (filled > 0), done + filled
        flattened += filled if low != high else 0
        filled = 0

    for index, _ in arrivals(trained, runs):
        numel = trained.numels[index]
        if trained.blocks[index] == BEFORE and early is None:
            early = done
        if trained.blocks[index] != block:
            block, handed = trained.blocks[index], 0
        if filled + numel > bucket:
            begun += filled > 0 and handed < NORMS * numel
            flush()
        handed += numel
        group = cuts[index >= split] if split else cuts[0]
        end = trained.ends[index] - group.begin
        larger += numel if numel > bucket else 0
        if numel > bucket and ranks:
            parts = pieces(end - numel, end, group.share, bucket)
            calls, done = calls + len(parts), done + numel
            flattened += sum(elements for elements, count in parts if count > 1)
            continue
        first, last = (end - numel) // group.share, (end - 1) // group.share
        low, high = (min(low, first), max(high, last)) if filled else (first, last)
        filled += numel
    rest = trained.elements - (done if early is None else early)
    flush()
    return Buckets(calls, rest, larger, flattened, trained.elements, begun)
