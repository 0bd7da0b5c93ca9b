"""The lengths of a run's steps where sequences differ, from what a person knows of them: the longest and the mean.

Of all distributions between nothing and the longest that have a mean, the truncated exponential one says least else
(largest entropy). A micro-batch is padded to the longest of its sequences.
"""

from __future__ import annotations

import functools
import math

__all__ = ["padded"]

# Our choice, the longest among them. Of 40 scenarios of docs/reserved.md with a mean of 0.4 of the longest (stages,
# sizes and offload as they come) 10 steps reserve as much; with 40, 3 reserve more where segments grow, at most 8 %,
# and 25 with torch's default settings, at most 38 %: each length that is longer than those before may take segments of
# its own.
_STEPS = 20
_GOLDEN = (math.sqrt(5) - 1) / 2  # steps of a sequence that spreads evenly over all quantiles, in no order
_HALVINGS = 60  # of the interval in which the rate lies, 1,400 wide: what is left is 1.2e-15, as exact as a float is
_STEEPEST = 700.0  # of the rate times the longest, either way: beyond it math.exp overflows


@functools.lru_cache(maxsize=256)
def padded(longest: int, mean: int, micro_batch: int) -> tuple[int, ...]:
    """Tokens that the micro-batches of some steps are padded to, in their order; the last is the longest of all.

    Args:
        longest: Tokens of the longest sequence.
        mean: Tokens of one in the mean.
        micro_batch: Sequences of one.
    """
    rate = _rate(mean / longest)
    drawn = [
        max(1, math.ceil(longest * _quantile(rate, (_GOLDEN * step % 1) ** (1 / micro_batch))))
        for step in range(1, _STEPS)
    ]
    return *drawn, longest


def _rate(mean: float) -> float:
    """The rate with which a truncated exponential distribution on 0 to 1 has a mean."""
    low, high = -_STEEPEST, _STEEPEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _mean(middle) > mean else (low, middle)
    return (low + high) / 2


def _mean(rate: float) -> float:
    """Its mean: falls from 1 to 0 with the rate."""
    if abs(rate) < 1e-6:
        return 0.5
    return 1 / rate - 1 / math.expm1(rate)


def _quantile(rate: float, share: float) -> float:
    if abs(rate) < 1e-6:
        return share
    return -math.log1p(share * math.expm1(-rate)) / rate
