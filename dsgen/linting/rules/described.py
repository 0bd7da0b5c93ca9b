"""What a config means on named hardware with a named model: job and strategy, what they take, how long a step lasts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs

from dsgen.jobs.job import Job, narrowed, unsure
from dsgen.linting import meanings
from dsgen.linting.subjects import Subject
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.layers import Provenance
from dsgen.shapes.profiles import Hardware, Network, Training

if TYPE_CHECKING:  # what counts memory and time loads when a profile is named
    from dsgen.memory import MemoryEstimate
    from dsgen.strategies.strategies import Strategy

__all__ = ["Described", "described", "least", "nodes", "speed"]

SHORTEST = 1  # token: where the length is not said, only what does not depend on it is certain
_ALONE = Network(fabric="none", bandwidth_bytes_per_second=0.0, latency_seconds=0.0, rdma=False)


@attrs.frozen(kw_only=True)
class Described:
    """A config on hardware, with a model.

    Attributes:
        job, strategy: What the config asks for, with activation checkpointing and all parameters trained where nobody
            says otherwise.
        memory: What that takes at the sequence length said, or a usual one.
        host_bytes: RAM of one node while it trains.
    """

    job: Job
    strategy: Strategy
    memory: MemoryEstimate
    host_bytes: int


def described(subject: Subject) -> Described | None:
    """The job and strategy of a config; None where hardware or model is not named, or no strategy is like it."""
    return subject.once("described", lambda: _described(subject))


def least(subject: Subject, run: Described) -> MemoryEstimate | None:
    """What a config takes at least: one token where no length is said, no logits kept, and no optimizer states where it
    names no optimizer. None where even the size of the weights is open.

    A loss that keeps no logits holds gradients of the whole head: the one that takes less counts.
    """
    from dsgen.memory import estimate

    if run.strategy.precision == "fp32":
        return None
    either = (estimate(_leanest(subject, run.job, chunked_loss=kind), run.strategy) for kind in (True, False))
    return min(either, key=lambda one: one.gpu.low_bytes)


def nodes(subject: Subject) -> int:
    """Nodes that the GPUs fill; 1 where nothing says more."""
    hardware, world = subject.facts.hardware, subject.facts.world_size
    return math.ceil(world / hardware.gpus_per_node) if hardware is not None and world else 1


def speed(described: Described, **changed: object) -> float | None:
    """How many times faster a step is with another strategy; None where the cost model cannot tell."""
    from dsgen.cost import cost

    other = attrs.evolve(described.strategy, **changed)  # type: ignore[arg-type]
    if len({described.job.nodes > 1, described.job.network.bandwidth_bytes_per_second > 0}) > 1:
        return None
    return cost(described.job, described.strategy).seconds / cost(described.job, other).seconds


def _described(subject: Subject) -> Described | None:
    facts = subject.facts
    if facts.hardware is None or facts.model is None or facts.hardware.vendor == "cpu":
        return None
    from dsgen.memory import estimate, parts
    from dsgen.memory.states import takes

    job, strategy = _job(subject, facts.hardware), _strategy(subject)
    if job is None or strategy is None:
        return None
    if job.narrow and (not takes(job.narrow, strategy, job.training) or not meanings.optimizer(subject)):
        return None
    try:
        counted = parts(job, strategy, strategy.buffers, strategy.accumulation)
        memory = estimate(job, strategy, counted)
    except DsgenError:  # an architecture that is not known
        return None
    host = sum(counted.host.stepping.values()) + memory.host.overhead_bytes
    return Described(job=job, strategy=strategy, memory=memory, host_bytes=host)


def _job(subject: Subject, hardware: Hardware) -> Job | None:
    facts = subject.facts
    world = facts.world_size or hardware.gpus_per_node
    count = nodes(subject)
    if facts.model is None or world % count:
        return None
    wishes = facts.training or Training()
    training = attrs.evolve(wishes, seq_len=facts.seq_len, optimizer=meanings.optimizer(subject) or wishes.optimizer)
    return Job(
        foreach=bool(subject.optimizer) and meanings.foreach(subject, training),
        hardware=hardware,
        model=facts.model,
        network=facts.network if facts.network is not None and count > 1 else _ALONE,
        training=training,
        nodes=count,
        gpus_per_node=world // count,
        names={},
        pins=(),
        deepspeed={},
        deepspeed_layers=(),
        provenance=Provenance({}),
        version=subject.surface.version,
        narrow=narrowed(subject.value),
        unsure=unsure(subject.value),
    )


def _leanest(subject: Subject, job: Job, *, chunked_loss: bool) -> Job:
    length = subject.facts.seq_len or min(SHORTEST, job.seq_len)
    said = subject.facts.training
    optimizer = meanings.optimizer(subject) or (said.optimizer if said is not None else "SGD")
    return attrs.evolve(
        job, training=attrs.evolve(job.training, seq_len=length, chunked_loss=chunked_loss, optimizer=optimizer)
    )


def _strategy(subject: Subject) -> Strategy | None:
    from dsgen.strategies.strategies import Strategy

    precision = meanings.precision(subject)
    facts, stage = subject.facts, subject.stage
    if precision is None or meanings.beyond(subject) or facts.hardware is None:
        return None
    world = facts.world_size or facts.hardware.gpus_per_node
    tp = meanings.degree(subject)
    if world % tp:
        return None
    micro, steps = (said or 1 for said in meanings.batch(subject, world))
    optimizer, parameters = meanings.offloads(subject, stage)
    return Strategy(
        stage=stage,
        offload_optimizer=optimizer,
        offload_param=parameters,
        tp=tp,
        checkpointing=facts.training is None or facts.training.checkpointing != "none",
        precision=precision,
        micro_batch=micro,
        accumulation=steps,
        global_batch=micro * steps * (world // tp),
        buffers=meanings.buffers(subject, stage),
    )
