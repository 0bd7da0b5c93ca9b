"""The smallest changes that matter: each found by searching the estimate, and checked at its edge.

Largest micro-batch, longest sequence, fewest GPUs and least host RAM are edges: they surely fit, and the next value
does not. All else stays as it was asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from dsgen.asking.memory_questions.alternatives import places
from dsgen.asking.memory_questions.loaders import for_program, program_of
from dsgen.asking.memory_questions.questions import Question, strategy_of
from dsgen.families import family_of
from dsgen.jobs.job import Job
from dsgen.jobs.releases import reenters
from dsgen.memory import MemoryEstimate, Verdict, estimate, host_limit
from dsgen.memory.estimates import GATHERS
from dsgen.memory.later import Later, later
from dsgen.memory.quantized_base import lifts
from dsgen.shapes.limits import MOST_NODES
from dsgen.strategies.buffers import choose
from dsgen.strategies.constraints import cannot
from dsgen.strategies.strategies import Strategy, describe
from dsgen.strategies.wishes import allowed

__all__ = ["Change", "Counterfactuals", "counterfactuals"]

MOST_SEQUENCES = 2**24  # per GPU and forward pass; more is never asked for
MOST_TOKENS = 2**24
GIB = 2**30
MOST_HOST_GIB = 2**20
_MOST_SHARED = 2**16  # the largest micro-batch offered instead of a larger one
# Where optimizer and parameters are -> the value of --offload that says exactly this
_WORDS = {("none", "none"): "none", ("cpu", "none"): "optimizer", ("cpu", "cpu"): "all"}

_BUCKET, _GROWING = "zero_optimization.reduce_bucket_size", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
_LOSS, _PACKED = "a chunked loss", "without peft's prepare_model_for_kbit_training, which makes fp32 of embeddings"
_AWAY = "activations that wait in the node's RAM (TRL's activation_offloading)"
_AGAIN = "reentrant checkpointing, whose forward keeps no gathered 4-bit weights"
_ADAPTED = {"lora": "training adapters", "qlora": "training adapters over a base in 4 bit"}
_SMALLER = {"full": ("lora", "qlora"), "lora": ("qlora",), "qlora": ()}  # what takes less than a method, in general


@attrs.frozen(kw_only=True)
class Change:
    """A change that makes it surely fit.

    Attributes:
        options: What to say instead on the command line: option -> value.
        words: The same in words.
        memory: What it then takes while it trains.
        later: What comes between steps then.
    """

    options: dict[str, Any]
    words: str
    memory: MemoryEstimate
    later: tuple[Later, ...]


@attrs.frozen(kw_only=True)
class Counterfactuals:
    """What would do; None where nothing of the kind does.

    Attributes:
        changes: The smallest changes that fit, of the strategy and then of what is trained; empty where it fits.
        micro_batch: Largest micro-batch that surely fits.
        seq_len: Longest sequence that surely fits.
        seq_len_bound: Whether it is the longest that the model has positions for.
        gpus: Fewest GPUs of this hardware, whole nodes from the second on.
        nodes: The nodes they fill.
        host_bytes: Least RAM of a node, in whole GiB, with which loading and training, an evaluation, a save and a
            resume surely fit.
        host_training_bytes: The same for loading and training alone.
    """

    changes: tuple[Change, ...]
    micro_batch: int | None
    seq_len: int | None
    seq_len_bound: bool
    gpus: int | None
    nodes: int
    host_bytes: int | None
    host_training_bytes: int | None


def counterfactuals(question: Question) -> Counterfactuals:
    """Search them all."""
    job, asked = question.job, question.strategy
    micro = _largest(lambda size: _over(job, _sized(question, size)), MOST_SEQUENCES, asked.micro_batch)
    bound = job.model.max_positions if family_of(job.model).learned_positions else MOST_TOKENS
    length = _largest(lambda tokens: _over(_at_length(job, tokens), asked), bound, job.seq_len)
    cluster = _cluster(question)

    def lacking(size_gib: int) -> int:
        host = estimate(_with_ram(job, size_gib), asked).host
        return host.high_bytes - host.limit_bytes

    training = _least(lacking, MOST_HOST_GIB, estimate(job, asked).host.high_bytes // GIB)
    most = max(one.host.high_bytes for one in later(job, asked, sequences=question.evaluated))
    between = _least(lambda size: most - host_limit(_with_ram(job, size).hardware), MOST_HOST_GIB, most // GIB)
    host = max(training, between) if training and between else 0
    fits = estimate(job, asked).verdict is Verdict.FITS
    return Counterfactuals(
        changes=() if fits else tuple(_changes(question, length)),
        micro_batch=micro or None,
        seq_len=length or None,
        seq_len_bound=length == bound,
        gpus=cluster[0] * cluster[1] if cluster else None,
        nodes=cluster[0] if cluster else 0,
        host_bytes=host * GIB if host else None,
        host_training_bytes=training * GIB if training else None,
    )


def _fits(job: Job, strategy: Strategy) -> bool:
    return _over(job, strategy) <= 0


def _sized(question: Question, size: int) -> Strategy:
    replicas = question.job.world // question.strategy.tp
    steps = question.strategy.accumulation
    return attrs.evolve(question.strategy, micro_batch=size, global_batch=size * steps * replicas)


def _at_length(job: Job, tokens: int) -> Job:
    return attrs.evolve(job, training=attrs.evolve(job.training, seq_len=tokens))


def _with_ram(job: Job, size_gib: int) -> Job:
    return attrs.evolve(job, hardware=attrs.evolve(job.hardware, host_memory_bytes=size_gib * GIB))


def _over(job: Job, strategy: Strategy) -> int:
    """Bytes that it may take over the tightest limit; 0 or less where it surely fits."""
    memory = estimate(job, strategy)
    return max(place.high_bytes - place.limit_bytes for place in (memory.gpu, memory.host, memory.nvme))


def _largest(over: Callable[[int], int], bound: int, start: int = 1) -> int:
    """The largest number up to a bound that fits; 0 for none.

    Args:
        over: Bytes over the limit at a number, 0 or less where it fits; they never fall as the number grows.
        bound: The largest number that is tried.
        start: Where to begin: the nearer to the answer, the fewer are tried.
    """
    low, high, halve = 0, bound + 1, False  # what fits, what does not, and whether the next step halves
    known: dict[int, int] = {}
    number = min(max(1, start), bound)
    while True:
        known[number] = over(number)
        low, high = (number, high) if known[number] <= 0 else (low, number)
        if high - low <= 1:
            return low
        if high > bound:
            number = min(2 * low, bound)
        elif not low or halve:
            number = (low + high) // 2
        else:  # between two sizes memory is nearly a line
            line = low - known[low] * (high - low) // (known[high] - known[low])
            number = min(max(low + 1, line), high - 1)
        halve = not halve


def _least(lacking: Callable[[int], int], bound: int, start: int = 1) -> int:
    """The least number up to a bound that lacks nothing (0 or less); a larger one never lacks more. 0 for none."""
    least = _largest(lambda number: 1 - lacking(number), bound, start) + 1
    return least if least <= bound else 0


def _cluster(question: Question) -> tuple[int, int] | None:
    """The smallest cluster that surely fits, as nodes and GPUs of each: first part of a node, then whole nodes."""
    job, asked = question.job, question.strategy
    full = job.hardware.gpus_per_node

    def fits(nodes: int, per_node: int) -> bool:
        if nodes * per_node % asked.tp:
            return False
        there = attrs.evolve(question, job=attrs.evolve(job, nodes=nodes, gpus_per_node=per_node))
        return _fits(there.job, strategy_of(there))

    for per_node in range(1, full + 1):
        if fits(1, per_node):
            return 1, per_node
    # By doubling: what Muon gathers at stage 3 grows with the ranks, so that more nodes than fit may fit no more.
    enough = next((1 << power for power in range(1, MOST_NODES.bit_length()) if fits(1 << power, full)), 0)
    if not enough:
        return None
    return _least(lambda nodes: 0 if nodes > enough // 2 and fits(nodes, full) else 1, enough, enough), full


def _changes(question: Question, length: int) -> Iterator[Change]:
    """Changes that fit: what the allocator is told, the smallest of the strategy, a shorter sequence, training less."""
    yield from [*_smallest(question, length)] or _in_sixteen_bits(question)


def _smallest(question: Question, length: int) -> Iterator[Change]:
    job, asked = question.job, question.strategy
    growing = attrs.evolve(job, training=attrs.evolve(job.training, expandable_segments=True))
    if not job.training.expandable_segments and estimate(growing, asked).verdict is Verdict.FITS:
        yield _change({"expandable_segments": True}, _GROWING, growing, asked, question.evaluated)
    elif (fewer := _smaller_bucket(question, growing)) is not None:
        yield fewer
    if (again := _recomputed_otherwise(question)) is not None:
        yield again
    change = _strategies(question)
    if change is not None:
        yield change
    costly = change is None or "offload" in change.options
    if costly and (smaller := _fewer_at_once(question, growing)) is not None:
        yield smaller  # which costs less than a way to RAM or to a drive
    if length:
        short = _at_length(job, length)
        yield _change({"seq_len": length}, f"{length} tokens", short, asked, question.evaluated)
    yield from _trained_otherwise(question)


def _smaller_bucket(question: Question, growing: Job) -> Change | None:
    """The bucket of gradients that a plan would choose for it, alone or with an allocator that grows its segments."""
    job, asked = question.job, question.strategy
    free = attrs.evolve(job, deepspeed={})  # what a person or a config says of it is what is changed
    bucket = choose(free, asked.stage, asked.tp, asked.offload_optimizer, asked.offload_param).reduce_bucket
    if asked.stage == 0 or bucket >= asked.buffers.reduce_bucket:
        return None
    options: dict[str, Any] = {"set": [f"{_BUCKET}={bucket}"]}
    words = f"gradients are reduced in buckets of {bucket:,}"
    smaller = attrs.evolve(asked, buffers=asked.buffers._replace(reduce_bucket=bucket))
    if _fits(job, smaller):
        return _change(options, words, job, smaller, question.evaluated)
    if job.training.expandable_segments or not _fits(growing, smaller):
        return None
    options, words = {"expandable_segments": True, **options}, f"{_GROWING}, and {words}"
    return _change(options, words, growing, smaller, question.evaluated)


def _recomputed_otherwise(question: Question) -> Change | None:
    """The kind of checkpointing whose forward makes no graph, in which bitsandbytes would keep what is gathered."""
    training, asked = question.job.training, question.strategy
    keeps = training.method == "qlora" and asked.stage == GATHERS and asked.checkpointing
    if not keeps or reenters(training, asked.stage, question.job.version):
        return None
    return _trained(question, {"reentrant": True}, _AGAIN)


def _trained_otherwise(question: Question) -> Iterator[Change]:
    """Another loss, a base that stays in 16 bits where it is not in 4, both where neither fits alone; adapters."""
    training = question.job.training
    loss: dict[str, Any] = {} if training.chunked_loss else {"chunked_loss": True}
    packed: dict[str, Any] = {}
    if training.method == "qlora" and lifts(training, question.strategy.stage):
        packed["kbit_fp32"] = "never"
    made = [_trained(question, loss, _LOSS), _trained(question, packed, _PACKED)]
    if question.strategy.checkpointing and not training.activation_offloading:
        made.append(_trained(question, {"activation_offloading": True}, _AWAY))
    if not any(made) and loss and packed:
        made.append(_trained(question, loss | packed, f"{_LOSS}, {_PACKED}"))
    yield from (change for change in made if change is not None)
    adapted = (
        _trained(question, {"method": method}, words)
        for method, words in _ADAPTED.items()
        if method in _SMALLER[training.method]
        if allowed(question.job.model, attrs.evolve(training, method=method))
    )
    yield from itertools.islice((change for change in adapted if change is not None), 1)


def _in_sixteen_bits(question: Question) -> Iterator[Change]:
    """Adapters over a base in 16 bits, which stage 3 cuts and its offload takes away; one in 4 bits every GPU has."""
    training = question.job.training
    lora = attrs.evolve(training, method="lora")
    if training.method != "qlora" or not allowed(question.job.model, lora):
        return
    wished = for_program(attrs.evolve(question.job, training=lora), program_of(question))
    change = _strategies(attrs.evolve(question, job=wished))
    if change is not None:
        words = f"adapters over a base in 16 bits, {change.words}"
        yield attrs.evolve(change, options={"method": "lora", **change.options}, words=words)


def _trained(question: Question, wished: dict[str, Any], words: str) -> Change | None:
    """The job with other wishes of its training, where it surely fits."""
    job, asked = question.job, question.strategy
    other = for_program(attrs.evolve(job, training=attrs.evolve(job.training, **wished)), program_of(question))
    if not wished or cannot(other, asked) or estimate(other, asked).verdict is not Verdict.FITS:
        return None
    return _change(wished, words, other, asked, question.evaluated)


def _strategies(question: Question) -> Change | None:
    """The strategy that fits with the fewest differences: recomputation before ZeRO before offload before batch."""
    job, asked = question.job, question.strategy
    best: tuple[tuple[int, ...], Strategy] | None = None
    mine = (asked.stage, *_places(asked))
    ways = [mine, *(way for way in places(question) if way[0] >= asked.stage and way != mine)]
    sizes = _sizes(asked)
    for checkpointing, (stage, optimizer, parameters) in itertools.product({asked.checkpointing, True}, ways):
        other = strategy_of(
            question, checkpointing=checkpointing, stage=stage, offload_optimizer=optimizer, offload_param=parameters
        )
        moved = (optimizer, parameters) != _places(asked)
        distance = (checkpointing != asked.checkpointing) + (stage != asked.stage) + moved
        for less, size in enumerate(sizes):
            rank = (distance + bool(less), less, _moves(other), stage - asked.stage)
            if best is not None and rank >= best[0]:
                break
            steps = asked.micro_batch * asked.accumulation // size
            smaller = attrs.evolve(other, micro_batch=size, accumulation=steps)
            if _fits(job, smaller):
                best = (rank, smaller)
    return _told(question, best[1]) if best is not None else None


def _fewer_at_once(question: Question, growing: Job) -> Change | None:
    """The largest smaller micro-batch with which nothing else must change; else the largest with an allocator that
    grows its segments, where that alone is not enough; None where none fits.
    """
    job, asked = question.job, question.strategy
    sequences = asked.micro_batch * asked.accumulation
    smaller = [attrs.evolve(asked, micro_batch=size, accumulation=sequences // size) for size in _sizes(asked)[1:]]
    if (fits := next((other for other in smaller if _fits(job, other)), None)) is not None:
        return _told(question, fits)
    if job.training.expandable_segments or _fits(growing, asked):
        return None
    if (fits := next((other for other in smaller if _fits(growing, other)), None)) is None:
        return None
    change = _told(attrs.evolve(question, job=growing), fits)
    options = {"expandable_segments": True, **change.options}
    return attrs.evolve(change, options=options, words=f"{_GROWING}, and {change.words}")


def _sizes(asked: Strategy) -> list[int]:
    """Micro-batches up to the one asked for that leave the global batch as it is, the largest first; never none."""
    sequences = asked.micro_batch * asked.accumulation
    return [size for size in range(min(asked.micro_batch, _MOST_SHARED), 0, -1) if sequences % size == 0]


def _moves(layout: Strategy) -> int:
    """How far what is offloaded is from the GPU."""
    places = ("none", "cpu", "nvme")
    return places.index(layout.offload_optimizer) + places.index(layout.offload_param)


def _places(layout: Strategy) -> tuple[str, str]:
    return layout.offload_optimizer, layout.offload_param


def _offload(layout: Strategy) -> dict[str, Any]:
    """The option that says where things are, with the keys of those that it leaves open."""
    if (word := _WORDS.get(_places(layout))) is not None:
        return {"offload": word}
    places = {"optimizer": layout.offload_optimizer, "param": layout.offload_param}
    word = "nvme" if places["optimizer"] == "nvme" else "auto"
    if word == "nvme":
        del places["optimizer"]
    return {"offload": word, "set": [f"zero_optimization.offload_{what}.device={at}" for what, at in places.items()]}


def _told(question: Question, other: Strategy) -> Change:
    asked = question.strategy
    options: dict[str, Any] = {}
    words = []
    if other.checkpointing != asked.checkpointing:
        options["checkpointing"] = "full"
        words.append("activation checkpointing")
    if other.stage != asked.stage:
        options["zero_stage"] = other.stage
    if _places(other) != _places(asked):
        options |= _offload(other)
    if (other.stage, *_places(other)) != (asked.stage, *_places(asked)):
        words.append(describe(attrs.evolve(other, checkpointing=False, tp=1)))
    if other.micro_batch != asked.micro_batch:
        options["micro_batch"], options["accumulation"] = other.micro_batch, other.accumulation
        words.append(f"micro-batch {other.micro_batch} x {other.accumulation} steps")
    return _change(options, " and ".join(words), question.job, other, question.evaluated)


def _change(options: dict[str, Any], words: str, job: Job, strategy: Strategy, evaluated: int) -> Change:
    """What a job with another strategy, or another job, takes."""
    behind = later(job, strategy, sequences=evaluated)
    return Change(options=options, words=words, memory=estimate(job, strategy), later=behind)
