"""Every strategy of a Job at its best micro-batch: what fits, what may fit, and what is rejected with its number."""

from __future__ import annotations

import functools

import attrs

from dsgen.buffers import Buffers, choose
from dsgen.cost import StepCost, cost
from dsgen.jobs import Job
from dsgen.memory import (
    MemoryEstimate,
    Parts,
    Place,
    Room,
    Verdict,
    estimate,
    host_place,
    parts,
    room,
)
from dsgen.strategies import Layout, Rejection, Strategy, batches, layouts, strategy
from dsgen.units import gib

__all__ = ["Candidate", "Search", "search"]

ENOUGH = 0.98  # of the best speed of a layout: a smaller micro-batch that reaches it leaves memory free


@attrs.frozen(kw_only=True, slots=False)
class Candidate:
    """A strategy that can run, with its estimates."""

    strategy: Strategy
    cost: StepCost
    job: Job = attrs.field(eq=False, repr=False)
    found: Parts = attrs.field(eq=False, repr=False)

    @functools.cached_property
    def memory(self) -> MemoryEstimate:
        """What it takes; made when it is asked for, because most candidates are not."""
        return estimate(self.job, self.strategy, self.found)

    @property
    def speed(self) -> float:
        """Tokens per second and GPU."""
        return self.cost.tokens_per_second_per_gpu


@attrs.frozen
class Search:
    """Everything a search found."""

    fitting: tuple[Candidate, ...]
    uncertain: tuple[Candidate, ...]
    rejections: tuple[Rejection, ...]


def search(job: Job) -> Search:
    """Every layout at its best micro-batch; what surely fits, what may, and what is rejected."""
    fitting: list[Candidate] = []
    uncertain: list[Candidate] = []
    rejections: list[Rejection] = []
    buffers: dict[tuple[int, int, str, str], Buffers] = {}
    gpu = room(job)
    good: set[Layout] = set()  # those that surely fit
    for layout in layouts(job):
        if isinstance(layout, Rejection):
            rejections.append(layout)
            continue
        if _in_ram(layout) in good and job.training.objective != "memory":
            rejections.append(Rejection(layout=layout, why="what it keeps on NVMe fits in RAM, which is faster"))
            continue
        triples = batches(job, layout)
        if isinstance(triples, str):
            rejections.append(Rejection(layout=layout, why=triples))
            continue
        key = (layout.stage, layout.tp, layout.offload_optimizer, layout.offload_param)
        if key not in buffers:
            buffers[key] = choose(job, *key)
        chosen = buffers[key]
        smallest = triples[-1]
        most = _passes(job, layout)
        least = min(smallest[1], most)
        found = {least: parts(job, layout, chosen, least)}
        hosts = {least: host_place(job, found[least])}
        rejection = _too_large(job, gpu, layout, found[least], hosts[least], smallest[0])
        if rejection is not None:
            rejections.append(rejection)
            continue
        sure = []
        for triple in triples:
            passes = min(triple[1], most)
            if passes not in found:
                found[passes] = parts(job, layout, chosen, passes)
                hosts[passes] = host_place(job, found[passes])
            fits = hosts[passes].verdict is Verdict.FITS
            if fits and gpu.high(found[passes].peak(triple[0])) <= gpu.limit:
                sure.append(triple)
        if sure:
            good.add(layout)
            fitting.append(_best(job, layout, sure, found, chosen))
        else:
            small = strategy(layout, smallest, chosen)
            uncertain.append(Candidate(strategy=small, cost=cost(job, small), job=job, found=found[least]))
    return Search(tuple(fitting), tuple(uncertain), tuple(rejections))


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


def _too_large(job: Job, gpu: Room, layout: Layout, found: Parts, host: Place, smallest: int) -> Rejection | None:
    """A rejection when not even the smallest micro-batch can fit."""
    peak = found.peak(smallest)
    missing = gpu.low(peak) - gpu.limit
    if missing > 0:
        return Rejection(
            layout=layout, missing_bytes=missing, place="gpu", why=f"needs {gib(peak)} GiB: {gib(missing)} GiB too much"
        )
    if host.verdict is Verdict.DOES_NOT_FIT:
        return Rejection(
            layout=layout,
            missing_bytes=host.low_bytes + host.overhead_bytes - host.limit_bytes,
            place="host",
            why=f"needs {gib(host.low_bytes + host.overhead_bytes)} GiB of host RAM: {_more(host)} GiB too much",
        )
    nvme = sum(found.host.nvme.values())
    if nvme > job.hardware.nvme_capacity_bytes:
        return Rejection(
            layout=layout,
            missing_bytes=nvme - job.hardware.nvme_capacity_bytes,
            place="nvme",
            why=f"needs {gib(nvme)} GiB of NVMe: {gib(nvme - job.hardware.nvme_capacity_bytes)} GiB too much",
        )
    return None


def _more(place: Place) -> str:
    return gib(place.low_bytes + place.overhead_bytes - place.limit_bytes)


def _best(
    job: Job, layout: Layout, triples: list[tuple[int, int, int]], found: dict[int, Parts], buffers: Buffers
) -> Candidate:
    """The smallest micro-batch that comes within ENOUGH of the fastest one that fits."""
    tried: list[tuple[Strategy, StepCost]] = []
    if job.training.objective == "memory":
        triples = triples[-1:]  # the smallest: it has the smallest peak
    for triple in triples:
        candidate = strategy(layout, triple, buffers)
        spent = cost(job, candidate)
        if tried and spent.tokens_per_second_per_gpu < ENOUGH * tried[0][1].tokens_per_second_per_gpu:
            break  # speed only falls with the micro-batch
        tried.append((candidate, spent))
    best, spent = tried[-1]
    passes = min(best.accumulation, _passes(job, layout))
    return Candidate(strategy=best, cost=spent, job=job, found=found[passes])
