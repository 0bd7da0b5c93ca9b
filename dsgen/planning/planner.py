"""A Job to a Plan: try every strategy, reject what cannot run or fit with its number, take the best of the rest."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import attrs

from dsgen.families import family_of
from dsgen.jobs.contradictions import idle_in_plans
from dsgen.jobs.fabrics import alone, assumes
from dsgen.jobs.job import Job
from dsgen.jobs.samples import said_of_scores
from dsgen.memory import UNITS_OF, Place, estimate
from dsgen.memory.placed import placed
from dsgen.planning.candidates import Candidate, Search, Worth, search
from dsgen.planning.lengths import long_step
from dsgen.planning.whole_nodes import counts_on_a_whole_node
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.makers import maker_of
from dsgen.shapes.units import gib
from dsgen.shapes.value import Value
from dsgen.strategies.strategies import Layout, Rejection
from dsgen.strategies.wishes import check_wishes

__all__ = ["TIE", "TWICE", "WAITING", "Plan", "best", "compared", "contenders", "decide", "doubt", "offloaded", "plan"]

# Speeds closer than this are equal: the cost model cannot tell them apart, whose median absolute error on published
# runs is no less (docs/speed.md).
TIE = 0.05
# How much faster a part must be to be chosen with objective balanced, our choices. Published runs tell little of them
# (docs/unseen.md, what a plan trusts less): with the optimizer in RAM a quarter fell about 8 % short of the speed that
# dsgen says, but without any of the parts about 10 %; with tensor parallelism about 17 %, of seven runs, none of which
# is AutoTP's own. With the parameters in RAM too they fell shorter, in sources that differ much. Of NVMe no run tells:
# drives depend on their filling. They cost at most what they are: a plan without the part is up to 11 % slower than the
# same with the optimizer in RAM, 43 % with NVMe, 18 % with AutoTP; `--objective throughput` has none. Of the 11,562
# plans of golden/matrix.csv 463 would be others without that of RAM, 10 % faster in the median by what is predicted,
# and 239 without that of AutoTP, 11 %; with 0.9 for NVMe, too, 21 would, 35 %.
DISCOUNT_OFFLOAD = {"none": 1.0, "cpu": 0.9, "nvme": 0.7}
DISCOUNT_TENSOR_PARALLEL = 0.85
# Our choices too: with objective memory, how many times slower than the fastest a strategy may be; the share of a GPU
# up to which plain data parallelism is the simplest way; and that of a step spent on exposed communication of which a
# person should know, which costs a line of warning.
MEMORY_PRICE = 2.0
ROOMY = 0.5
WAITING = 0.5
SAME_SPEED = 0.005  # share of speeds below which a table says that they are equal
SAME_BYTES = 50 * 2**20  # a difference that would print as 0.0 GiB
TWICE = 1.995  # from here on a ratio is told as one, not in percent: it is 2.00 when it is rounded
# Rivals kept in the plan: our choice, the best of each of four stages, and two more. Of 34 jobs (six GPUs, six models,
# one node) 17 have at most two kinds besides the chosen one's, and the others up to 19.
RUNNERS_UP = 6
_PLACES = ("none", "cpu", "nvme")  # the nearest first


@attrs.frozen(kw_only=True, slots=False, repr=False, eq=False)
class Plan(Value):
    """The chosen strategy, its rivals, and what was rejected with the number that says why."""

    job: Job = attrs.field(repr=False)
    chosen: Candidate
    reason: str
    warnings: tuple[str, ...] = ()

    @functools.cached_property
    def _all(self) -> Search:
        """Every layout; the choice itself weighs only those that can win."""
        return search(self.job)

    @functools.cached_property
    def runners_up(self) -> tuple[Candidate, ...]:
        """The best of other kinds, the fastest first."""
        return _rivals(_ranked(self._all.fitting or self._all.uncertain), self.chosen)

    @property
    def rejections(self) -> tuple[Rejection, ...]:
        """What cannot run, does not fit, or may not where another surely does."""
        search = self._all
        return search.rejections if not search.fitting else (*self._doubts(search), *search.rejections)

    def _doubts(self, search: Search) -> Iterator[Rejection]:
        """What may fit, with what it would gain where that is worth finding out."""
        for item in search.uncertain:
            told, gain = doubt(item), item.speed / self.chosen.speed - 1
            yield told._replace(why=f"{told.why}; {gain:.0%} faster if it does") if gain >= TIE else told


def plan(job: Job) -> Plan:
    """Choose a strategy.

    Args:
        job: What is there and what is wanted.

    Returns:
        The plan; its warnings say when the fit is uncertain.

    Raises:
        DsgenError: A wish that no strategy can have, pins that exclude everything, a batch that divides nowhere; or
            nothing fits: with the smallest change that would make it fit.
    """
    check_wishes(job)
    made = _placed(decide(job, contenders(job)))
    said = _faster_alone(made)
    return made if said is None else attrs.evolve(made, warnings=(*made.warnings, said))


def _placed(made: Plan) -> Plan:
    """A plan that is uncertain where a replay on a GPU of that size runs out of memory; with what would help."""
    memory = placed(made.chosen.memory)
    if memory.verdict is made.chosen.memory.verdict:
        return made
    said = (
        "it may run out of memory though its tensors fit: torch's allocator, replayed on a GPU of this size, has no "
        "place for one of them"
    )
    grows = maker_of(made.job.hardware.vendor).grows
    said += "; with --expandable-segments its segments grow" if grows else "; a smaller micro-batch takes less"
    return attrs.evolve(made, chosen=attrs.evolve(made.chosen, taken=memory), warnings=(*made.warnings, said))


def _faster_alone(made: Plan) -> str | None:
    """What to say where one node trains faster in all than these, whose GPUs wait for the network that they have."""
    job, chosen = made.job, made.chosen
    if job.nodes == 1 or assumes(job) or chosen.cost.communication_share <= WAITING:
        return None
    one, now = alone(job), chosen.speed * job.world
    try:
        there = best(one, lambda _, speed: speed * one.world > now)
    except DsgenError:  # a batch that its GPUs cannot share, or a pin
        return None
    if there is None:
        return None
    each = f"{there.speed * one.world:,.0f} tokens/s in all, these {job.nodes} nodes {now:,.0f}"
    return f"one node alone trains faster (--nodes 1, no --network): {there.strategy}, {each}"


def best(job: Job, worth: Worth) -> Candidate | None:
    """The strategy that `plan` chooses where it is worth it and surely fits; else None, and soon where none can be.

    Args:
        job: What is there and what is wanted.
        worth: Whether a layout is worth being chosen at a speed, and so at any higher one.

    Raises:
        DsgenError: As `plan`, but where nothing fits.
    """
    check_wishes(job)
    search = contenders(job, worth)
    if not search.fitting:
        return None
    chosen, _ = _choose(job, _ranked(search.fitting), True)
    return chosen if chosen.sure and worth(chosen.strategy, chosen.speed) else None


def contenders(job: Job, worth: Worth | None = None) -> Search:
    """What a choice depends on: layouts that could be chosen, or are faster than what is; all where nothing fits.

    With `worth` those alone that surely fit, and none of it matters where none of them is worth being chosen.
    """
    objective = job.training.objective
    fastest = best = 0.0
    rivals: list[tuple[float, tuple[int, ...]]] = []  # how far each one's speed is trusted, and how simple it is

    def matters(layout: Layout, speed: float, rival: Candidate) -> bool:
        nonlocal fastest, best
        fastest, best = max(fastest, rival.speed), max(best, _trusted(rival.strategy, rival.speed))
        if objective == "memory":
            return speed * MEMORY_PRICE >= fastest
        rivals.append((_trusted(rival.strategy, rival.speed), _simplicity(rival)))
        if speed >= fastest or objective != "balanced":
            return speed >= fastest
        trusted, simple = _trusted(layout, speed), _parts(layout, 0)
        # What is neither faster nor simpler than one that fits is never taken.
        return trusted >= best * (1 - TIE) and not any(trusted <= other and simple >= than for other, than in rivals)

    return search(job, matters, all_where_none_fits=worth is None, worth=worth)


def decide(job: Job, search: Search) -> Plan:
    """The plan of a search that is already done.

    Raises:
        DsgenError: As `plan`, when the search found nothing.
    """
    warnings: tuple[str, ...] = ()
    candidates = search.fitting
    if not candidates:
        if not search.uncertain:
            from dsgen.planning.remedies import nothing_fits  # most plans have something that fits

            raise nothing_fits(job, search)
        candidates = search.uncertain
        warnings = ("no strategy surely fits: the chosen one may run out of memory (see the interval)",)
    ranked = _ranked(candidates)
    chosen, reason = _choose(job, ranked, bool(search.fitting))
    if chosen.cost.communication_share > WAITING:
        share = f"{chosen.cost.communication_share:.0%}"
        warnings = (*warnings, f"the network is the bottleneck: GPUs wait for it {share} of each step")
    if said := long_step(job, chosen.strategy, chosen.cost.seconds):
        warnings = (*warnings, said)
    if said := said_of_scores(job, chosen.strategy.micro_batch == 1):
        warnings = (*warnings, said)
    if said := counts_on_a_whole_node(job, chosen.memory.host):
        warnings = (*warnings, said)
    if chosen.strategy.precision == "fp16" and family_of(job.model).overflows:
        said = f"{job.names.get('model', 'the model')} exceeds what fp16 holds: its loss becomes infinite or NaN"
        warnings = (*warnings, f"{said}; take a GPU with bf16 (Ampere or later), or --precision fp32")
    if chosen.parts.warning:
        warnings = (*warnings, chosen.parts.warning)
    idle = idle_in_plans(job.training, job.provenance)
    return Plan(job=job, chosen=chosen, reason=reason, warnings=(*job.warnings, *idle, *warnings))


def _ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The fastest first, of equals the simplest."""
    return sorted(candidates, key=lambda item: (-item.speed, _simplicity(item)))


def _choose(job: Job, ranked: list[Candidate], sure: bool) -> tuple[Candidate, str]:
    fastest = ranked[0]
    objective = job.training.objective
    first = f"the fastest that {'fits' if sure else 'may fit'}"
    among = "" if sure else "of what may fit, "
    if objective == "throughput":
        return fastest, first
    if objective == "memory":
        near = [item for item in ranked if item.speed * MEMORY_PRICE >= fastest.speed]
        leanest = min(near, key=lambda item: (item.memory.gpu.peak_bytes, _simplicity(item)))
        return leanest, f"{among}the least GPU memory at no less than 1/{MEMORY_PRICE:g} of the best speed"
    best = max(_trusted(item.strategy, item.speed) for item in ranked)
    near = [item for item in ranked if _trusted(item.strategy, item.speed) >= best * (1 - TIE)]
    simplest = min(near, key=_simplicity)  # the first, so the fastest, of the simplest
    return simplest, first if simplest is fastest else among + _rather(job, simplest, fastest)


def _rather(job: Job, chosen: Candidate, fastest: Candidate) -> str:
    """Why one is taken that is not the fastest, true of the two as they are: no discount is a speed."""
    simpler = _simplicity(chosen) < _simplicity(fastest)
    if simpler and _tied(chosen, fastest):
        same = _parts(chosen.strategy, 0)[:2] == _parts(fastest.strategy, 0)[:2]
        shares = same and job.world > 1 and chosen.strategy.stage > fastest.strategy.stage
        fewer = "shares more of the states than" if shares else "simpler than"
        return f"{fewer} {fastest.strategy}, and as fast within the model's error"
    faster = f"{fastest.speed / chosen.speed - 1:.0%} faster"
    if not simpler:  # all that are near the best by what is trusted are less doubted, and it is not among them
        return f"{fastest.strategy} is {faster}: {_doubted(fastest, chosen)} must win by more"
    margin = _trusted(chosen.strategy, 1.0) / _trusted(fastest.strategy, 1.0) / (1 - TIE) - 1
    must = f"{_doubted(fastest, chosen)} must win by more than {margin:.0%}"
    return f"simpler than {fastest.strategy}, which is {faster}: {must}"


def compared(plan: Plan, rival: Candidate) -> str:
    """How much slower or faster a rival is, and why one that is as fast or faster is not taken."""
    chosen, objective = plan.chosen, plan.job.training.objective
    ratio = chosen.speed / rival.speed
    if ratio > TWICE:
        return f"{ratio:.1f}x slower"
    equal = abs(ratio - 1) < SAME_SPEED
    if ratio > 1 and not equal:
        return f"{1 - 1 / ratio:.0%} slower"
    pace = "as fast" if equal else f"{1 / ratio - 1:.0%} faster"
    if objective == "memory":
        more = rival.memory.gpu.needed_bytes - chosen.memory.gpu.needed_bytes
        return f"{pace}, with {gib(more)} GiB more" if more >= SAME_BYTES else pace
    if objective == "throughput":
        return pace
    simpler = _simplicity(chosen) < _simplicity(rival)
    if equal and _simplicity(rival) >= _simplicity(chosen):
        return f"{pace}, and not simpler"
    if simpler and _tied(chosen, rival):
        return f"{pace}, within the model's error"
    return f"{pace}, but {_doubted(rival, chosen)} must win by more"


def _tied(chosen: Candidate, other: Candidate) -> bool:
    """Whether another one is no faster than the cost model can tell."""
    return chosen.speed >= other.speed * (1 - TIE)


def _doubted(item: Candidate, beside: Candidate) -> str:
    """The parts of one for which its speed is trusted less than another's."""
    one, other = item.strategy, beside.strategy
    places = [DISCOUNT_OFFLOAD[each.offload_optimizer] * DISCOUNT_OFFLOAD[each.offload_param] for each in (one, other)]
    names = (["offload"] if places[0] < places[1] else []) + (["AutoTP"] if one.tp > 1 and other.tp == 1 else [])
    return " and ".join(names) or "it"


def _trusted(chosen: Layout, speed: float) -> float:
    """Speed after a discount for each part whose cost is known less well: it must win by more than its error."""
    trusted = speed * DISCOUNT_OFFLOAD[chosen.offload_optimizer] * DISCOUNT_OFFLOAD[chosen.offload_param]
    return trusted * DISCOUNT_TENSOR_PARALLEL if chosen.tp > 1 else trusted


def doubt(item: Candidate) -> Rejection:
    """Why a strategy that may fit is not taken where another surely does: the place that it may overrun most."""
    memory = item.memory
    over = {
        name: place.high_bytes - place.limit_bytes
        for name, place in (("gpu", memory.gpu), ("host", memory.host), ("nvme", memory.nvme))
    }
    name = max(over, key=lambda name: over[name])
    place: Place = getattr(memory, name)
    numbers = f"{gib(place.least_bytes)} to {gib(place.high_bytes)} of {gib(place.limit_bytes)} {UNITS_OF[name]}"
    why = f"may not fit: needs {numbers}"
    return Rejection(layout=item.strategy, why=why, missing_bytes=over[name], place=name, uncertain=True)


def _fullest_with_one(item: Candidate) -> float:
    """Share of the GPU that a candidate may take at most with one sequence."""
    gpu = estimate(item.job, attrs.evolve(item.strategy, micro_batch=1), item.parts).gpu
    return gpu.high_bytes / gpu.limit_bytes


def _simplicity(item: Candidate) -> tuple[int, ...]:
    """Fewer moving parts first: offload, tensor parallelism, ZeRO stage, recomputation."""
    # Stages 1 and 2 differ in nothing that a user sees; of the two the one that holds less is the simpler to fit. So it
    # is beside plain data parallelism, whose copies of all states leave less for the next longer sequence.
    tight = item.strategy.stage == 0 and item.job.world > 1 and _fullest_with_one(item) > ROOMY
    return _parts(item.strategy, 2 if tight else 0)


def _parts(chosen: Layout, plain: int) -> tuple[int, ...]:
    """Moving parts, those that matter most first; `plain` is how many plain data parallelism is."""
    return (
        offloaded(chosen),
        int(chosen.tp > 1),
        (plain, 2, 1, 3)[chosen.stage],
        int(chosen.checkpointing),
        chosen.tp,
    )


def offloaded(chosen: Layout) -> int:
    """How much is away from the GPU: 0 for nothing, 1 for optimizer or parameters in RAM, up to 4 for both on NVMe."""
    return _PLACES.index(chosen.offload_optimizer) + _PLACES.index(chosen.offload_param)


def _rivals(ranked: list[Candidate], chosen: Candidate) -> tuple[Candidate, ...]:
    """Other candidates, one for each stage, offload and degree, the fastest first, with the best of each stage.

    Of the chosen one's own kind only one that is faster.
    """
    best: dict[tuple[int, str, str, int], Candidate] = {}
    for item in ranked:
        best.setdefault(_family(item.strategy), item)
    if (own := best.get(_family(chosen.strategy))) is not None and own.speed <= chosen.speed:
        del best[_family(chosen.strategy)]  # a faster one stays: the reason may name it
    stages: dict[int, Candidate] = {}
    for item in best.values():
        stages.setdefault(item.strategy.stage, item)
    first = list(stages.values())
    others = [item for item in best.values() if item not in first]
    kept = [*first, *others][:RUNNERS_UP]
    return tuple(item for item in best.values() if item in kept)


def _family(item: Layout) -> tuple[int, str, str, int]:
    return (item.stage, item.offload_optimizer, item.offload_param, item.tp)
