"""Every strategy of a Job at its best micro-batch: what fits, what may fit, and what is rejected with its number."""

import functools
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import attrs

from dsgen.cost import StepCost, cost, most_speed
from dsgen.jobs.job import Job
from dsgen.jobs.samples import varied_mean
from dsgen.memory import (
    MemoryEstimate,
    Parts,
    Room,
    Verdict,
    estimate,
    fits,
    resident_bytes,
    room,
    sequence_bytes,
    widened,
)
from dsgen.shapes.value import Value
from dsgen.strategies.buffers import Buffers, choose
from dsgen.strategies.strategies import Layout, Rejection, Strategy, batches, layouts, places_are_pinned, strategy

__all__ = ["ENOUGH", "FILLED", "Candidate", "Matters", "Search", "Worth", "rises", "search", "sized"]

# Of the best speed of a layout: a smaller micro-batch that reaches it is taken where the larger ones leave little
# memory. Our choice: it costs up to 3 % of speed, less than the cost model can tell (planner.TIE).
ENOUGH = 0.97
# Of what a process can get of a GPU: a micro-batch that fills no more at most is taken for its speed. Our choice. A
# larger one is faster than the cost model says: of 29 jobs that others measured in which this decides, 28 were faster
# with it, by up to 20 %. What a plan's choices cost is in docs/speed.md.
FILLED = 0.9


@attrs.frozen(kw_only=True, slots=False, repr=False, eq=False)
class Candidate(Value):
    """A strategy that can run, with its estimates."""

    strategy: Strategy
    job: Job = attrs.field(eq=False, repr=False)
    parts: Parts = attrs.field(eq=False, repr=False)
    spent: StepCost | None = attrs.field(default=None, eq=False, repr=False)
    taken: MemoryEstimate | None = attrs.field(default=None, eq=False, repr=False)

    @functools.cached_property
    def cost(self) -> StepCost:
        """The time of a step, which nobody asks of what may not fit where another surely does."""
        return self.spent or cost(self.job, self.strategy)

    @functools.cached_property
    def memory(self) -> MemoryEstimate:
        """What it takes; made when it is asked for, because most candidates are not."""
        return self.taken or estimate(self.job, self.strategy, self.parts)

    @property
    def sure(self) -> bool:
        """Whether it surely fits."""
        return self.memory.verdict is Verdict.FITS

    @property
    def speed(self) -> float:
        """Tokens per second and GPU."""
        return self.cost.tokens_per_second_per_gpu


Matters = Callable[[Layout, float, Candidate], bool]  # layout, its speed at best, the last one that was found to fit
Worth = Callable[[Layout, float], bool]  # layout, its speed at best


class _Trial(NamedTuple):
    """A layout with its batches, the largest micro-batch first, its buffers, its GPU, the bytes that it holds there all
    the time, and the costs of batches by their places, as far as they are known."""

    number: int
    layout: Layout
    triples: tuple[tuple[int, int, int], ...]
    buffers: Buffers
    gpu: Room
    held: int
    costs: Mapping[int, StepCost] = MappingProxyType({})

    @property
    def speed(self) -> float:
        """Tokens per second and GPU of the fastest batch; 0 where it is not known."""
        return max((one.tokens_per_second_per_gpu for one in self.costs.values()), default=0.0)

    def strategy(self, place: int) -> Strategy:
        """With one of the batches."""
        return strategy(self.layout, self.triples[place], self.buffers)


class _Unweighed(NamedTuple):
    """A layout that surely has no room on a GPU; by how much is worked out when somebody asks.

    Attributes:
        trial: The layout.
        job: What it is of.
        least_bytes: What it lacks at least.
    """

    trial: _Trial
    job: Job
    least_bytes: int

    def weighed(self) -> Rejection:
        """It with its number."""
        weighed = _weigh(self.job, self.trial)
        assert isinstance(weighed, Rejection), self  # least_bytes is above 0
        return weighed


@attrs.frozen(slots=False, eq=False)
class Search:
    """Everything a search found.

    Attributes:
        fitting: What surely fits.
        uncertain: What may.
        rejected: What does not, in the order of its layouts.
    """

    fitting: tuple[Candidate, ...]
    uncertain: tuple[Candidate, ...]
    rejected: tuple[Rejection | _Unweighed, ...]

    @functools.cached_property
    def rejections(self) -> tuple[Rejection, ...]:
        """What does not fit, each with its number or reason."""
        return tuple(one if isinstance(one, Rejection) else one.weighed() for one in self.rejected)

    @functools.cached_property
    def nearest(self) -> tuple[Rejection, ...]:
        """Of each place whose memory somebody lacks the one that lacks least, the least first."""
        least: dict[str, tuple[int, int, Rejection]] = {}  # place -> what is missing, number, rejection

        def weigh(number: int, one: Rejection) -> None:
            weight = one.missing_bytes, number, one
            least[one.place] = min(least.get(one.place, weight), weight)

        waiting: list[tuple[int, int, _Unweighed]] = []
        for number, one in enumerate(self.rejected):
            if isinstance(one, _Unweighed):
                waiting.append((one.least_bytes, number, one))
            elif one.missing_bytes:
                weigh(number, one)
        for lacking, number, one in sorted(waiting):
            if "gpu" in least and lacking > least["gpu"][0]:
                break
            weigh(number, one.weighed())
        return tuple(rejection for _, _, rejection in sorted(least.values()))


# Whether it is no worth, speed or more with a minus, number, trial, and whether the batches are those that may fit.
_Waiting = tuple[bool, float, int, _Trial, bool]


def search(
    job: Job, matters: Matters | None = None, *, all_where_none_fits: bool = True, worth: Worth | None = None
) -> Search:
    """Every layout at its best micro-batch; what surely fits, what may, and what is rejected.

    Where nothing surely fits, optimizer and parameters of full training are tried in every place: the one alone too.

    Args:
        job: The job.
        matters: Whether a layout is worth weighing whose speed at its fastest micro-batch is known, beside those that
            surely fit by now; None for all. The fastest are weighed first, so most of the others never are. Where
            nothing fits all of them are.
        all_where_none_fits: Also those of which it is clear that they cannot surely fit.
        worth: Whether a layout is worth being chosen at a speed, and so at any higher one; None: any is. A search ends
            once neither what fits by then nor what is left at its best speed is.
    """
    usual = _searched(job, matters, all_where_none_fits, worth=worth)
    if usual.fitting or job.training.method != "full" or places_are_pinned(job):
        return usual
    wide = _searched(job, matters, all_where_none_fits, everywhere=True, worth=worth)
    if worth and wide.fitting:  # which says nothing where one of the usual fits, and was not worth being weighed
        slow = _searched(job, lambda *_: False, False)
        return slow if slow.fitting else wide
    return wide if wide.fitting else usual


def _searched(
    job: Job,
    matters: Matters | None,
    all_where_none_fits: bool,
    *,
    everywhere: bool = False,
    worth: Worth | None = None,
) -> Search:
    rejections: dict[int, Rejection | _Unweighed] = {}
    tried: list[_Trial] = []
    divided: dict[int, tuple[tuple[int, int, int], ...] | str] = {}  # by the tensor-parallel degree alone
    sizes: dict[tuple[int, int, str, str], tuple[Buffers, Room, int]] = {}
    for number, layout in enumerate(layouts(job, everywhere)):
        if isinstance(layout, Rejection):
            rejections[number] = layout
            continue
        if layout.tp not in divided:
            divided[layout.tp] = batches(job, layout)
        triples = divided[layout.tp]
        if isinstance(triples, str):
            rejections[number] = Rejection(layout=layout, why=triples)
            continue
        key = (layout.stage, layout.tp, layout.offload_optimizer, layout.offload_param)
        if key not in sizes:
            buffers = choose(job, *key)
            sizes[key] = buffers, room(job, layout, buffers), resident_bytes(job, layout, buffers)
        tried.append(_Trial(number, layout, triples, *sizes[key]))
    fitting: list[tuple[int, Candidate]] = []
    doubtful: list[tuple[int, Candidate]] = []  # they fit, and DeepSpeed may not run them
    uncertain: dict[int, Candidate] = {}
    good: set[Layout] = set()  # those that fit, beside which nobody looks at the same on NVMe
    for trial in _in_turn(job, tried, matters, fitting, doubtful, all_where_none_fits, worth, good):
        if _in_ram(trial.layout) in good:
            why = "what it keeps on NVMe fits in RAM, which is faster"
            rejections[trial.number] = Rejection(layout=trial.layout, why=why)
            continue
        if (lacking := _lacking(job, trial)) > 0:
            rejections[trial.number] = _Unweighed(trial, job, lacking)
            continue
        weighed = _weigh(job, trial)
        if isinstance(weighed, Rejection):
            rejections[trial.number] = weighed
        elif weighed[1] and weighed[0].parts.doubted:
            doubtful.append((trial.number, weighed[0]))
        elif weighed[1]:
            if job.training.objective != "memory":
                good.add(trial.layout)
            fitting.append((trial.number, weighed[0]))
        else:
            uncertain[trial.number] = weighed[0]
    for number, candidate in doubtful if fitting else ():
        why = candidate.parts.warning or "DeepSpeed may run it otherwise"
        rejections[number] = Rejection(layout=candidate.strategy, why=why)
    return Search(
        tuple(candidate for _, candidate in sorted(fitting or doubtful, key=lambda pair: pair[0])),
        tuple(uncertain[number] for number in sorted(uncertain)),
        tuple(rejections[number] for number in sorted(rejections)),
    )


def _in_turn(
    job: Job,
    trials: Sequence[_Trial],
    matters: Matters | None,
    fitting: Sequence[tuple[int, Candidate]],
    doubtful: Sequence[tuple[int, Candidate]],
    all_where_none_fits: bool,
    worth: Worth | None,
    good: Collection[Layout],
) -> Iterator[_Trial]:
    """What is worth weighing beside what fits by then, the fastest first; what cannot surely fit if nothing does.

    A cost takes its time, so it is computed when nothing that is left can be faster than a strategy is at most. What is
    not worth being chosen comes behind what is, and is tried only if something that is fits. What NVMe keeps waits for
    what becomes of the same in RAM, which is never timed for nothing.
    """
    if not matters:
        yield from trials
        return
    unsure: list[_Trial] = []
    waiting: list[_Waiting] = []
    left: set[Layout] = set()  # those of which is not decided yet whether they are weighed
    behind: dict[Layout, list[_Waiting]] = {}  # one of those -> what waits for it

    def wait(trial: _Trial, speed: float, narrowed: bool) -> None:
        idle = worth is not None and not worth(trial.layout, speed)
        heapq.heappush(waiting, (idle, -speed, trial.number, trial, narrowed))

    def settled(layout: Layout) -> None:
        left.discard(layout)
        for one in behind.pop(layout, ()):
            heapq.heappush(waiting, one)

    for trial in trials:
        if trial.gpu.high(trial.held, False) > trial.gpu.limit:
            unsure.append(trial)
        else:
            left.add(trial.layout)
            wait(trial, _most_speed(job, trial), False)
    while waiting:
        idle, minus, _, trial, narrowed = waiting[0]
        if idle and worth and not any(worth(one.strategy, one.speed) for _, one in (*fitting, *doubtful)):
            if not behind:
                return
            settled(next(iter(behind)))
            continue
        heapq.heappop(waiting)
        in_ram = _in_ram(trial.layout)
        if fitting and not matters(trial.layout, -minus, fitting[-1][1]):
            settled(trial.layout)
        elif in_ram in left:
            behind.setdefault(in_ram, []).append((idle, minus, trial.number, trial, narrowed))
        elif trial.costs or in_ram in good:
            yield trial
            settled(trial.layout)
        elif narrowed:
            trial = _timed(job, trial)
            wait(trial, trial.speed, True)
        elif batches := _batches(job, trial):
            speed = -minus
            if batches != trial.triples:
                trial = trial._replace(triples=batches)
                speed = _most_speed(job, trial)
            wait(trial, speed, True)
        else:
            unsure.append(trial)
            settled(trial.layout)
    yield from unsure if all_where_none_fits and not fitting and not doubtful else ()


def _batches(job: Job, trial: _Trial) -> tuple[tuple[int, int, int], ...]:
    """Those of a trial whose micro-batch may surely fit."""
    gpu, each = trial.gpu, sequence_bytes(job, trial.layout)
    return tuple(one for one in trial.triples if gpu.high(trial.held + each * one[0], False) <= gpu.limit)


def _lacking(job: Job, trial: _Trial) -> int:
    """Bytes of a GPU that a trial's smallest micro-batch lacks at least; below 0, it may lack none."""
    smallest = trial.triples[-1][0]
    less, _ = widened(job, trial.layout, trial.buffers)
    held = trial.held + sequence_bytes(job, trial.layout) * smallest
    return trial.gpu.low(held, True, less) - trial.gpu.limit


def _weigh(job: Job, trial: _Trial) -> tuple[Candidate, bool] | Rejection:
    """A layout at its best micro-batch, and whether it surely fits; or why it does not."""
    fit = fits(job, trial.layout, trial.buffers, trial.triples, trial.gpu)
    if isinstance(fit, Rejection):
        return fit
    if fit.sure:
        chosen, spent = _best(job, trial, fit.sure, fit.most_bytes)
        return Candidate(strategy=chosen, spent=spent, job=job, parts=fit.parts(chosen.accumulation)), True
    chosen = trial.strategy(len(trial.triples) - 1)
    return Candidate(strategy=chosen, job=job, parts=fit.parts(chosen.accumulation)), False


def _in_ram(layout: Layout) -> Layout | None:
    """The layout that keeps in RAM what this one keeps on NVMe; None for one that keeps nothing there."""
    places = (layout.offload_optimizer, layout.offload_param)
    if "nvme" not in places:
        return None
    optimizer, parameters = ("cpu" if place == "nvme" else place for place in places)
    return attrs.evolve(layout, offload_optimizer=optimizer, offload_param=parameters)


def _best(job: Job, trial: _Trial, places: tuple[int, ...], most_bytes: tuple[int, ...]) -> tuple[Strategy, StepCost]:
    """Of the micro-batches of some places that come within ENOUGH of the fastest one the largest that leaves room, else
    the smallest; `most_bytes` are what they may take, where they surely fit."""
    tried: list[tuple[bool, Strategy, StepCost]] = []  # whether it leaves room, the strategy, its cost
    if job.training.objective == "memory":
        places, most_bytes = places[-1:], ()  # the smallest: it has the smallest peak
    may_rise, fastest = rises(job), 0.0
    for number, place in enumerate(places):
        candidate = trial.strategy(place)
        if tried and not may_rise and most_speed(job, candidate) < ENOUGH * fastest:
            break
        spent = trial.costs.get(place) or cost(job, candidate)
        speed = spent.tokens_per_second_per_gpu
        if speed >= ENOUGH * fastest:
            roomy = bool(most_bytes) and most_bytes[number] <= FILLED * trial.gpu.limit
            tried.append((roomy, candidate, spent))
            fastest = max(fastest, speed)
        if not may_rise and (speed < ENOUGH * fastest or tried[-1][0]):
            break
    near = [one for one in tried if one[2].tokens_per_second_per_gpu >= ENOUGH * fastest]
    return next((one for one in near if one[0]), near[-1])[1:]


def rises(job: Job) -> bool:
    """Whether speed may rise where the micro-batch falls: tensors lie in a large L2 cache then, or less is padding."""
    return job.hardware.l2_cache_bytes > 0 or varied_mean(job.training) is not None


def _most_speed(job: Job, trial: _Trial) -> float:
    """Tokens per second and GPU that no batch of a trial exceeds."""
    return max([most_speed(job, trial.strategy(place)) for place in range(len(trial.triples) if rises(job) else 1)])


def _timed(job: Job, trial: _Trial) -> _Trial:
    """A trial with the cost of its fastest batch."""
    for place in range(len(trial.triples) if rises(job) else 1):
        if not place or most_speed(job, trial.strategy(place)) > trial.speed:
            trial = trial._replace(costs={**trial.costs, place: cost(job, trial.strategy(place))})
    return trial


def sized(near: Iterable[tuple[Strategy, MemoryEstimate]]) -> Strategy:
    """Of strategies that surely fit and are about as fast the largest micro-batch with room, else the smallest one."""
    ascending = sorted(near, key=lambda pair: pair[0].micro_batch)
    with_room = [one for one, memory in ascending if memory.gpu.high_bytes <= FILLED * memory.gpu.limit_bytes]
    return with_room[-1] if with_room else ascending[0][0]
