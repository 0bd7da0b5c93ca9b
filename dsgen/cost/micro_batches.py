"""What one micro-batch takes part by part: kernels on the GPU, and the host that launches them."""

import functools
from typing import NamedTuple

from dsgen.cost.expert_loop import looped
from dsgen.cost.flow import queued
from dsgen.cost.model_work import PartWork, work
from dsgen.cost.sample_lengths import computed_length, sees, targets_length
from dsgen.families.tape.graph import DEQUANTIZATION, FORWARD_PASS
from dsgen.families.tape.moments import Size
from dsgen.families.tape.work import Attention, Product, Work
from dsgen.jobs.job import Job
from dsgen.jobs.releases import loops_over_experts, recomputed
from dsgen.jobs.samples import attention_beside
from dsgen.kernels import (
    Rates,
    attention_seconds,
    beside_mask,
    dispatch_seconds,
    four_bit_seconds,
    fused_kernel,
    gathered_seconds,
    hook_seconds,
    product_seconds,
    rates,
    taken,
    traffic_seconds,
)
from dsgen.memory.numbers import Numbers, count, quantized
from dsgen.memory.trained import narrow_adapters
from dsgen.shapes.attention_kinds import GROUPED, MASKED
from dsgen.shapes.profiles import Hardware, Model, Network, Training
from dsgen.strategies.strategies import Strategy

__all__ = ["Pass", "Passes", "node_rates", "numbers_of", "passes"]

FP32, HALF = 4, 2  # bytes of an element
UNFUSED = "math"
SORTS = {"norm": "reduction", "softmax": "reduction", "embedding": "gather", "mixed": "mixed"}  # words of the laws
BACKWARD_SORTS = {**SORTS, "embedding": "scatter"}  # what was picked forward is added where it was picked from
_CACHED = 4096

# No kernel of one GPU depends on what joins the nodes, so one timing serves every network.
ALONE = Network(fabric="none", bandwidth_bytes_per_second=0, latency_seconds=0, rdma=False)

node_rates = functools.lru_cache(maxsize=256)(rates)


class Pass(NamedTuple):
    """One part of a model in one pass of one micro-batch, each in seconds.

    Attributes:
        name: The part: before, dense, sparse, head ... as in dsgen.cost.model_work.
        repeats: How many equal ones follow each other.
        forward: Whether it goes forward; else backward, with a second forward before it under checkpointing.
        again: Whether it has that second forward.
        products, attention, memory: What kernels take on the GPU.
        host: What the host takes to launch them, hooks included.
        waits: What kernels wait for the sums of a tensor-parallel group, where those are counted.
    """

    name: str
    repeats: int
    forward: bool
    again: bool
    products: float
    attention: float
    memory: float
    host: float
    waits: float = 0.0

    @property
    def device(self) -> float:
        """Seconds on the GPU."""
        return self.products + self.attention + self.memory + self.waits


class _Kernels(NamedTuple):
    """What of a training decides which kernels run: jobs that differ in anything else have one timing.

    Attributes:
        method, attention, flash_attention, torch, chunked_loss, lora_rank, lora_targets, reentrant: As the training has
            them.
        drops: Adapters drop elements of their input.
        embeddings: Copies of embedding and head are trained beside adapters.
        narrow: No adapter is in fp32.
        loops: A mixture's experts run one after another.
        sees: Tokens of sequences whose attention would see as much, where samples are packed; 0: of the sequences.
    """

    method: str
    attention: str
    flash_attention: int
    torch: str | None
    chunked_loss: bool
    lora_rank: int
    lora_targets: tuple[str, ...]
    drops: bool
    embeddings: bool
    narrow: bool
    reentrant: bool
    loops: bool
    sees: int


class Passes(NamedTuple):
    """A micro-batch, part by part in the order in which its passes run.

    Attributes:
        order: The passes.
        products, attention, memory: What kernels of all of them take on the GPU, in seconds.
        host: What the host takes to launch all of it.
        seconds: What the micro-batch takes where nothing is communicated or offloaded: the host launches ahead.
    """

    order: tuple[Pass, ...]
    products: float
    attention: float
    memory: float
    host: float
    seconds: float


def numbers_of(job: Job, strategy: Strategy) -> Numbers:
    """Elements of the model as a strategy trains it, of one tensor-parallel rank."""
    training = job.training
    trains = (training.method, training.lora_rank, training.lora_targets, strategy.tp, training.lora_train_embeddings)
    return count(job.model, *trains, strategy.buffers.persistence)


def passes(job: Job, strategy: Strategy) -> Passes:
    """The passes of a job's micro-batch under a strategy."""
    length = computed_length(job, strategy)
    lengths = (length, targets_length(job, length))
    ways = (strategy.precision, strategy.tp, strategy.micro_batch, strategy.checkpointing, strategy.stage == 3)
    trained = recomputed(job.training, strategy.stage, job.version)
    attention = attention_beside(job, strategy.micro_batch == 1)
    kernels = _kernels(job.model, trained, attention, strategy.stage == 3, sees(job))
    ranks = job.world // strategy.tp if job.model.experts_apart and strategy.stage == 3 else 1
    return _passes(job.model, kernels, job.hardware, *lengths, *ways, ranks)


@functools.lru_cache(maxsize=256)
def _kernels(model: Model, training: Training, attention: str, zero3: bool, sees: int) -> _Kernels:
    wide = zero3 and training.method == "lora" and not narrow_adapters(training)
    return _Kernels(
        training.method,
        attention,
        training.flash_attention,
        training.torch,
        training.chunked_loss,
        training.lora_rank,
        training.lora_targets,
        training.lora_dropout > 0,
        training.lora_train_embeddings,
        not wide,
        training.reentrant is True,
        loops_over_experts(model, training),
        sees,
    )


@functools.lru_cache(maxsize=_CACHED)
def _passes(
    model: Model,
    kernels: _Kernels,
    hardware: Hardware,
    seq_len: int,
    target_len: int,
    precision: str,
    tp: int,
    batch: int,
    checkpointing: bool,
    zero3: bool,
    ranks: int,
) -> Passes:
    """As `passes`, of what they depend on; `ranks` gather experts that have tensors of their own."""
    full, node = kernels.method == "full", node_rates(hardware, ALONE)
    # Where all is trained, a second forward changes nothing of the other passes: one recording serves both, and stage 3
    # too, whose linear layers run to their end where others stop when all that backward needs is there again.
    every = (model, kernels, hardware, seq_len, target_len, precision, tp, batch)
    ahead: list[Pass] = []
    back: list[Pass] = []
    for part, forward, again, backward in _timed(*every, checkpointing or full, zero3 and not full):
        hooks = hook_seconds(node, part.modules) + gathered_seconds(node, part.called, ranks) if zero3 else 0.0
        calls = dispatch_seconds(node, 0, modules=part.modules + part.called)
        rerun = forward if zero3 and full else again
        twice = checkpointing and bool(part.again.operators)
        products, attention, memory, host = map(sum, zip(rerun, backward, strict=True)) if twice else backward
        ahead.append(Pass(part.name, part.repeats, True, False, *forward[:3], forward[3] + calls + hooks))
        host += hooks + (calls + hooks) * twice
        back.append(Pass(part.name, part.repeats, False, twice, products, attention, memory, host))
    order = (*ahead, *reversed(back))
    products = attention = memory = launched = 0.0
    for one in order:
        launched += one.repeats * one.host
        products += one.repeats * one.products
        attention += one.repeats * one.attention
        memory += one.repeats * one.memory
    seconds = queued([(one.repeats, (one.host, 0.0, one.device, 0.0)) for one in order])
    return Passes(order, products, attention, memory, launched, seconds)


_Seconds = tuple[float, float, float, float]  # of products, attention and memory traffic on the GPU, and of the host


@functools.lru_cache(maxsize=_CACHED)
def _timed(
    model: Model,
    kernels: _Kernels,
    hardware: Hardware,
    seq_len: int,
    target_len: int,
    precision: str,
    tp: int,
    batch: int,
    checkpointing: bool,
    zero3: bool,
) -> tuple[tuple[PartWork, _Seconds, _Seconds, _Seconds], ...]:
    """Every part with the seconds of its forward, its second forward and its backward."""
    node = node_rates(hardware, ALONE)
    kernel = UNFUSED
    if kernels.attention != "eager":
        release, torch = kernels.flash_attention, kernels.torch
        kernel = fused_kernel(kernels.attention, node.architecture, release=release, torch=torch)
    spent = functools.partial(_spent, node, batch, precision, _Attention(kernels.attention, kernel, kernels.sees))
    return tuple(
        (part, spent(part.forward, "forward"), spent(part.again, "forward"), spent(part.backward, "backward"))
        for part in _parts(model, kernels, seq_len, target_len, precision, tp, checkpointing, zero3)
    )


@functools.lru_cache(maxsize=_CACHED)
def _parts(
    model: Model,
    kernels: _Kernels,
    seq_len: int,
    target_len: int,
    precision: str,
    tp: int,
    checkpointing: bool,
    zero3: bool,
) -> tuple[PartWork, ...]:
    """The work of a model's parts."""
    parts = work(
        model,
        precision=precision,
        attention=kernels.attention,
        seq_len=seq_len,
        tp=tp,
        method=kernels.method,
        checkpointing=checkpointing,
        chunked_loss=kernels.chunked_loss,
        lora_rank=kernels.lora_rank,
        lora_targets=kernels.lora_targets,
        zero3=zero3,
        drops=kernels.drops,
        embeddings=kernels.embeddings,
        narrow=kernels.narrow,
        target_len=target_len or None,
        reentrant=kernels.reentrant,
    ).parts
    if not kernels.loops:
        return parts
    item, packed = FP32 if precision == "fp32" else HALF, model.experts_apart and quantized(model, kernels.method)
    return tuple(looped(part, model, seq_len, item, packed) for part in parts)


class _Attention(NamedTuple):
    """What runs where a model attends: `attention` and `sees` are as of `_Kernels`."""

    attention: str
    kernel: str
    sees: int


def _spent(node: Rates, batch: int, precision: str, kind: _Attention, done: Work, phase: str) -> _Seconds:
    products = attention = memory = 0.0
    sorts = SORTS if phase == "forward" else BACKWARD_SORTS
    for product, often in done.products:
        products += often * _product(node, batch, precision, product)
    for call, often in done.attentions:
        attention += often * _attention(node, batch, precision, kind, call)
    packed = 0
    for moved, often in done.traffic:
        memory += often * traffic_seconds(node, _at(moved.moved, batch), sorts.get(moved.sort, "stream"))
        packed += often * (moved.sort == DEQUANTIZATION)
    host = dispatch_seconds(node, done.operators, phase=phase, views=done.views)
    return products, attention, memory, host + four_bit_seconds(node, packed)


def _product(node: Rates, batch: int, precision: str, product: Product) -> float:
    m, n, k = (_at(side, batch) for side in product[:3])
    if product.groups > 1:  # the rows are divided among the groups
        m, k = (-(-m // product.groups), k) if product.m[1] else (m, -(-k // product.groups))
    dtype = "fp32" if product.item == FP32 else precision
    kernels, together = (product.groups, 1) if product.apart else (1, product.groups)
    batch = together * _at(product.batch, batch)
    return kernels * product_seconds(node, max(m, 1), n, max(k, 1), dtype, batch=batch)


def _attention(node: Rates, batch: int, precision: str, kind: _Attention, call: Attention) -> float:
    masked = kind.attention == MASKED or (kind.attention in ("sdpa", GROUPED) and call.window > 0)
    kernel = taken(kind.kernel, call.head_size)
    return attention_seconds(
        node,
        beside_mask(kernel) if masked else kernel,
        "forward" if call.phase == FORWARD_PASS else "backward",
        batch=batch,
        heads=call.heads,
        kv_heads=call.kv_heads,
        queries=call.queries,
        keys=call.keys,
        sees=kind.sees,
        head_size=call.head_size,
        causal=not masked,
        window=0 if masked else call.window,
        dtype="fp32" if call.item == FP32 else precision,
    )


def _at(size: Size, batch: int) -> int:
    return size[0] + batch * size[1]
