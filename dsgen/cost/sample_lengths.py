"""How long the sequences are that GPUs compute where samples have several lengths, and what their attention sees.

Of samples the longest is known and the mean. Their lengths follow a beta distribution between nothing and the longest,
whose spread is about that of measured runs.

- Padded, a micro-batch is as long as its longest sample, and the GPUs wait for the one whose micro-batch is longest:
  in each micro-batch where gradients leave or weights come in each (ZeRO-2 and 3), else once a step.
- Without padding they wait for the one whose samples are most tokens in all.
- Packed, all sequences are full, and a token sees its own sample alone.
"""

from __future__ import annotations

import functools
import math

from dsgen.jobs.job import Job
from dsgen.jobs.samples import SPREAD, seen_length, tokens_of_sequence, varied_mean
from dsgen.strategies.strategies import Strategy

__all__ = ["FEW_TOKENS", "LEAST_SPREAD", "MOST_SPREAD", "computed_length", "own_share", "sees", "targets_length"]

# Least of a measured data set: padding makes 1.44 times as many tokens in micro-batches of 8, 279 instead of 193.7
# (foundation-model-stack/fms-acceleration 876e2ed, scripts/benchmarks/refs/a100_80gb_moe.csv), where 0.3 makes 1.45.
LEAST_SPREAD = 0.3
MOST_SPREAD = 1.0  # of an exponential distribution, which says least else (dsgen.memory.replaying.padding)
FEW_TOKENS = 256  # of a sample whose attention takes next to nothing; of shorter ones kernels compute empty tiles
_TAIL = 9.0  # standard deviations from which on nothing is left of a normal law
_POINTS = 1024  # at which it is summed: a mean of 1/64 of the longest is right to 0.1 %, one of 1/256 to 3 %


def computed_length(job: Job, strategy: Strategy, spread: float = SPREAD) -> int:
    """Tokens of each sequence, its padding included, that the GPU computes for which the others wait, in the mean.

    Args:
        job: The job.
        strategy: The strategy.
        spread: Standard deviation of the samples' lengths by their mean.
    """
    mean = varied_mean(job.training)
    if not mean or mean >= job.seq_len:
        return job.seq_len
    longest = job.seq_len
    own = strategy.micro_batch
    all_at_once = own * (job.world // strategy.tp)
    meets = strategy.accumulation if strategy.stage < 2 else 1  # micro-batches between two waits
    if job.training.padding_free:
        deviation = spread * mean * math.sqrt((1 - mean / longest) / (own * meets))
        return min(longest, round(mean + deviation * _largest_of(all_at_once // own)))
    return max(mean, min(longest, _padded(longest, mean, own, all_at_once, meets, spread)))


def own_share(job: Job, strategy: Strategy) -> float:
    """The share of what is computed, and waited for, that is samples' own tokens; 1 where they are packed or alike."""
    return tokens_of_sequence(job) / computed_length(job, strategy)


def targets_length(job: Job, computed: int) -> int:
    """Tokens of each target sequence, where so many of the sequence itself are computed."""
    return job.training.target_len or computed


def sees(job: Job) -> int:
    """Tokens of sequences that attention is divided into, where samples of a known mean share a row; else 0.

    Another attention than FlashAttention computes whole rows, behind a mask.
    """
    training = job.training
    divides = (training.packing or training.padding_free) and training.attention == "flash"
    return seen_length(job.seq_len, training.mean_len) if divides else 0


@functools.lru_cache(maxsize=1024)
def _padded(longest: int, mean: int, own: int, all_at_once: int, meets: int, spread: float) -> int:
    """Of one GPU's micro-batches the mean length, and of the slowest GPU's what is above it, by chance less in a sum of
    several."""
    alone = _longest_of(mean / longest, own, spread)
    slowest = _longest_of(mean / longest, all_at_once, spread)
    return round(longest * (alone + (slowest - alone) / math.sqrt(meets)))


@functools.lru_cache(maxsize=1024)
def _longest_of(mean: float, samples: int, spread: float) -> float:
    """The mean of the longest of some samples, by the longest that there is."""
    return sum([1 - below**samples for below in _below(mean, spread)]) / _POINTS


@functools.lru_cache(maxsize=1024)
def _largest_of(sums: int) -> float:
    """The mean of the largest of so many sums, by their standard deviation from the mean of all: a normal law's."""
    low, high = -_TAIL, _TAIL
    step = (high - low) / _POINTS
    points = [low + (number + 0.5) * step for number in range(_POINTS)]
    return high - step * sum([_normal(point) ** sums for point in points])


def _normal(point: float) -> float:
    """The share of a standard normal law below a point; `statistics` has it too, whose import takes 3 ms."""
    return math.erfc(-point / math.sqrt(2)) / 2


@functools.lru_cache(maxsize=64)
def _below(mean: float, spread: float) -> tuple[float, ...]:
    """The share of samples that is shorter than each point between 0 and 1.

    The beta distribution whose variance is (spread * mean)^2 * (1 - mean): a gamma distribution where the mean is
    small, and nothing but the longest where it is near 1.
    """
    both = 1 / (spread**2 * mean) - 1
    low, high = mean * both, (1 - mean) * both
    points = [(number + 0.5) / _POINTS for number in range(_POINTS)]
    logs = [(low - 1) * math.log(x) + (high - 1) * math.log1p(-x) for x in points]
    step = math.log(_POINTS)  # at the ends, where it may be infinite, the density of the whole step
    logs[0], logs[-1] = (1 - low) * step - math.log(low), (1 - high) * step - math.log(high)
    most = max(logs)
    density = [math.exp(one - most) for one in logs]
    whole, passed, below = math.fsum(density), 0.0, []
    for one in density:
        below.append((passed + one / 2) / whole)
        passed += one
    return tuple(below)
