"""What the parts of a model queue on the host, the GPU and the links, pass by pass, and when all of it is done."""

from collections.abc import Sequence
from typing import NamedTuple

from dsgen.cost.communication import NO_COLLECTIVES, Collectives
from dsgen.cost.flow import QueuedRow, loads, queued
from dsgen.cost.handling import GATHERS, Handling
from dsgen.cost.micro_batches import Pass
from dsgen.cost.offload import NO_OFFLOAD, Offload
from dsgen.memory.filled_buckets import Buckets
from dsgen.memory.numbers import Numbers
from dsgen.shapes.profiles import Model
from dsgen.strategies.strategies import Strategy

__all__ = ["PartShares", "Queues", "hidden_copies", "shares_of", "waits_for_gpu", "with_sums"]

FETCHES = 7  # of a block, each of a linear layer's weight; a Llama's
OUTSIDE = ("before", "head")  # parts of a model that are no blocks


class PartShares(NamedTuple):
    """What one of each part's equal ones has of a whole, by the order of a run.

    Attributes:
        gathers: Of all parameters that a pass forward gathers, and of those that a pass backward does.
        gradients: Of all gradients: where embedding and head are one, theirs is whole when backward ends.
        reduced: Of all gradients, those that leave beside it.
        late: Of all gradients, those that leave when backward is over.
        bucket: Of all gradients, what a bucket holds before it is reduced; nothing where each part is reduced at once.
    """

    gathers: tuple[float, ...]
    gradients: tuple[float, ...]
    reduced: tuple[float, ...]
    late: float
    bucket: float = 0.0


def shares_of(
    run: Sequence[Pass], numbers: Numbers, model: Model, adapters: bool, late: float | None, bucket: int
) -> PartShares:
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
    return PartShares(gathers, gradients, reduced, late, bucket / max(numbers.trained, 1))


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
            seconds = queued(rows)
            if repeats == 1:
                return seconds
            return seconds + (repeats - 1) * (seconds if waits_for_gpu(self.strategy) else max(loads(rows)))
        if self._kept is None or self._kept[0] is not order:
            self._kept = (order, *self._keeping(order))
        _, host, behind = self._kept
        return host + queued(rows, behind)

    def _keeping(self, order: Sequence[Pass]) -> tuple[float, float]:
        """Of the passes that keep their gradients, all but the last: the host's seconds, and by which the GPU lags."""
        more, rows = self.strategy.accumulation - 1, _rows(self, order, NO_COLLECTIVES, NO_OFFLOAD, False)
        host = device = 0.0
        for repeats, (launches, _, runs, _) in rows:
            host, device = host + repeats * launches, device + repeats * runs
        return more * host, queued(rows) - host + (more - 1) * max(0.0, device - host)


def with_sums(order: tuple[Pass, ...], seconds: float, host: float) -> tuple[Pass, ...]:
    """Passes whose blocks wait for the sums of a tensor-parallel group: seconds of all of them, and what calls take."""
    blocks = 0
    for one in order:
        blocks += 0 if one.name in OUTSIDE else one.repeats * (1 + one.again)
    parts: list[Pass] = []
    for one in order:
        if one.name not in OUTSIDE:
            share = (1 + one.again) / max(blocks, 1)
            one = Pass(*one[:-2], one.host + share * host, share * seconds)
        parts.append(one)
    return tuple(parts)


def hidden_copies(order: Sequence[Pass], buckets: Buckets, seconds: float) -> float:
    """Of the seconds in which a pass's gradients leave one GPU for the CPU, those beside kernels (stages 1 and 2).

    The host waits for the copies of a bucket (stage_1_and_2.py, _wait_for_offload_copies). What it had launched before
    runs beside them: the kernels between the last gradient of the bucket and the one that found no room in it, and the
    second forward of a block whose first gradient that is. A bucket is emptied at any gradient, so that of a block's
    backward it is a linear layer's share. Only of one GPU: of several each also waits for the copies of the others,
    which a simulation of one rank does not show.

    Args:
        order: The parts, in the order in which they run.
        buckets: Those of the pass.
        seconds: What all of its gradients take.
    """
    blocks, forward, backward = 0, 0.0, 0.0
    for one in order:
        if one.name in OUTSIDE:
            continue
        if one.forward:
            blocks, forward = blocks + one.repeats, forward + one.repeats * one.device
        else:
            backward += one.repeats * one.device
    again = forward if any(one.again for one in order) else 0.0
    copied, between = seconds / max(buckets.calls, 1), (backward - again) / FETCHES / max(blocks, 1)
    within = max(buckets.calls - 1 - buckets.begun, 0)
    return buckets.begun * min(copied, between + again / max(blocks, 1)) + within * min(copied, between)


def waits_for_gpu(strategy: Strategy) -> bool:
    """Whether the host waits for the GPU where a pass's gradients have left (stage3.py and stage_1_and_2.py)."""
    leaves = strategy.buffers.overlap_comm or strategy.offload_optimizer != "none"
    return strategy.stage == GATHERS or (strategy.stage > 0 and leaves)


def _rows(queues: Queues, run: Sequence[Pass], moved: Collectives, away: Offload, reduces: bool) -> list[QueuedRow]:
    """Every part on the host, on the link before it is used, on the GPU, and on the network and the link behind it."""
    own_work, passes = queues.own_work, queues.strategy.accumulation
    later = 1.0 if reduces else (passes - 2) / max(passes - 1, 1)  # share of these passes that are not the first
    summed = own_work.summed * later if passes > 1 else 0.0
    if moved is NO_COLLECTIVES and away is NO_OFFLOAD:
        return _rows_alone(queues, run, reduces, summed)
    if queues.strategy.stage == GATHERS:
        return _rows_gathered(queues, run, moved, away)
    return _rows_reduced(queues, run, moved, reduces, summed)


def _rows_gathered(queues: Queues, run: Sequence[Pass], moved: Collectives, away: Offload) -> list[QueuedRow]:
    """At stage 3, where collectives and kernels take turns.

    A module waits for all gathers that were asked for before it, and no more than two are on their way
    (partitioned_param_coordinator.py). That they hide nothing was concluded from 54 runs of 175B to 2T parameters
    (DeepSpeed's blog on Azure); docs/speed.md has what it makes of other sources' runs.

    Where they are on the stream of the kernels (no overlap_comm), the host waits in every fetch for the one before the
    last: beside a gather it comes as far as the next layer, of which a pass that goes forward again fetches each twice,
    and beside a reduction as far as the next gather. Kernels wait for what it then has left.
    """
    shares, own_work, issue = queues.shares, queues.own_work, queues.issue
    beside = queues.strategy.buffers.overlap_comm
    copied = own_work.gathered / max(moved.gather + moved.again, 1e-9)
    rows: list[QueuedRow] = []
    for one, share, made, leaves in zip(run, shares.gathers, shares.gradients, shares.reduced, strict=True):
        gather, fetches = (moved.gather, moved.gathers) if one.forward else (moved.again, moved.gathers_again)
        reduce = leaves * moved.reduce
        host = one.host + made * own_work.dispatched + issue * (share * fetches + made * moved.reduces)
        device = one.device + made * own_work.reduced
        gathered = share * gather * (1.0 + copied)
        if gathered and not beside:
            hidden = min(gathered, host * min(1.0, share * fetches / (FETCHES * (1 + one.again))))
            if made and share * fetches:
                hidden += min(reduce, host * min(1.0, made * moved.reduces / (share * fetches)))
            device = max(device, host - hidden)
        device += gathered + reduce
        fetched = share * (away.fetch if one.forward else away.fetch_again)
        behind = leaves * (away.gradients + own_work.reduced) if away.gradients else 0.0
        if not beside:  # all on the stream of the kernels
            device, fetched, behind = device + fetched + leaves * away.gradients, 0.0, 0.0
        rows.append((one.repeats, (host, fetched, device, behind)))
    if shares.late:
        reduce, gradients = shares.late * moved.reduce, shares.late * away.gradients
        rows.append((1, (0.0, 0.0, *((reduce, gradients) if beside else (reduce + gradients, 0.0)))))
    return rows


def _rows_reduced(
    queues: Queues, run: Sequence[Pass], moved: Collectives, reduces: bool, summed: float
) -> list[QueuedRow]:
    """At stages 0 to 2, where what replicas exchange are gradients: from stage 1 on beside backward, with overlap_comm.

    The first bucket leaves when it is full, at once, and nothing is reduced beside what fills it. What follows leaves
    part by part: while a bucket is reduced the next one fills.
    """
    shares, own_work, issue = queues.shares, queues.own_work, queues.issue
    apart = _apart(queues.strategy)
    bucketed = own_work.bucketed if apart else 0.0
    put_apart = own_work.reduced - bucketed
    filling, early, waiting, rest, each = shares.bucket, 1.0 - shares.late, 0.0, 1.0, 0.0
    rows: list[QueuedRow] = []
    for one, made, leaves in zip(run, shares.gradients, shares.reduced, strict=True):
        repeats, host, device = one.repeats, one.host, one.products + one.attention + one.memory + one.waits
        if not made:
            rows.append((repeats, (host, 0.0, device, 0.0)))
            continue
        if not reduces:
            rows.append((repeats, (host + made * own_work.kept, 0.0, device + made * summed, 0.0)))
            continue
        host += made * (own_work.dispatched + issue * moved.reduces)
        if not apart:
            device += made * (own_work.reduced + summed + moved.reduce)
            rows.append((repeats, (host, 0.0, device, 0.0)))
            continue
        # A bucket is put together in front of its reduction, beside kernels, where each runs at half its speed.
        handled, reduce = leaves * put_apart, leaves * moved.reduce
        behind = reduce + handled
        idle = min(leaves * own_work.taken, max(0.0, behind - device))  # taken out when backward waits
        behind += min(handled - idle, device)
        device += made * (summed + bucketed)
        slowed = device + handled + moved.slows * reduce
        if leaves and filling > 0.0:
            whole, each = min(repeats, int(filling / made)), behind / leaves
            if whole:
                rows.append((whole, (host, 0.0, device, 0.0)))
            filling, waiting, repeats = filling - whole * made, waiting + whole * leaves, repeats - whole
            if repeats:  # it is full in the middle of this part
                part, full = filling / made, min(shares.bucket, early)
                waiting, after = waiting + part * leaves, 1.0 - part
                rows.append((1, (part * host, 0.0, part * device, full * each)))
                rest = max(0.0, early - full) / max(early - waiting, 1e-9)
                rows.append((1, (after * host, 0.0, after * slowed, after * rest * behind)))
                filling, repeats, each = 0.0, repeats - 1, 0.0
        if repeats:
            rows.append((repeats, (host, 0.0, slowed, rest * behind)))
    if each:  # the first bucket never is full
        rows.append((1, (0.0, 0.0, 0.0, early * each)))
    if shares.late and reduces:
        rows.append((1, (0.0, 0.0, 0.0, shares.late * (moved.reduce + put_apart))))
    return rows


def _apart(strategy: Strategy) -> bool:
    """Whether reductions have a stream of their own, beside which backward goes on."""
    return strategy.buffers.overlap_comm and 0 < strategy.stage < GATHERS


def _rows_alone(queues: Queues, run: Sequence[Pass], reduces: bool, summed: float) -> list[QueuedRow]:
    """The same where nothing is communicated or away, which is asked of every strategy."""
    shares, own_work, apart = queues.shares, queues.own_work, _apart(queues.strategy)
    each, moved = (own_work.dispatched, own_work.reduced) if reduces else (own_work.kept, 0.0)
    bucketed = own_work.bucketed if apart and reduces else 0.0
    moved -= bucketed
    rows: list[QueuedRow] = []
    for one, made, leaves in zip(run, shares.gradients, shares.reduced, strict=True):
        _, repeats, _, _, products, attention, memory, host, waits = one
        device = products + attention + memory + waits
        if not made:
            rows.append((repeats, (host, 0.0, device, 0.0)))
            continue
        device += made * bucketed
        handled, behind = (leaves if apart else made) * moved, 0.0
        if apart:
            behind = handled + (handled if handled < device else device)
        rows.append((repeats, (host + made * each, 0.0, device + handled + made * summed, behind)))
    if shares.late:
        rows.append((1, (0.0, 0.0, 0.0, 0.0 if queues.strategy.stage == GATHERS else shares.late * moved)))
    return rows
