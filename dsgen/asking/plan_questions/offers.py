"""The plans that a program would allow which did one thing otherwise: those worth a line beside the plan as asked."""

from collections.abc import Iterable
from typing import NamedTuple

from dsgen.memory.estimates import GATHERS
from dsgen.planning.candidates import Candidate
from dsgen.planning.launchers import threads_matter
from dsgen.planning.planner import TIE, Plan, best, offloaded, plan
from dsgen.planning.program_changes import ProgramChange, both_keys, degrees, fewest, program_changes, usual_network
from dsgen.shapes.errors import DsgenError
from dsgen.strategies.strategies import Layout

__all__ = ["Offer", "offers"]

FREE_GAIN = 0.10  # of the speed, from which on a change that trains the same is worth a line
STARTED_GAIN = 0.05  # the same for another launcher, which leaves the program as it is
OTHER_GAIN = 0.25  # the same for one that trains something else; asked only where the plan offloads, or may not fit
# Share of a GPU that optimizer states take at least where fewer bits of them are asked for beside a plan at ease: of
# 13B on 8 A100-40G they take 32 % and the gain is 5 %, of 34B on 8 A100-80G 43 % and it is 16 %.
STATES = 0.20
AT_EASE = True, 0  # a plan that surely fits and offloads nothing
MOST_OFFERS = 3  # a person reads no more of them beside a table; two of them at once are no further one


class Offer(NamedTuple):
    """A change of the program with the best plan that it allows.

    Attributes:
        change: What the program does otherwise.
        chosen: The best strategy then.
        gain: How much faster than the plan as asked, as a share of its speed.
        saved_bytes: How much less it takes of a GPU than the plan as asked; negative where it takes more.
        simpler: Whether less is offloaded than in the plan as asked.
        plain: Whether nothing is.
        surer: Whether it surely fits, and the plan as asked may not.
    """

    change: ProgramChange
    chosen: Candidate
    gain: float
    saved_bytes: int
    simpler: bool
    plain: bool
    surer: bool


def offers(asked: Plan) -> tuple[Offer, ...]:
    """The changes of the program that are worth it: what trains the same first, of that what surely fits where the plan
    as asked may not, what saves an offload and is as fast as any within the model's error, then the fastest.

    One that trains the same is worth it where it is FREE_GAIN faster (a launcher: STARTED_GAIN), or saves an offload or
    a doubt at no loss of speed; one that trains something else only where the plan as asked offloads and it is
    OTHER_GAIN faster, or where it surely fits and the plan as asked may not. Before them, where nobody named a network,
    the one that nodes of these GPUs have in their vendor's own system.
    """
    changes = list(program_changes(asked.job))
    told = [offer for change in changes if (offer := _offer(asked, change)) is not None]
    split = [offer for change in degrees(asked.job) if (offer := _offer(asked, change)) is not None]
    told += sorted(split, key=lambda offer: -offer.gain)[:1]
    near = (1 + max((offer.gain for offer in told if offer.change.same), default=0.0)) * (1 - TIE)

    def order(offer: Offer) -> tuple[bool, bool, bool, float]:
        same = offer.change.same
        return not same, not offer.surer, not (same and offer.simpler and 1 + offer.gain >= near), -offer.gain

    usual = usual_network(asked.job)
    network = _offer(asked, usual) if usual is not None else None
    beside = _with_both(asked, changes, sorted(told, key=order)[:MOST_OFFERS])
    several = _at_once(asked, changes, told)
    beside += [several] if several is not None else []
    return tuple(beside if network is None else [network, *beside])


def _with_both(asked: Plan, changes: Iterable[ProgramChange], told: list[Offer]) -> list[Offer]:
    """Those with both keys of ZeRO++ at once behind each alone, where that is FREE_GAIN faster than the better one."""
    both = both_keys(changes)
    offer = _offer(asked, both) if both is not None else None
    if both is None or offer is None:
        return told
    alone = [place for place, one in enumerate(told) if one.change.option in both.option]
    if 1 + offer.gain < (1 + max((told[place].gain for place in alone), default=0.0)) * (1 + FREE_GAIN):
        return told
    behind = max(alone, default=-1) + 1
    return [*told[:behind], offer, *told[behind:]]


def _at_once(asked: Plan, changes: Iterable[ProgramChange], told: Iterable[Offer]) -> Offer | None:
    """Several that train the same: surer or with less offload than with any of them alone, or FREE_GAIN faster.

    Asked where the plan as asked may not fit or offloads, and none of them alone mends that and is as fast as any.
    """
    before = asked.chosen
    same = [offer for offer in told if offer.change.same]
    most = max((offer.gain for offer in same), default=0.0)
    at_ease = [offer for offer in same if _rank(offer.chosen) == AT_EASE]
    if _rank(before) == AT_EASE or any(1 + offer.gain >= (1 + most) * (1 - TIE) for offer in at_ease):
        return None
    least = max([_rank(before), *(_rank(offer.chosen) for offer in same)])
    alone = [offer.gain for offer in same if _rank(offer.chosen) == least]
    fastest = (1 + max(alone, default=0.0)) * (1 + FREE_GAIN)
    made: dict[str, Offer] = {}

    def holds(change: ProgramChange) -> bool:
        offer = _offer(asked, change)
        if offer is None:
            return False
        rank, speed = _rank(offer.chosen), 1 + offer.gain
        if made:  # one less than the first, which had all
            first = next(iter(made.values()))
            good = rank >= _rank(first.chosen) and speed >= (1 + first.gain) * (1 - TIE)
        else:
            good = rank > least or (rank == least and speed >= fastest)
        if good:
            made[change.option] = offer
        return good

    several = fewest((change for change in changes if _concerns(asked, change)), holds)
    return made[several.option] if several is not None else None


def _rank(candidate: Candidate) -> tuple[bool, int]:
    """How sure a plan is, and how little it offloads: the larger, the better."""
    return candidate.sure, -offloaded(candidate.strategy)


def _offer(asked: Plan, change: ProgramChange) -> Offer | None:
    if not _concerns(asked, change):
        return None
    before = asked.chosen
    least = STARTED_GAIN if change.field == "launcher" else FREE_GAIN if change.same else OTHER_GAIN

    def worth(layout: Layout, speed: float, surer: bool = False) -> bool:
        gain = speed / before.speed - 1
        relieved = surer or (change.same and offloaded(layout) < offloaded(before.strategy))
        return gain >= least or (relieved and gain >= -TIE)

    try:
        job = change.applied(asked.job)
        after = best(job, worth) if before.sure else plan(job).chosen
    except DsgenError:  # refused for itself: a chunked loss behind an encoder, a pin that excludes all then
        return None
    if after is None or (not after.sure and before.sure):
        return None
    surer, simpler = after.sure and not before.sure, offloaded(after.strategy) < offloaded(before.strategy)
    if not worth(after.strategy, after.speed, surer):
        return None
    gain = after.speed / before.speed - 1
    saved = before.memory.gpu.needed_bytes - after.memory.gpu.needed_bytes
    return Offer(change, after, gain, saved, simpler, offloaded(after.strategy) == 0, surer)


def _concerns(asked: Plan, change: ProgramChange) -> bool:
    """Whether a change can be worth a line beside a plan at all."""
    before, strained = asked.chosen, _rank(asked.chosen) < AT_EASE
    if not (change.same or strained):
        return False
    if change.field == "launcher":
        return threads_matter(asked.job, before.strategy)
    if change.field == "lora_fp32":  # DeepSpeed casts them at any other stage
        return before.strategy.stage == GATHERS
    states = before.memory.gpu.parts.get("optimizer states", 0)
    return change.field != "optimizer" or strained or states >= STATES * before.memory.gpu.limit_bytes
