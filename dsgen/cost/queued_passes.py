"""What the parts of a model queue on the host, the GPU and the links, pass by pass, and when all of it is done."""

from collections.abc import Sequence
from typing import NamedTuple

from dsgen.cost.communication import NO_COLLECTIVES, Collectives
from dsgen.cost.flow import Row, finished, loads
from dsgen.cost.handling import GATHERS, Handling
from dsgen.cost.micro_batches import Pass
from dsgen.cost.offload import NO_OFFLOAD, Offload
from dsgen.memory.numbers import Numbers
from dsgen.shapes.profiles import Model
from dsgen.strategies.strategies import Strategy

__all__ = ["PartShares", "Queues", "shares_of", "waits_for_gpu", "with_sums"]

FETCHES = 7  # of a block, each of a linear layer's weight; a Llama's
OUTSIDE = ("before", "head")  # parts of a model that are no blocks


class PartShares(NamedTuple):
    """What one of each part's equal ones has of a whole, by the order of a run.

    Attributes:
        gathers: Of all parameters that a pass forward gathers, and of those that a pass backward does.
        gradients: Of all gradients: where embedding and head are one, theirs is whole when backward ends.
        reduced: Of all gradients, those that leave beside it.
        late: Of all gradients, those that leave when backward is over.
    """

    gathers: tuple[float, ...]
    gradients: tuple[float, ...]
    reduced: tuple[float, ...]
    late: float


def shares_of(run: Sequence[Pass], numbers: Numbers, model: Model, adapters: bool, late: float | None) -> PartShares:
    """What each part has; what is outside the blocks is half before them, half behind, and there when forward ends."""
    blocks = 0
    for one in run:
        if one.forward and one.name not in OUTSIDE:
            blocks += one.repeats
    each = 1.0 / max(blocks, 1)
    block = min(each, numbers.block / max(numbers.total, 1))
    outside = max(0.0, 1.0 - block * blocks)
    gathers = tuple(
        (outside / 2 if one.forward else 0.0) if one.name in OUTSIDE else block if one.forward else each for one in run
    )
    ends = {"before": outside, "head": 0.0} if model.tied_embeddings else {"before": outside / 2, "head": outside / 2}
    if adapters:
        ends, block = {"before": 0.0, "head": 0.0}, each
    gradients = tuple(0.0 if one.forward else ends.get(one.name, block) for one in run)
    if late is None:
        return PartShares(gathers, gradients, gradients, 0.0)
    early = (1.0 - late) / max(1.0 - ends["before"], each)
    reduced = tuple(0.0 if one.name == "before" else early * made for one, made in zip(run, gradients, strict=True))
    return PartShares(gathers, gradients, reduced, late)


class Queues:
    """How the passes of a step are queued."""

    __slots__ = ("_kept", "issue", "own_work", "shares", "strategy")

    def __init__(self, strategy: Strategy, shares: PartShares, own_work: Handling, issue: float) -> None:
        """Of one step.

        Args:
            strategy: The strategy.
            shares: What each part has of all parameters and gradients.
            own_work: What DeepSpeed does besides.
            issue: Seconds that the host takes to issue a collective.
        """
        self.strategy, self.shares, self.own_work, self.issue = strategy, shares, own_work, issue
        self._kept: tuple[Sequence[Pass], float, float] | None = None

    def passed(self, order: Sequence[Pass], moved: Collectives, away: Offload = NO_OFFLOAD) -> float:
        """Seconds of all micro-batches.

        Where nothing makes the host wait for the GPU between them, it launches the next one beside what the GPU has
        left of this one.

        Args:
            order: The parts, in the order in which they run.
            moved: What replicas exchange.
            away: What is kept elsewhere.
        """
        repeats, rows = self.strategy.accumulation, _rows(self, order, moved, away, True)
        if repeats == 1 or self.strategy.stage >= 2:
            seconds = finished(rows)
            return seconds + (repeats - 1) * (seconds if waits_for_gpu(self.strategy) else max(loads(rows)))
        if self._kept is None or self._kept[0] is not order:
            self._kept = (order, *self._keeping(order))
        _, host, behind = self._kept
        return host + finished(rows, (0.0, 0.0, behind, 0.0))

    def _keeping(self, order: Sequence[Pass]) -> tuple[float, float]:
        """Of the passes that keep their gradients, all but the last: the host's seconds, and by which the GPU lags."""
        more, rows = self.strategy.accumulation - 1, _rows(self, order, NO_COLLECTIVES, NO_OFFLOAD, False)
        host, _, device, _ = loads(rows)
        return more * host, finished(rows) - host + (more - 1) * max(0.0, device - host)


def with_sums(order: tuple[Pass, ...], seconds: float, host: float) -> tuple[Pass, ...]:
    """Passes whose blocks wait for the sums of a tensor-parallel group: seconds of all of them, and what calls take."""
    blocks = 0
    for one in order:
        blocks += 0 if one.name in OUTSIDE else one.repeats * (1 + one.again)
    parts: list[Pass] = []
    for one in order:
        share = 0.0 if one.name in OUTSIDE else (1 + one.again) / max(blocks, 1)
        parts.append(one._replace(waits=share * seconds, host=one.host + share * host))
    return tuple(parts)


def waits_for_gpu(strategy: Strategy) -> bool:
    """Whether the host waits for the GPU where a pass's gradients have left (stage3.py and stage_1_and_2.py)."""
    leaves = strategy.buffers.overlap_comm or strategy.offload_optimizer != "none"
    return strategy.stage == GATHERS or (strategy.stage > 0 and leaves)


def _rows(queues: Queues, run: Sequence[Pass], moved: Collectives, away: Offload, reduces: bool) -> list[Row]:
    """Every part on the host, on the link before it is used, on the GPU, and on the network and the link behind it.

    Collectives of stage 3 and kernels take turns: a module waits for all gathers that were asked for before it, and no
    more than two are on their way (partitioned_param_coordinator.py). That they hide nothing was concluded from 54 runs
    of 175B to 2T parameters (DeepSpeed's blog on Azure); docs/speed.md has what it makes of other sources' runs.

    Where they are on the stream of the kernels (no overlap_comm), the host waits in every fetch for the one before the
    last: beside a gather it comes as far as the next layer, of which a pass that goes forward again fetches each twice,
    and beside a reduction as far as the next gather. Kernels wait for what it then has left.
    """
    strategy, shares, own_work, issue = queues.strategy, queues.shares, queues.own_work, queues.issue
    beside, passes = strategy.buffers.overlap_comm, strategy.accumulation
    apart = beside and 0 < strategy.stage < GATHERS  # reductions have a stream of their own
    later = 1.0 if reduces else (passes - 2) / max(passes - 1, 1)  # share of these passes that are not the first
    summed = own_work.summed * later if passes > 1 else 0.0
    copied = own_work.gathered / max(moved.gather + moved.again, 1e-9) if strategy.stage == GATHERS else 0.0
    if moved is NO_COLLECTIVES and away is NO_OFFLOAD:
        return _rows_alone(queues, run, reduces, apart, summed)
    rows: list[Row] = []
    for one, share, made, leaves in zip(run, shares.gathers, shares.gradients, shares.reduced, strict=True):
        gather, fetches = (moved.gather, moved.gathers) if one.forward else (moved.again, moved.gathers_again)
        left = made if reduces else 0.0
        reduce = leaves * moved.reduce if reduces else 0.0
        calls = share * fetches + left * moved.reduces
        host = one.host + (left * own_work.dispatched if reduces else made * own_work.kept) + issue * calls
        handled = (leaves if apart else made) * own_work.reduced if reduces else 0.0
        device = one.device + handled + made * summed
        gathered = share * gather * (1.0 + copied)
        if gathered and not beside:
            hidden = min(gathered, host * min(1.0, share * fetches / (FETCHES * (1 + one.again))))
            if left and share * fetches:
                hidden += min(reduce, host * min(1.0, left * moved.reduces / (share * fetches)))
            device = max(device, host - hidden)
        device, behind = device + gathered, 0.0
        fetched = share * (away.fetch if one.forward else away.fetch_again)
        if strategy.stage == GATHERS:
            device, behind = device + reduce, leaves * (away.gradients + own_work.reduced) if away.gradients else 0.0
            if not beside:  # all on the stream of the kernels
                device, fetched, behind = device + fetched + leaves * away.gradients, 0.0, 0.0
        elif apart:
            # A bucket is put together in front of its reduction, beside kernels, where each runs at half its speed.
            device, behind = device + moved.slows * reduce, reduce + handled + min(handled, one.device)
        else:
            device += reduce
        rows.append((one.repeats, (host, fetched, device, behind)))
    if shares.late:
        reduce, gradients = shares.late * moved.reduce if reduces else 0.0, shares.late * away.gradients
        if strategy.stage == GATHERS:
            last = (reduce, gradients) if beside else (reduce + gradients, 0.0)
        else:
            last = 0.0, reduce + (shares.late * own_work.reduced if reduces else 0.0)
        rows.append((1, (0.0, 0.0, *last)))
    return rows


def _rows_alone(queues: Queues, run: Sequence[Pass], reduces: bool, apart: bool, summed: float) -> list[Row]:
    """The same where nothing is communicated or away, which is asked of every strategy."""
    shares, own_work = queues.shares, queues.own_work
    each, moved = (own_work.dispatched, own_work.reduced) if reduces else (own_work.kept, 0.0)
    rows: list[Row] = []
    for one, made, leaves in zip(run, shares.gradients, shares.reduced, strict=True):
        device, behind = one.products + one.attention + one.memory + one.waits, 0.0
        handled = (leaves if apart else made) * moved
        if apart:
            behind = handled + min(handled, device)
        rows.append((one.repeats, (one.host + made * each, 0.0, device + handled + made * summed, behind)))
    if shares.late:
        rows.append((1, (0.0, 0.0, 0.0, 0.0 if queues.strategy.stage == GATHERS else shares.late * moved)))
    return rows
