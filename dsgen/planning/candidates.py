"""Every strategy of a Job at its best micro-batch: what fits, what may fit, and what is rejected with its number."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import attrs

from dsgen.cost import StepCost, cost
from dsgen.jobs.job import Job
from dsgen.memory import (
    MemoryEstimate,
    Parts,
    Place,
    Room,
    Verdict,
    estimate,
    host_place,
    parts,
    resident_bytes,
    room,
    widened,
)
from dsgen.shapes.shown import Shown
from dsgen.shapes.units import gib
from dsgen.strategies.buffers import Buffers, choose
from dsgen.strategies.strategies import Layout, Rejection, Strategy, batches, layouts, strategy

__all__ = ["Candidate", "Matters", "Search", "search"]

ENOUGH = 0.98  # of the best speed of a layout: a smaller micro-batch that reaches it leaves memory free


@attrs.frozen(kw_only=True, slots=False, repr=False)
class Candidate(Shown):
    """A strategy that can run, with its estimates."""

    strategy: Strategy
    cost: StepCost
    job: Job = attrs.field(eq=False, repr=False)
    parts: Parts = attrs.field(eq=False, repr=False)

    @functools.cached_property
    def memory(self) -> MemoryEstimate:
        """What it takes; made when it is asked for, because most candidates are not."""
        return estimate(self.job, self.strategy, self.parts)

    @property
    def speed(self) -> float:
        """Tokens per second and GPU."""
        return self.cost.tokens_per_second_per_gpu


Matters = Callable[[Layout, float, Candidate], bool]  # layout, its speed at best, the last one that was found to fit


class Search(NamedTuple):
    """Everything a search found."""

    fitting: tuple[Candidate, ...]
    uncertain: tuple[Candidate, ...]
    rejections: tuple[Rejection, ...]


def search(job: Job, matters: Matters | None = None) -> Search:
    """Every layout at its best micro-batch; what surely fits, what may, and what is rejected.

    Args:
        job: The job.
        matters: Whether a layout is worth weighing whose speed at its largest micro-batch is known, beside those that
            surely fit by now; None for all. The fastest are weighed first, so most of the others never are. Where
            nothing fits all of them are.
    """
    rejections: dict[int, Rejection] = {}
    tried: list[_Trial] = []
    buffers: dict[tuple[int, int, str, str], Buffers] = {}
    for number, layout in enumerate(layouts(job)):
        if isinstance(layout, Rejection):
            rejections[number] = layout
            continue
        triples = batches(job, layout)
        if isinstance(triples, str):
            rejections[number] = Rejection(layout=layout, why=triples)
            continue
        key = (layout.stage, layout.tp, layout.offload_optimizer, layout.offload_param)
        if key not in buffers:
            buffers[key] = choose(job, *key)
        tried.append(_Trial(number, layout, triples, buffers[key]))
    fitting: list[tuple[int, Candidate]] = []
    doubtful: list[tuple[int, Candidate]] = []  # they fit, and DeepSpeed may not run them
    uncertain: dict[int, Candidate] = {}
    good: set[Layout] = set()
    hopeless: list[_Trial] = []
    if matters:  # what cannot fit is weighed only where nothing else fits either, for the numbers that say why
        likely: list[_Trial] = []
        for trial in tried:
            gpu = room(job, trial.layout, trial.buffers)
            if gpu.low(resident_bytes(job, trial.layout, trial.buffers), False) > gpu.limit:
                hopeless.append(trial)
            else:
                likely.append(_Trial(*trial[:4], cost(job, trial.strategy(0))))
        tried = sorted(likely, key=lambda trial: -trial.speed)
    for trial in _then(tried, lambda: [] if fitting or doubtful or uncertain else hopeless):
        if matters and fitting and not matters(trial.layout, trial.speed, fitting[-1][1]):
            continue
        if _in_ram(trial.layout) in good and job.training.objective != "memory":
            why = "what it keeps on NVMe fits in RAM, which is faster"
            rejections[trial.number] = Rejection(layout=trial.layout, why=why)
            continue
        weighed = _weigh(job, trial)
        if isinstance(weighed, Rejection):
            rejections[trial.number] = weighed
        elif weighed[1] and weighed[0].parts.doubted:
            doubtful.append((trial.number, weighed[0]))
        elif weighed[1]:
            good.add(trial.layout)
            fitting.append((trial.number, weighed[0]))
        else:
            uncertain[trial.number] = weighed[0]
    return Search(
        tuple(candidate for _, candidate in sorted(fitting or doubtful, key=lambda pair: pair[0])),
        tuple(uncertain[number] for number in sorted(uncertain)),
        tuple(rejections[number] for number in sorted(rejections)),
    )


def _then(first: list[_Trial], more: Callable[[], list[_Trial]]) -> Iterator[_Trial]:
    """Trials, and when they are over, more of them."""
    yield from first
    yield from more()


class _Trial(NamedTuple):
    """A layout with its batches, the largest micro-batch first, its buffers, and its cost at the first one."""

    number: int
    layout: Layout
    triples: tuple[tuple[int, int, int], ...]
    buffers: Buffers
    best: StepCost | None = None

    @property
    def speed(self) -> float:
        """Tokens per second and GPU at the largest micro-batch; 0 where it is not known."""
        return self.best.tokens_per_second_per_gpu if self.best else 0.0

    def strategy(self, place: int) -> Strategy:
        """With one of the batches."""
        return strategy(self.layout, self.triples[place], self.buffers)


def _weigh(job: Job, trial: _Trial) -> tuple[Candidate, bool] | Rejection:
    """A layout at its best micro-batch, and whether it surely fits; or why it does not."""
    most, gpu = _passes(job, trial.layout), room(job, trial.layout, trial.buffers)
    micro_batch, steps, _ = trial.triples[-1]
    least = min(steps, most)
    by_passes = {least: parts(job, trial.layout, trial.buffers, least)}
    hosts = {least: host_place(job, by_passes[least])}
    rejection = _too_large(job, gpu, trial, by_passes[least], hosts[least], micro_batch)
    if rejection is not None:
        return rejection
    sure, more = [], widened(job, trial.layout, trial.buffers)[1]
    for place, (micro_batch, steps, _) in enumerate(trial.triples):
        passes = min(steps, most)
        if passes not in by_passes:
            by_passes[passes] = parts(job, trial.layout, trial.buffers, passes)
            hosts[passes] = host_place(job, by_passes[passes])
        fits = hosts[passes].verdict is Verdict.FITS
        if fits and gpu.high(by_passes[passes].peak(micro_batch), by_passes[passes].doubted, more) <= gpu.limit:
            sure.append(place)
    if sure:
        best, spent = _best(job, trial, sure)
        return Candidate(strategy=best, cost=spent, job=job, parts=by_passes[min(best.accumulation, most)]), True
    small = trial.strategy(-1)
    return Candidate(strategy=small, cost=cost(job, small), job=job, parts=by_passes[least]), False


def _in_ram(layout: Layout) -> Layout | None:
    """The layout that keeps in RAM what this one keeps on NVMe; None for one that keeps nothing there."""
    places = (layout.offload_optimizer, layout.offload_param)
    if "nvme" not in places:
        return None
    optimizer, parameters = ("cpu" if place == "nvme" else place for place in places)
    return attrs.evolve(layout, offload_optimizer=optimizer, offload_param=parameters)


def _passes(job: Job, layout: Layout) -> int:
    """Forward passes of a step from which on memory is the same: three only where head and embedding are one."""
    return 1 if layout.stage == 3 else 3 if job.model.tied_embeddings else 2


def _too_large(job: Job, gpu: Room, trial: _Trial, parts: Parts, host: Place, smallest: int) -> Rejection | None:
    """A rejection when not even the smallest micro-batch can fit."""
    peak = parts.peak(smallest)
    less = widened(job, trial.layout, trial.buffers)[0]
    needed = gpu.low(peak, parts.doubted, less)
    missing = needed - gpu.limit
    if missing > 0:
        return Rejection(
            layout=trial.layout,
            missing_bytes=missing,
            place="gpu",
            why=f"needs {gib(needed)} GiB: {gib(missing)} GiB too much",
        )
    if host.verdict is Verdict.DOES_NOT_FIT:
        return Rejection(
            layout=trial.layout,
            missing_bytes=host.least_bytes - host.limit_bytes,
            place="host",
            why=f"needs {gib(host.least_bytes)} GiB of host RAM: {_more(host)} GiB too much",
        )
    nvme = parts.host.stored
    if nvme > job.hardware.nvme_capacity_bytes:
        return Rejection(
            layout=trial.layout,
            missing_bytes=nvme - job.hardware.nvme_capacity_bytes,
            place="nvme",
            why=f"needs {gib(nvme)} GiB of NVMe: {gib(nvme - job.hardware.nvme_capacity_bytes)} GiB too much",
        )
    return None


def _more(place: Place) -> str:
    return gib(place.least_bytes - place.limit_bytes)


def _best(job: Job, trial: _Trial, sure: list[int]) -> tuple[Strategy, StepCost]:
    """The smallest micro-batch that comes within ENOUGH of the fastest one that fits."""
    tried: list[tuple[Strategy, StepCost]] = []
    if job.training.objective == "memory":
        sure = sure[-1:]  # the smallest: it has the smallest peak
    for place in sure:
        candidate = trial.strategy(place)
        spent = trial.best if trial.best and not place else cost(job, candidate)
        if tried and spent.tokens_per_second_per_gpu < ENOUGH * tried[0][1].tokens_per_second_per_gpu:
            break  # speed only falls with the micro-batch
        tried.append((candidate, spent))
    return tried[-1]
