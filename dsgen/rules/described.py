"""What a config means on named hardware with a named model: job and strategy, what they take, how long a step lasts."""

from __future__ import annotations

import math

import attrs

from dsgen.buffers import DEFAULT_BUCKET, DEFAULT_LIVE, DEFAULT_PERSISTENCE, PERSISTENCE_PER_HIDDEN, SUB_GROUP, Buffers
from dsgen.cost import cost
from dsgen.errors import DsgenError
from dsgen.jobs import Job
from dsgen.layers import Provenance
from dsgen.memory import MemoryEstimate, estimate, parts
from dsgen.profiles import Hardware, Network, Training
from dsgen.strategies import Strategy
from dsgen.subjects import OPEN, Subject

__all__ = ["Described", "described", "nodes", "speed"]

DEFAULT_PREFETCH = 50_000_000  # elements; DeepSpeed's default of stage3_prefetch_bucket_size (zero/config.py)
PREFETCH_PER_SQUARE = 0.9  # Hugging Face fills stage3_prefetch_bucket_size with 0.9 x hidden_size^2
DEFAULT_SWAP_BUFFERS = 4  # DeepSpeed's default of offload_optimizer.buffer_count (zero/offload_config.py)
SHORTEST = 1  # token: where the length is not said, only what does not depend on it is certain
_OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam", "lion": "Lion", "adagrad": "Adagrad", "sgd": "SGD", "muon": "Muon"}
_ALONE = Network(fabric="none", bandwidth_bytes_per_second=0.0, latency_seconds=0.0, rdma=False)


@attrs.frozen(kw_only=True)
class Described:
    """A config on hardware, with a model.

    Attributes:
        job, strategy: What the config asks for, with activation checkpointing, all parameters trained.
        memory: What that takes at the sequence length said, or a usual one.
        least: What it takes at least: one token where no length is said, no logits kept, and no optimizer states
            where the config names no optimizer. None where even the size of the weights is open.
        host_bytes: RAM of one node while it trains.
    """

    job: Job
    strategy: Strategy
    memory: MemoryEstimate
    least: MemoryEstimate | None
    host_bytes: int


def described(subject: Subject) -> Described | None:
    """The job and strategy of a config; None where hardware or model is not named, or no strategy is like it."""
    return subject.once("described", lambda: _described(subject))


def nodes(subject: Subject) -> int:
    """Nodes that the GPUs fill; 1 where nothing says more."""
    hardware, world = subject.facts.hardware, subject.facts.world_size
    return math.ceil(world / hardware.gpus_per_node) if hardware is not None and world else 1


def speed(found: Described, **changed: object) -> float | None:
    """How many times faster a step is with another strategy; None where the cost model cannot tell."""
    other = attrs.evolve(found.strategy, **changed)  # type: ignore[arg-type]
    if len({found.job.nodes > 1, found.job.network.bandwidth_bytes_per_second > 0}) > 1:
        return None
    return cost(found.job, found.strategy).seconds / cost(found.job, other).seconds


def _described(subject: Subject) -> Described | None:
    facts = subject.facts
    if facts.hardware is None or facts.model is None or facts.hardware.vendor == "cpu":
        return None
    job, strategy = _job(subject, facts.hardware), _strategy(subject)
    if job is None or strategy is None:
        return None
    try:
        found = parts(job, strategy, strategy.buffers)
        memory = estimate(job, strategy, found)
        least = estimate(_leanest(subject, job), strategy) if strategy.precision != "fp32" else None
    except DsgenError:  # an architecture that is not known
        return None
    host = sum(found.host["training"].values())
    return Described(job=job, strategy=strategy, memory=memory, least=least, host_bytes=host)


def _job(subject: Subject, hardware: Hardware) -> Job | None:
    facts = subject.facts
    world = facts.world_size or hardware.gpus_per_node
    count = nodes(subject)
    if facts.model is None or world % count:
        return None
    training = Training(seq_len=facts.seq_len, optimizer=_OPTIMIZERS.get(subject.optimizer, "AdamW"))
    return Job(
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
    )


def _leanest(subject: Subject, job: Job) -> Job:
    length = subject.facts.seq_len or min(SHORTEST, job.seq_len)
    optimizer = job.training.optimizer if subject.optimizer in _OPTIMIZERS else "SGD"
    return attrs.evolve(
        job, training=attrs.evolve(job.training, seq_len=length, chunked_loss=True, optimizer=optimizer)
    )


def _strategy(subject: Subject) -> Strategy | None:
    precision = _precision(subject)
    facts, stage = subject.facts, subject.stage
    if precision is None or _beyond(subject) or facts.hardware is None:
        return None
    world = facts.world_size or facts.hardware.gpus_per_node
    tp = _whole(subject, "tensor_parallel.autotp_size", 1)
    if world % tp:
        return None
    micro, steps = _batch(subject, world)
    optimizer = subject.offload("optimizer") if stage else "none"
    return Strategy(
        stage=stage,
        offload_optimizer="cpu" if optimizer == "nvme" and stage < 3 else optimizer,
        offload_param=subject.offload("param") if stage == 3 else "none",
        tp=tp,
        checkpointing=True,
        precision=precision,
        micro_batch=micro,
        accumulation=steps,
        global_batch=micro * steps * (world // tp),
        buffers=_buffers(subject),
    )


def _precision(subject: Subject) -> str | None:
    """The dtype of the weights; None where the program chooses, or keeps some other number of bytes."""
    for dtype in ("bf16", "fp16"):
        on = subject.value(f"{dtype}.enabled")
        if on is OPEN:
            return "bf16"
        if on is True:
            return None if subject.value(f"{dtype}.{dtype}_master_weights_and_grads") is True else dtype
    return None if subject.target.name != "deepspeed" or subject.on("torch_autocast") else "fp32"


def _beyond(subject: Subject) -> bool:
    """Whether the config does what the memory model does not know."""
    sequence = subject.value("sequence_parallel_size")
    return subject.on("expert_parallel") or (isinstance(sequence, int) and sequence > 1)


def _batch(subject: Subject, world: int) -> tuple[int, int]:
    """Micro-batch and accumulation steps; 1 where the program fills them in."""
    micro = _whole(subject, "train_micro_batch_size_per_gpu", 0)
    steps = _whole(subject, "gradient_accumulation_steps", 0)
    total = _whole(subject, "train_batch_size", 0)
    if micro and not steps:
        steps = total // (micro * world) if total else 1
    elif total and not micro:
        micro = total // (world * max(1, steps))
    return max(1, micro), max(1, steps)


def _whole(subject: Subject, path: str, otherwise: int) -> int:
    value = subject.value(path)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63 else otherwise


def _buffers(subject: Subject) -> Buffers:
    zero = "zero_optimization"
    width = subject.facts.model.hidden_size if subject.facts.model is not None else 0

    def size(name: str, default: int, filled: float) -> int:
        path = f"{zero}.{name}"
        if subject.is_open(path):
            return int(filled)
        value = subject.value(path)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else default

    overlap = subject.value(f"{zero}.overlap_comm")
    return Buffers(
        reduce_bucket=size("reduce_bucket_size", DEFAULT_BUCKET, width**2),
        allgather_bucket=size("allgather_bucket_size", DEFAULT_BUCKET, DEFAULT_BUCKET),
        prefetch=size("stage3_prefetch_bucket_size", DEFAULT_PREFETCH, PREFETCH_PER_SQUARE * width**2),
        persistence=size("stage3_param_persistence_threshold", DEFAULT_PERSISTENCE, PERSISTENCE_PER_HIDDEN * width),
        max_live=size("stage3_max_live_parameters", DEFAULT_LIVE, DEFAULT_LIVE),
        max_reuse=size("stage3_max_reuse_distance", DEFAULT_LIVE, DEFAULT_LIVE),
        sub_group=size("sub_group_size", SUB_GROUP, SUB_GROUP),
        swap_buffers=size("offload_optimizer.buffer_count", DEFAULT_SWAP_BUFFERS, DEFAULT_SWAP_BUFFERS),
        overlap_comm=overlap if isinstance(overlap, bool) else subject.stage == 3,
    )
