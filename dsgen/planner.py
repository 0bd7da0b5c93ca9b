"""A Job to a Plan: try every strategy, reject what cannot run or fit with its number, take the best of the rest."""

from __future__ import annotations

import attrs

from dsgen.buffers import Buffers, choose
from dsgen.cost import StepCost, cost
from dsgen.errors import mistake
from dsgen.jobs import Job
from dsgen.memory import MemoryEstimate, Parts, Place, Verdict, estimate, gpu_high, gpu_limit, gpu_peak, host_place, parts
from dsgen.memory.estimates import LOW
from dsgen.strategies import Layout, Rejection, Strategy, batches, layouts, strategy
from dsgen.units import gib

__all__ = ["Candidate", "Plan", "plan", "search"]

TIE = 0.05  # speeds closer than this are equal: the cost model cannot tell them apart
# With objective balanced, a part must win by more than its cost is uncertain: offload depends on the host's other
# work, drives on their filling, and AutoTP on how well a model's layers shard; it also needs the same data on each group.
DISCOUNT_OFFLOAD = {"none": 1.0, "cpu": 0.9, "nvme": 0.7}
DISCOUNT_TENSOR_PARALLEL = 0.85
ENOUGH = 0.98  # of the best speed of a layout: a smaller micro-batch that reaches it leaves memory free
MEMORY_PRICE = 2.0  # with objective memory, how many times slower than the fastest a strategy may be
WAITING = 0.5  # share of a step spent on exposed communication that a person should know of
RUNNERS_UP = 6  # rivals kept in the plan


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


@attrs.frozen(kw_only=True)
class Plan:
    """The chosen strategy, its rivals, and what was rejected with the number that says why."""

    job: Job
    chosen: Candidate
    runners_up: tuple[Candidate, ...]
    rejections: tuple[Rejection, ...]
    reason: str
    warnings: tuple[str, ...] = ()


@attrs.frozen
class Search:
    """Everything a search found."""

    fitting: tuple[Candidate, ...]
    uncertain: tuple[Candidate, ...]
    rejections: tuple[Rejection, ...]


def plan(job: Job) -> Plan:
    """Choose a strategy.

    Args:
        job: What is there and what is wanted.

    Returns:
        The plan; its warnings say when the fit is uncertain.

    Raises:
        DsgenError: The pins exclude everything, the batch divides nowhere, or nothing fits; with the smallest change
            that would make it fit.
    """
    _check_batch(job)
    found = search(job)
    warnings: tuple[str, ...] = ()
    candidates = found.fitting
    if not candidates:
        if not found.uncertain:
            from dsgen.remedies import nothing_fits

            raise nothing_fits(job, found)
        candidates = found.uncertain
        warnings = ("no strategy surely fits: the chosen one may run out of memory (see the interval)",)
    ranked = sorted(candidates, key=lambda item: (-item.speed, _simplicity(item.strategy)))
    chosen, reason = _choose(job, ranked)
    if chosen.cost.communication_share > WAITING:
        warnings = (*warnings, f"the network is the bottleneck: GPUs wait for it {chosen.cost.communication_share:.0%} "
                    "of each step, and no strategy that fits waits much less")
    rivals = _rivals(ranked, chosen)
    return Plan(job=job, chosen=chosen, runners_up=rivals, rejections=found.rejections, reason=reason,
                warnings=(*job.warnings, *warnings))


def _check_batch(job: Job) -> None:
    """Refuse a wished global batch that the GPUs cannot share; AutoTP could, but nobody asks for it this way."""
    total = job.training.global_batch
    if total is None or total % job.world == 0 or any(pin.field in ("tp", "train_batch") for pin in job.pins):
        return
    below = total // job.world * job.world
    near = f"{below} or {below + job.world}" if below else f"{job.world}"
    counts = [count for count in range(job.gpus_per_node, 0, -1) if total % count == 0]
    raise mistake(f"a global batch of {total} does not divide among {job.world} GPUs",
                  must=f"it must be a multiple of {job.world}, such as {near}",
                  where=job.provenance.where("training.global_batch"),
                  todo=f"Or take a number of GPUs that divides it: --gpus {counts[0]}.")


def search(job: Job) -> Search:
    """Every layout at its best micro-batch; what surely fits, what may, and what is rejected."""
    fitting: list[Candidate] = []
    uncertain: list[Candidate] = []
    rejections: list[Rejection] = []
    buffers: dict[tuple[int, int], Buffers] = {}
    for layout in layouts(job):
        if isinstance(layout, Rejection):
            rejections.append(layout)
            continue
        triples = batches(job, layout)
        if isinstance(triples, str):
            rejections.append(Rejection(layout=layout, why=triples))
            continue
        key = (layout.stage, layout.tp)
        if key not in buffers:
            buffers[key] = choose(job, *key)
        found = parts(job, layout, buffers[key])
        rejection = _too_large(job, layout, found, triples[-1][0])
        if rejection is not None:
            rejections.append(rejection)
            continue
        limit = gpu_limit(job.hardware)
        sure = [triple for triple in triples if gpu_high(gpu_peak(found, triple[0])[0]) <= limit]
        if sure and host_place(job, found).verdict is Verdict.FITS:
            fitting.append(_best(job, layout, sure, found, buffers[key]))
        else:
            smallest = strategy(layout, (sure or triples)[0 if sure else -1], buffers[key])
            uncertain.append(Candidate(strategy=smallest, memory=estimate(job, smallest, found), cost=cost(job, smallest)))
    return Search(tuple(fitting), tuple(uncertain), tuple(rejections))


def _too_large(job: Job, layout: Layout, found: Parts, smallest: int) -> Rejection | None:
    """A rejection when not even the smallest micro-batch can fit."""
    peak, _ = gpu_peak(found, smallest)
    limit = gpu_limit(job.hardware)
    missing = int(peak * LOW) - limit
    if missing > 0:
        return Rejection(layout=layout, missing_bytes=missing, place="gpu",
                         why=f"needs {gib(peak)} GiB: {gib(missing)} GiB too much")
    host = host_place(job, found)
    if host.low_bytes > host.limit_bytes:
        return Rejection(layout=layout, missing_bytes=host.low_bytes - host.limit_bytes, place="host",
                         why=f"needs {gib(host.low_bytes)} GiB of host RAM: {_more(host)} GiB too much")
    nvme = sum(found.nvme.values())
    if nvme > job.hardware.nvme_capacity_bytes:
        return Rejection(layout=layout, missing_bytes=nvme - job.hardware.nvme_capacity_bytes, place="nvme",
                         why=f"needs {gib(nvme)} GiB of NVMe: {gib(nvme - job.hardware.nvme_capacity_bytes)} GiB too much")
    return None


def _more(place: Place) -> str:
    return gib(place.low_bytes - place.limit_bytes)


def _best(job: Job, layout: Layout, triples: list[tuple[int, int, int]], found: Parts, buffers: Buffers) -> Candidate:
    """The smallest micro-batch that comes within ENOUGH of the fastest one that fits."""
    tried: list[tuple[Strategy, StepCost]] = []
    for triple in triples:
        candidate = strategy(layout, triple, buffers)
        spent = cost(job, candidate)
        if tried and spent.tokens_per_second_per_gpu < ENOUGH * tried[0][1].tokens_per_second_per_gpu:
            break  # speed only falls with the micro-batch
        tried.append((candidate, spent))
    best, spent = tried[-1]
    return Candidate(strategy=best, memory=estimate(job, best, found), cost=spent)


def _choose(job: Job, ranked: list[Candidate]) -> tuple[Candidate, str]:
    fastest = ranked[0]
    objective = job.training.objective
    if objective == "throughput":
        return fastest, "the fastest that fits"
    if objective == "memory":
        near = [item for item in ranked if item.speed * MEMORY_PRICE >= fastest.speed]
        leanest = min(near, key=lambda item: (item.memory.gpu.peak_bytes, _simplicity(item.strategy)))
        return leanest, f"the least GPU memory at no less than 1/{MEMORY_PRICE:g} of the best speed"
    best = max(_trusted(item) for item in ranked)
    near = [item for item in ranked if _trusted(item) >= best * (1 - TIE)]
    simplest = min(near, key=lambda item: _simplicity(item.strategy))  # the first, so the fastest, of the simplest
    if simplest is fastest:
        return fastest, "the fastest that fits"
    return simplest, f"simpler than {fastest.strategy}, and as fast within the model's error"


def _trusted(item: Candidate) -> float:
    """Speed after a discount for each part whose cost is known less well, so that it must win by more than its error."""
    chosen = item.strategy
    speed = item.speed * DISCOUNT_OFFLOAD[chosen.offload_optimizer] * DISCOUNT_OFFLOAD[chosen.offload_param]
    return speed * DISCOUNT_TENSOR_PARALLEL if chosen.tp > 1 else speed


def _simplicity(chosen: Layout) -> tuple[int, ...]:
    """Fewer moving parts first: offload, tensor parallelism, ZeRO stage, recomputation."""
    places = ("none", "cpu", "nvme")
    # Stages 1 and 2 differ in nothing that a user sees; of the two the one that holds less is the simpler to fit.
    stage = (0, 2, 1, 3)[chosen.stage]
    return (places.index(chosen.offload_optimizer) + places.index(chosen.offload_param), int(chosen.tp > 1), stage,
            int(chosen.checkpointing), chosen.tp)


def _rivals(ranked: list[Candidate], chosen: Candidate) -> tuple[Candidate, ...]:
    """The best other candidates, one for each stage, offload and degree, the fastest first."""
    seen = {_family(chosen.strategy)}
    rivals = []
    for item in ranked:
        family = _family(item.strategy)
        if family not in seen:
            seen.add(family)
            rivals.append(item)
    return tuple(rivals[:RUNNERS_UP])


def _family(item: Layout) -> tuple[int, str, str, int]:
    return (item.stage, item.offload_optimizer, item.offload_param, item.tp)
