"""What was read of a run cut where two readings meet: each piece beside its predicted parts, and parts as large as what
it differs by."""

import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dsgen.memory import MemoryEstimate
from dsgen.memory.card_numbers import card
from dsgen.memory.reserved import ReservedBytes

__all__ = ["HOST", "OF_GPU", "LikePart", "ReadPiece", "differences"]

OF_GPU = ("allocated", "reserved", "nvidia-smi")  # each is a part of the next
HOST = "host"
_MOST = 3  # candidates that are named of one piece
_HOLES, _OTHERS = "held free by torch's allocator", "other processes"
_ANY_SIZE = (_HOLES, _OTHERS)
# A word that the name of a part has -> what such a part may be where more was read, and where less; the first that is
# in it counts. All are guesses by size alone, and said as such.
_OF_GPU: tuple[tuple[str, str, str], ...] = (
    ("master", "held once more", "master weights in 16 bits, or not on the GPU"),
    (
        "optimizer",
        "held once more, as a step that copies them does",
        "states before the first step, or not on the GPU",
    ),
    ("gradient", "gradients in fp32, or held twice", "gradients in 16 bits, or given back earlier"),
    ("logits", "one more copy of the logits, as compute_metrics keeps them", "a loss that never holds all logits"),
    ("activation", "longer or more sequences, or no checkpointing", "shorter sequences, or more checkpointing"),
    ("checkpointed", "longer or more sequences", "shorter sequences"),
    ("gathered", "more layers gathered ahead", "fewer layers gathered ahead"),
    ("bucket", "larger buckets, or one more", "smaller buckets"),
    ("weight", "a second copy of the model, or the model in fp32", "weights that are shared out, or not on the GPU"),
    ("parameter", "a second copy of them, or fp32", "parameters that are shared out, or not on the GPU"),
    ("context", "one more process", "a smaller context"),
    (_OTHERS, "whatever else runs on the card", "nothing else runs on the card"),
    ("buffers", "one more communicator", "no communicator yet"),
    (_HOLES, "lengths that change from step to step, or segments that do not grow", "lengths that do not change"),
)
_OF_HOST: tuple[tuple[str, str, str], ...] = (
    ("weight", "each process read the model once more", "read when the model was loaded already"),
    ("processes", "more processes, as the workers of a data loader", "processes that share what they load"),
    ("", "held twice, as a save copies it", "read before it was there"),
)


class LikePart(NamedTuple):
    """A part that is about as large as a difference.

    Attributes:
        part: Its name among the parts of the prediction.
        bytes: How large it is there; None of what may be of any size.
        words: What it would be.
    """

    part: str
    bytes: int | None
    words: str


class ReadPiece(NamedTuple):
    """A piece of what was read, beside the same piece of the prediction.

    Attributes:
        piece: What it holds, in words.
        less, more: The reading that it begins at, "" where it begins at nothing; and the one that it ends at.
        bytes: What was read.
        expected: What is predicted, with its interval.
        parts: Part -> bytes of the prediction.
        candidates: Parts without which, or with which once more, the piece is in its interval, the nearest first, and
            those that may be of any size; none where it is there already.
    """

    piece: str
    less: str
    more: str
    bytes: int
    expected: ReservedBytes
    parts: Mapping[str, int]
    candidates: tuple[LikePart, ...] = ()

    @property
    def beyond(self) -> int:
        """What was read beyond what is predicted; below 0 where less was read."""
        return self.bytes - self.expected.bytes

    @property
    def within(self) -> bool:
        """Whether it lies in the interval."""
        return self.expected.low <= self.bytes <= self.expected.high


def differences(
    memory: MemoryEstimate, sizes: Mapping[str, int], expected: Mapping[str, ReservedBytes]
) -> tuple[ReadPiece, ...]:
    """The pieces of a run, as they lie on each other on a GPU, and a node's RAM.

    Args:
        memory: What is predicted.
        sizes: Reading -> bytes that were read.
        expected: Reading -> the prediction of it, with its interval.
    """
    told = ["", *(one for one in OF_GPU if one in sizes)]
    pieces = [_piece(memory, less, more, sizes, expected) for less, more in itertools.pairwise(told)]
    if HOST in sizes:
        parts = {**memory.host.parts, **memory.host.overhead}
        pieces.append(ReadPiece("a node's RAM", "", HOST, sizes[HOST], expected[HOST], parts))
    return tuple(piece._replace(candidates=tuple(_candidates(piece))[:_MOST]) for piece in pieces)


def _piece(
    memory: MemoryEstimate, less: str, more: str, sizes: Mapping[str, int], expected: Mapping[str, ReservedBytes]
) -> ReadPiece:
    """What lies between two readings of a GPU: tensors, the allocator's holes, what is outside torch, or several."""
    gpu, maker = memory.gpu, memory.gpu.maker
    outside = {name: size for name, size in gpu.overhead.items() if name != maker.workspace}
    outside.setdefault(_OTHERS, 0)
    tensors = {**gpu.parts, **({maker.workspace: gpu.workspace_bytes} if gpu.workspace_bytes else {})}
    held = max(0, card(gpu).held_free)
    layers: tuple[tuple[str, dict[str, int]], ...] = (
        ("tensors", tensors),
        (_HOLES, {_HOLES: held}),
        (f"outside torch (context, {maker.collectives}, other processes)", outside),
    )
    first = OF_GPU.index(less) + 1 if less else 0
    within = layers[first : OF_GPU.index(more) + 1]
    known = expected[more]
    if less:
        likely = max(0, known.bytes - expected[less].bytes)
        known = ReservedBytes(likely, *_between(memory, less, more))
    return ReadPiece(
        piece=" and ".join(name for name, _ in within),
        less=less,
        more=more,
        bytes=sizes[more] - (sizes[less] if less else 0),
        expected=known,
        parts={name: size for _, of in within for name, size in of.items()},
    )


def _between(memory: MemoryEstimate, less: str, more: str) -> tuple[int, int]:
    """The least and the most that may lie between two readings of a GPU: holes as far as they are known, and what is
    outside torch, give or take what drivers and releases change of it."""
    gpu, read, low, high = memory.gpu, card(memory.gpu), 0, 0
    if less == OF_GPU[0]:
        low, high = max(0, read.reserved.low - read.allocated), max(0, read.reserved.high - read.allocated)
    if more == OF_GPU[-1]:
        low += max(0, read.outside - gpu.overhead_more_bytes)
        high += read.outside + gpu.overhead_more_bytes
    return low, high


def _candidates(piece: ReadPiece) -> Iterator[LikePart]:
    """Parts that bring a piece into its interval and are as large as what it differs by, within a factor of two; then,
    where more was read, those that have no size of their own."""
    if piece.within:
        return
    gone, apart = piece.beyond < 0, abs(piece.beyond)
    for part, size in sorted(piece.parts.items(), key=lambda one: abs(one[1] - apart)):
        left = piece.bytes + size if gone else piece.bytes - size
        if apart / 2 < size < apart * 2 and piece.expected.low <= left <= piece.expected.high:
            yield LikePart(part, size, _words(piece, part, gone))
    if not gone:
        yield from (LikePart(part, None, _words(piece, part, gone)) for part in _ANY_SIZE if part in piece.parts)


def _words(piece: ReadPiece, part: str, gone: bool) -> str:
    causes = _OF_HOST if piece.more == HOST else _OF_GPU
    more, less = next(((more, less) for word, more, less in causes if word in part), ("held twice", "not there"))
    return less if gone else more
