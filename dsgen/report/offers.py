"""What the program could do otherwise beside a plan: each change with the plan that it allows and what it gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dsgen.asking.plan_questions.offers import Offer
from dsgen.report import costs
from dsgen.report.bars import rounded
from dsgen.shapes.units import gib
from dsgen.strategies.strategies import describe

__all__ = ["data", "lines", "sentence"]

_LEAST_SPEED = 0.005  # share of the speed below which two are as fast
_LEAST_BYTES = 2**29  # below which what is saved is not worth a word


def lines(offers: Sequence[Offer]) -> Iterator[str]:
    """One line for each change."""
    for offer in offers:
        yield f"with {offer.change.option}, {offer.change.words}: {offer.chosen.strategy}; {_gives(offer)}"


def sentence(offer: Offer) -> str:
    """The change in short, for a summary."""
    whose = "your program's part" if offer.change.of_program else offer.change.words
    return f"with {offer.change.option} ({whose}): {describe(offer.chosen.strategy)}, {_gives(offer)}"


def data(offers: Sequence[Offer]) -> list[dict[str, Any]]:
    """The same as plain JSON types."""
    return [
        {
            "option": offer.change.option,
            "field": offer.change.field,
            "value": offer.change.value,
            "also": [{"field": one.field, "value": one.value} for one in offer.change.also],
            "words": offer.change.words,
            "trains_the_same": offer.change.same,
            "strategy": str(offer.chosen.strategy),
            "gain": offer.gain,
            "saved_bytes": offer.saved_bytes,
            "verdict": offer.chosen.memory.verdict.value,
            "cost": costs.data(offer.chosen),
        }
        for offer in offers
    ]


def _gives(offer: Offer) -> str:
    """What a change gives: speed, memory, no offload."""
    place = offer.chosen.memory.gpu
    pace = "as fast" if abs(offer.gain) < _LEAST_SPEED else f"{abs(offer.gain):.0%} {_way(offer.gain)}"
    said = [f"{rounded(offer.chosen.speed)} tokens/s/GPU ({pace})"]
    taken = f"{gib(place.needed_bytes)} of {gib(place.limit_bytes)} GiB"
    less = f" ({gib(offer.saved_bytes)} less)" if offer.saved_bytes > _LEAST_BYTES else ""
    said.append(f"{taken}{less}")
    if offer.simpler:
        said.append("no offload" if offer.plain else "less offload")
    if offer.surer:
        said.append("surely fits")
    elif not offer.chosen.sure:
        said.append("may not fit")
    return ", ".join(said)


def _way(gain: float) -> str:
    return "faster" if gain > 0 else "slower"
