"""What torch's allocator reserves for a strategy: a replay of its requests, or where their order is not known, causes.

The allocator never moves a block. What a kind of tensors has taken at its own highest moment stays reserved, and serves
another kind only where a free block is large enough; so reserved lies between the tensors' peak and the sum of what
each kind takes at most. Parameters that stage 3 gathers and the buckets of communication come back in changing sizes
and on streams of their own, whose blocks no other stream gets: they leave holes by their own size.

dsgen.memory.replaying writes the requests down and plays them into the allocator, which needs no constant. What it does
not know is told from the causes above. Their constants were fitted on the replays of benchmarks/reserved.json by
benchmarks/reserved_fit.py, which prints how far each group of them lies from constants fitted on all others;
docs/reserved.md shows every scenario.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from dsgen.jobs.job import Job
from dsgen.jobs.samples import varied_mean
from dsgen.memory.asked import asked_of, batchless, kept_by_autograd, tells
from dsgen.memory.moments import Moment
from dsgen.memory.overheads import workspace_bytes

if TYPE_CHECKING:
    from dsgen.memory.replaying import Replay

__all__ = ["DEFAULT", "EXPANDABLE", "Causes", "Holes", "ReservedBytes", "Reserving", "causes", "reserves"]

_BEFORE = ("load", "init")  # DeepSpeed and transformers give back what these leave over (empty_cache)
_GATHERED, _BUCKETS = "gathered parameters", "communication buckets"


class ReservedBytes(NamedTuple):
    """Bytes that torch's allocator reserves at most on a card that has enough: `torch.cuda.max_memory_reserved`.

    Attributes:
        bytes: What is expected.
        low, high: Nine in ten of the scenarios that are told from causes lie between; of a replay more do, and it has
            the same, for real runs have other lengths and libraries.
    """

    bytes: int
    low: int
    high: int


class Causes(NamedTuple):
    """What decides how much is reserved, in bytes of one GPU.

    Attributes:
        before: The highest moment of loading and initialize.
        peak: The highest moment of a step.
        apart: What each kind of tensors takes at its own highest moment of a step, added up, less the peak.
        gathered: What stage 3 gathers at most.
        buckets: What the buckets of communication take at most.
    """

    before: int
    peak: int
    apart: int
    gathered: int
    buckets: int


class Holes(NamedTuple):
    """How much of each cause is reserved beyond the tensors, as shares; and the interval around the sum.

    Attributes:
        before, peak, apart, gathered, buckets: Shares of these causes.
        low, high: Of what is expected.
    """

    before: float
    peak: float
    apart: float
    gathered: float
    buckets: float
    low: float
    high: float


# Fitted by benchmarks/reserved_fit.py, which prints them, on the 168 replays whose tensors were counted then. Where the
# model of a scenario is left out of the fit, the median absolute error is 5.0 % in both modes; so it is, without that,
# of the 224 that there are now, nine in ten of which lie between the bounds.
DEFAULT = Holes(before=0.18, peak=0.09, apart=0.54, gathered=0.33, buckets=0.18, low=0.85, high=1.19)
EXPANDABLE = Holes(before=0.05, peak=0.03, apart=0.23, gathered=0.36, buckets=0.13, low=0.90, high=1.14)

# How much more is reserved at most where lengths change from step to step, and the order of requests is not known: of
# 10 scenarios that were simulated so, the one that grew most (benchmarks/reserved.json, varied).
CHANGING = 1.34


def causes(moments: Iterable[Moment], micro_batch: int) -> Causes:
    """The causes of a strategy's moments."""
    most: dict[str, int] = {}
    before = peak = 0
    for moment in moments:
        total = moment.fixed + moment.each * micro_batch
        if moment.phase in _BEFORE:
            before = max(before, total)
            continue
        peak = max(peak, total)
        for name, (fixed, each) in moment.parts.items():
            most[name] = max(most.get(name, 0), fixed + each * micro_batch)
    return Causes(before, peak, sum(most.values()) - peak, most.get(_GATHERED, 0), most.get(_BUCKETS, 0))


def reserves(of: Causes, holes: Holes) -> float:
    """Bytes that are expected to be reserved."""
    more = holes.apart * of.apart + holes.gathered * of.gathered + holes.buckets * of.buckets
    return max((1 + holes.peak) * of.peak + more, (1 + holes.before) * of.before)


class Reserving(NamedTuple):
    """What the allocator reserves for a strategy, computed when it is asked for: a search never asks.

    Attributes:
        job: What runs.
        strategy: How.
        moments: The strategy's.
        peak: Bytes of the highest moment of all, a measurement of the machine included.
        expandable: With `expandable_segments:True`.
        less, more: Bytes that uncounted keys may take from the peak, and add to it.
        replays: Whether requests are replayed where their order is known; else it is told from causes, at once.
        workspaces: Whether cuBLAS's workspaces lie among the tensors of a replay; they are in no number.
    """

    job: Job
    strategy: Any
    moments: tuple[Moment, ...]
    peak: int
    expandable: bool
    less: int = 0
    more: int = 0
    replays: bool = True
    workspaces: bool = True

    def __call__(self) -> ReservedBytes:
        """Compute it."""
        holes = EXPANDABLE if self.expandable else DEFAULT
        of = causes(self.moments, self.strategy.micro_batch)
        counted = max(of.peak, of.before) or 1
        replayed = self.replayed() if self.replays else 0
        expected = (max(replayed, counted) if replayed else reserves(of, holes)) * self.peak / counted
        least = max(self.peak - self.less, int((expected - self.less) * holes.low))
        most = expected
        if varied_mean(self.job.training):
            varied = self.replayed(True) if self.replays else 0
            most = max(expected, varied * self.peak / counted if varied else expected * CHANGING)
        return ReservedBytes(int(expected), least, int((most + self.more) * holes.high))

    def replayed(self, varied: bool = False) -> int:
        """Bytes by a replay of the requests; 0 where their order is not known.

        Args:
            varied: Steps have the lengths of sequences whose mean is asked, not all the longest.
        """
        from dsgen.memory.replaying import reserved  # few questions need it

        return reserved(self._replay(varied))

    def finds_room(self, room: int) -> bool:
        """Whether a replay of the requests has a place for each in the bytes that a GPU leaves to torch."""
        from dsgen.memory.replaying import finds_room

        of = causes(self.moments, self.strategy.micro_batch)
        measured = self.peak / (max(of.peak, of.before) or 1)  # by how much somebody's tensors are larger
        replay = self._replay(bool(varied_mean(self.job.training)))
        return finds_room(replay._replace(room=int(room / measured)))

    def _replay(self, varied: bool) -> "Replay":
        from dsgen.memory.replaying import Replay

        job, strategy = self.job, self.strategy
        single = strategy.micro_batch == 1 and tells(job, strategy.tp)
        return Replay(
            asked_of(job, strategy, single),
            batchless(strategy),
            kept_by_autograd(strategy.buffers, strategy.checkpointing),
            strategy.accumulation,
            strategy.micro_batch,
            job.world,
            job.hardware.usable_memory_bytes,
            self.expandable,
            varied,
            workspace_bytes(job.hardware) if self.workspaces else 0,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reserving) and self() == other()

    def __hash__(self) -> int:
        return hash(self())

    def __repr__(self) -> str:
        return repr(self())
