"""Every strategy of a Job at its best micro-batch: what fits, what may fit, and what is rejected with its number."""

from __future__ import annotations

import attrs

from dsgen.buffers import Buffers, choose
from dsgen.cost import StepCost, cost
from dsgen.jobs import Job
from dsgen.memory import (
    MemoryEstimate,
    Parts,
    Place,
    Verdict,
    estimate,
    gpu_high,
    gpu_limit,
    gpu_low,
    gpu_peak,
    host_place,
    parts,
)
from dsgen.strategies import Layout, Rejection, Strategy, batches, layouts, strategy
from dsgen.units import gib

__all__ = ["Candidate", "Search", "search"]

ENOUGH = 0.98  # of the best speed of a layout: a smaller micro-batch that reaches it leaves memory free


@attrs.frozen(kw_only=True)
class Candidate:
    """A strategy that can run, with its estimates."""

    strategy: Strategy
    memory: MemoryEstimate
    cost: StepCost

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
    for layout in layouts(job):
        if isinstance(layout, Rejection):
            rejections.append(layout)
            continue
        triples = batches(job, layout)
        if isinstance(triples, str):
            rejections.append(Rejection(layout=layout, why=triples))
            continue
        key = (layout.stage, layout.tp, layout.offload_optimizer, layout.offload_param)
        if key not in buffers:
            buffers[key] = choose(job, *key)
        found = {more: parts(job, layout, buffers[key], more) for more in {steps > 1 for _, steps, _ in triples}}
        rejection = _too_large(job, layout, found[triples[-1][1] > 1], triples[-1][0])
        if rejection is not None:
            rejections.append(rejection)
            continue
        sure = [triple for triple in triples if _surely_fits(job, found[triple[1] > 1], triple[0])]
        if sure:
            fitting.append(_best(job, layout, sure, found, buffers[key]))
        else:
            smallest = strategy(layout, triples[-1], buffers[key])
            memory = estimate(job, smallest, found[smallest.accumulation > 1])
            uncertain.append(Candidate(strategy=smallest, memory=memory, cost=cost(job, smallest)))
    return Search(tuple(fitting), tuple(uncertain), tuple(rejections))


def _surely_fits(job: Job, found: Parts, micro_batch: int) -> bool:
    """Whether the upper ends of the intervals fit, on the GPU and in the node's RAM."""
    if gpu_high(gpu_peak(found, micro_batch)[0], job) > gpu_limit(job.hardware):
        return False
    return host_place(job, found).verdict is Verdict.FITS


def _too_large(job: Job, layout: Layout, found: Parts, smallest: int) -> Rejection | None:
    """A rejection when not even the smallest micro-batch can fit."""
    peak, _ = gpu_peak(found, smallest)
    limit = gpu_limit(job.hardware)
    missing = gpu_low(peak, job) - limit
    if missing > 0:
        return Rejection(
            layout=layout, missing_bytes=missing, place="gpu", why=f"needs {gib(peak)} GiB: {gib(missing)} GiB too much"
        )
    host = host_place(job, found)
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
    job: Job, layout: Layout, triples: list[tuple[int, int, int]], found: dict[bool, Parts], buffers: Buffers
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
    return Candidate(strategy=best, memory=estimate(job, best, found[best.accumulation > 1]), cost=spent)
