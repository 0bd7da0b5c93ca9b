"""A person's own run beside what is predicted of it, as words and as data: text, JSON and the page say the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from dsgen.asking.memory_questions import Footprint, Observation, OtherRun, ReadPiece
from dsgen.shapes.makers import NVIDIA, Maker
from dsgen.shapes.units import gib

__all__ = ["observations_data", "observed_lines"]

# Where a run that takes more, or less, than is predicted may come from when no change of the job explains it.
_WHAT_ELSE = {
    "more": "the program may load the model whole, keep outputs, evaluate more at a time, or share the card",
    "less": "it may not have reached its longest batch, or not be the job that is described here",
}


def observed_lines(footprint: Footprint) -> Iterator[str]:
    """Each reading beside what is predicted, the pieces between them, parts and runs that would explain them."""
    maker = footprint.memory.gpu.maker
    observations = tuple(attrs.evolve(one, reading=_read_by(one.reading, maker)) for one in footprint.observations)
    for one in observations:
        yield f"your run: {one.reading} {gib(one.bytes)} GiB, {_beside(one)}"
    for piece in footprint.differences:
        if piece.less:  # else it is a reading, and said
            span = f"{_read_by(piece.more, maker)} less {piece.less}"
            yield f"{piece.piece}: {gib(piece.bytes)} GiB ({span}), {_beside(piece)}"
    for piece in footprint.differences:
        yield from _candidates(piece)
    yield from _explained(observations)


def _beside(one: Observation | ReadPiece) -> str:
    expected = f"{gib(one.expected.bytes)} ({gib(one.expected.low)} to {gib(one.expected.high)})"
    more = one.bytes - one.expected.bytes
    said = "as predicted" if one.within else f"{gib(abs(more))} {_way(more)}"
    return f"predicted {expected}: {said}"


def _way(more: int) -> str:
    return "more" if more >= 0 else "less"


def _read_by(reading: str, maker: Maker) -> str:
    return maker.tool if reading == NVIDIA.tool else reading


def _candidates(piece: ReadPiece) -> Iterator[str]:
    """Parts as large as what a piece differs by, said as candidates."""
    if piece.within:
        return
    what = f"{piece.piece}, {gib(abs(piece.beyond))} GiB {_way(piece.beyond)}"
    if not piece.candidates:
        largest, size = max(piece.parts.items(), key=lambda part: part[1], default=("", 0))
        most = f"; the largest is {largest}, {gib(size)}" if size else ""
        yield f"{what}: no part is about that large{most}"
        return
    sizes = (f" {gib(one.bytes)}" if one.bytes is not None else "" for one in piece.candidates)
    named = (f"{one.part}{size} ({one.words})" for one, size in zip(piece.candidates, sizes, strict=True))
    yield f"{what}, candidates by size alone: {'; '.join(named)}"


def _explained(observations: tuple[Observation, ...]) -> Iterator[str]:
    """Runs that explain all readings together."""
    out = [one for one in observations if not one.within]
    if not out:
        return
    several = len(observations) > 1
    if not out[0].others:
        what = "all of these numbers" if several else "it"
        yield f"no single change of the job explains {what}; {_WHAT_ELSE[_way(out[0].more)]}"
        return
    runs = [
        f"{other.words} ({', '.join(f'{one.reading} {_span(one.others[place])}' for one in out)})"
        for place, other in enumerate(out[0].others)
    ]
    what = "every one of these numbers lies" if several else "it lies"
    yield f"{what} in the interval of: {'; '.join(runs)}"


def _span(other: OtherRun) -> str:
    return f"{gib(other.bytes)}, {gib(other.expected.low)} to {gib(other.expected.high)}"


def observations_data(footprint: Footprint) -> dict[str, Any]:
    """The same as plain JSON types; bytes throughout."""
    return {
        "observations": [
            {
                "reading": one.reading,
                "bytes": one.bytes,
                **_expected(one),
                "others": [
                    {
                        "options": dict(other.options),
                        "words": other.words,
                        "bytes": other.bytes,
                        "low_bytes": other.expected.low,
                        "high_bytes": other.expected.high,
                    }
                    for other in one.others
                ],
            }
            for one in footprint.observations
        ],
        "differences": [
            {
                "piece": piece.piece,
                "from": piece.less or None,
                "to": piece.more,
                "bytes": piece.bytes,
                **_expected(piece),
                "more_bytes": piece.beyond,
                "parts": {name: int(size) for name, size in piece.parts.items()},
                "candidates": [{"part": one.part, "bytes": one.bytes, "words": one.words} for one in piece.candidates],
            }
            for piece in footprint.differences
        ],
    }


def _expected(one: Observation | ReadPiece) -> dict[str, Any]:
    return {
        "expected_bytes": one.expected.bytes,
        "expected_low_bytes": one.expected.low,
        "expected_high_bytes": one.expected.high,
        "within": one.within,
    }
