"""The time of a step from causes: the cost model that is being built, held against published rows before it is used.

    python benchmarks/speed_from_causes.py

What a step does is recorded (dsgen.cost.work), how long each kernel, collective and copy takes is computed from facts
(dsgen.kernels), and DeepSpeed's order decides what waits for what: the host launches ahead of the GPU, parameters
arrive ahead of their use. No row of docs/speed.md was fitted; the host's dispatch (dsgen.kernels.measured_facts) rests
on one published forward of a whole model, so it is near an end-to-end row. dsgen itself still answers with dsgen.cost.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from published_speed_cases import Prediction, speed_cases  # benchmarks/, beside this script
from published_speed_page import summary

from dsgen.cost.compute import adam_bytes
from dsgen.cost.model_work import PartWork, work
from dsgen.cost.steps import HIGH, LOW
from dsgen.families.tape.graph import FORWARD_PASS
from dsgen.families.tape.moments import Size
from dsgen.families.tape.work import Attention, Product, Work
from dsgen.jobs.job import Job
from dsgen.kernels import (
    Rates,
    attention_seconds,
    collective_seconds,
    copy_seconds,
    cpu_adam_seconds,
    dispatch_seconds,
    hook_seconds,
    nvme_seconds,
    product_seconds,
    rates,
    traffic_seconds,
)
from dsgen.memory.numbers import Numbers, count
from dsgen.strategies.strategies import Strategy

FP32 = 4  # bytes of an element
KERNEL = {"flash": "flash2", "sdpa": "flash2", "eager": "math"}  # what runs where a kind of attention is asked for
SORTS = {"norm": "reduction", "softmax": "reduction", "embedding": "gather"}  # words of the laws
# What a GPU's step moves of an element besides (stage_1_and_2.py, step): the 16-bit gradient is read for its norm and
# for its cast, the fp32 one written, scaled in place; the 16-bit copy of the weight is written.
STEP_BYTES = 2 + 2 + 4 + 8 + 2


class Pass(NamedTuple):
    """One part of a model in one pass of one micro-batch, each in seconds.

    Attributes:
        name: The part.
        repeats: How many equal ones follow each other.
        forward: Whether it goes forward; else backward, with a second forward before it under checkpointing.
        products, attention, memory: What kernels take on the GPU.
        host: What the host takes to launch them, hooks included.
        gathers: How often its parameters are used anew.
    """

    name: str
    repeats: int
    forward: bool
    products: float
    attention: float
    memory: float
    host: float
    gathers: int

    @property
    def device(self) -> float:
        """Seconds on the GPU."""
        return self.products + self.attention + self.memory


def passes(job: Job, strategy: Strategy, rates: Rates) -> tuple[Pass, ...]:
    """A micro-batch's passes, part by part in the order in which they run."""
    training = job.training
    zero3 = strategy.stage == 3
    done = work(
        job.model,
        precision=strategy.precision,
        attention=training.attention,
        seq_len=job.seq_len,
        tp=strategy.tp,
        method=training.method,
        checkpointing=strategy.checkpointing,
        chunked_loss=training.chunked_loss,
        lora_rank=training.lora_rank,
        lora_targets=training.lora_targets,
        zero3=zero3,
        single=strategy.micro_batch == 1,
        drops=training.lora_dropout > 0,
        embeddings=training.lora_train_embeddings,
        target_len=job.target_len or None,
    )
    return _passes(done.parts, rates, strategy.micro_batch, strategy.precision, KERNEL[training.attention], zero3)


@functools.lru_cache(maxsize=4096)
def _passes(
    parts: tuple[PartWork, ...], rates: Rates, batch: int, precision: str, kernel: str, hooked: bool
) -> tuple[Pass, ...]:
    timed = functools.partial(_timed, rates, batch, precision, kernel)
    ahead, back = [], []
    for part in parts:
        hooks = hook_seconds(rates, part.modules) if hooked else 0.0
        ahead.append(Pass(part.name, part.repeats, True, *timed(part.forward, hooks, "forward"), 1))
        again = bool(part.again.operators)
        first = timed(part.again, hooks if again else 0.0, "forward")
        second = timed(part.backward, hooks, "backward")
        both = (one + other for one, other in zip(first, second, strict=True))
        back.append(Pass(part.name, part.repeats, False, *both, 2 if again else 1))
    return (*ahead, *reversed(back))


def _timed(
    rates: Rates, batch: int, precision: str, kernel: str, done: Work, hooks: float, phase: str
) -> tuple[float, float, float, float]:
    products = attention = memory = 0.0
    for product, often in done.products:
        products += often * _product(rates, batch, precision, product)
    for call, often in done.attentions:
        attention += often * _attention(rates, batch, precision, kernel, call)
    for moved, often in done.traffic:
        memory += often * traffic_seconds(rates, _at(moved.moved, batch), SORTS.get(moved.sort, "stream"))
    return products, attention, memory, dispatch_seconds(rates, done.operators, phase=phase, views=done.views) + hooks


def _product(rates: Rates, batch: int, precision: str, product: Product) -> float:
    m, n, k = (_at(side, batch) for side in product[:3])
    if product.groups > 1:  # the rows are divided among the groups
        m, k = (-(-m // product.groups), k) if product.m[1] else (m, -(-k // product.groups))
    dtype = "fp32" if product.item == FP32 else precision
    return product_seconds(rates, max(m, 1), n, max(k, 1), dtype, batch=product.groups * _at(product.batch, batch))


def _attention(rates: Rates, batch: int, precision: str, kernel: str, call: Attention) -> float:
    return attention_seconds(
        rates,
        kernel,
        "forward" if call.phase == FORWARD_PASS else "backward",
        batch=batch,
        heads=call.heads,
        kv_heads=call.kv_heads,
        queries=call.queries,
        keys=call.keys,
        head_size=call.head_size,
        causal=True,
        window=call.window,
        dtype="fp32" if call.item == FP32 else precision,
    )


def _at(size: Size, batch: int) -> int:
    return size[0] + batch * size[1]


def update_seconds(job: Job, strategy: Strategy, rates: Rates, elements: int) -> float:
    """The GPU's step over this rank's elements: norm, casts, the fused optimizer, and the 16-bit copy."""
    return traffic_seconds(rates, elements * (adam_bytes(job, strategy) + STEP_BYTES), "adam")


class Collectives(NamedTuple):
    """What ZeRO moves between replicas, in seconds.

    Attributes:
        gather: All parameters gathered once (stage 3).
        reduce: All gradients reduced once; in every pass from stage 2 on, else in the last one.
        update: After the step: updated parameters (stages 1 and 2).
        calls: Of the gathers, which the host issues.
        reduces: Of the reductions.
        prefetched: Whether gathers run ahead of use.
    """

    gather: float
    reduce: float
    update: float
    calls: int
    reduces: int
    prefetched: bool


def collectives(job: Job, strategy: Strategy, rates: Rates, numbers: Numbers) -> Collectives:
    """What a strategy's replicas move."""
    replicas = job.world // strategy.tp
    if replicas == 1:
        return Collectives(0.0, 0.0, 0.0, 0, 0, False)
    size = 4 if strategy.precision == "fp32" else 2
    buffers, stage = strategy.buffers, strategy.stage
    gradients, weights = size * numbers.trained, size * numbers.total

    def spent(kind: str, total: int, calls: int) -> float:
        inside = max(1, job.gpus_per_node // strategy.tp)
        each = total / max(calls, 1)
        return calls * collective_seconds(rates, kind, each, replicas, inside, groups_per_node=strategy.tp)

    reduces = max(1, -(-numbers.trained // max(buffers.reduce_bucket, 1)))
    if stage == 0:
        return Collectives(0.0, spent("all_reduce", gradients, reduces), 0.0, 0, reduces, False)
    reduce = spent("reduce_scatter", gradients, reduces)
    if stage < 3:
        update = spent("all_gather", gradients, max(1, numbers.trained // max(buffers.allgather_bucket, 1)))
        return Collectives(0.0, reduce, update, 0, reduces, False)
    calls = max(1, -(-numbers.total // max(min(buffers.prefetch, numbers.largest), numbers.block // 16, 1)))
    ahead = buffers.prefetch > 0 and numbers.block <= buffers.max_live
    return Collectives(spent("all_gather", weights, calls), reduce, 0.0, calls, reduces, ahead)


def tensor_parallel_seconds(job: Job, strategy: Strategy, rates: Rates) -> float:
    """AutoTP's all-reduces of one micro-batch: two per block forward, two backward, two more when recomputed."""
    if strategy.tp == 1:
        return 0.0
    size = 4 if strategy.precision == "fp32" else 2
    moved = size * strategy.micro_batch * job.seq_len * job.model.hidden_size
    count = job.model.layers * (6 if strategy.checkpointing else 4)
    return count * collective_seconds(rates, "all_reduce", moved, strategy.tp, min(strategy.tp, job.gpus_per_node))


# Seconds of one part on every machine, and how many equal parts follow each other.
Row = tuple[int, tuple[float, ...]]


def finished(rows: Iterable[Row], machines: int) -> float:
    """When the last part has left the last machine.

    Of a run of equal parts the longest way is known: each machine once, and the slowest of those passed again for
    every further part.
    """
    free = [0.0] * machines
    for repeats, spent in rows:
        ends = []
        for last in range(machines):
            total = slowest = best = 0.0
            for first in range(last, -1, -1):
                total += spent[first]
                slowest = max(slowest, spent[first])
                best = max(best, free[first] + total + (repeats - 1) * slowest)
            ends.append(best)
        free = ends
    return free[-1]


NVME_STATE_BYTES = 12  # bytes of state per element that each step reads and writes: weight and two moments in fp32


class Offload(NamedTuple):
    """What offload costs, in seconds.

    Attributes:
        fetch: This rank's share of the parameters, brought in once.
        gradients: Gradients of one pass, taken away.
        step: Once an optimizer step: the update on the CPU, and the weights' way back.
    """

    fetch: float
    gradients: float
    step: float


def offload(job: Job, strategy: Strategy, rates: Rates, numbers: Numbers) -> Offload:
    """What a strategy keeps elsewhere, and what that costs."""
    ranks, replicas = job.gpus_per_node, job.world // strategy.tp
    size = 4 if strategy.precision == "fp32" else 2
    own = numbers.trained / (replicas if strategy.stage else 1)
    fetch = gradients = step = 0.0
    if strategy.offload_optimizer != "none":
        # With accumulation each pass brings the sum back, adds to it and takes it away again (stage_1_and_2.py).
        gradients = copy_seconds(rates, size * own, direction="to_host") * (2 if strategy.accumulation > 1 else 1)
        step = cpu_adam_seconds(
            rates, own, ranks_per_node=ranks, bytes_per_element=adam_bytes(job, strategy), launcher="deepspeed"
        ) + copy_seconds(rates, size * own)
        if strategy.offload_optimizer == "nvme":
            moved = own * ranks * NVME_STATE_BYTES
            step += nvme_seconds(rates, moved, "read") + nvme_seconds(rates, moved, "write")
    if strategy.offload_param != "none":
        share = size * numbers.total / replicas
        fetch = copy_seconds(rates, share)
        if strategy.offload_param == "nvme":
            fetch += nvme_seconds(rates, share * ranks, "read")
    return Offload(fetch, gradients, step)


# Kernels slow down while a collective shares the GPU: 18.9 % on average over A100, H100, MI210, MI250 (arXiv
# 2507.03114).
CONTENTION = 0.19


def from_causes(job: Job, strategy: Strategy) -> Prediction:
    """The time of one optimizer step under a strategy, and the speed that makes."""
    training = job.training
    node = rates(job.hardware, job.network)
    numbers = count(
        job.model,
        training.method,
        training.lora_rank,
        training.lora_targets,
        strategy.tp,
        training.lora_train_embeddings,
        strategy.buffers.persistence,
    )
    ran = passes(job, strategy, node)
    moved, away = collectives(job, strategy, node, numbers), offload(job, strategy, node, numbers)
    split = tensor_parallel_seconds(job, strategy, node)
    shares = _shares(ran, numbers)
    repeats = strategy.accumulation
    issue = node.collective_dispatch_seconds

    def micro(reduces: bool, with_moved: bool = True, with_away: bool = True) -> float:
        """Seconds of one micro-batch."""
        none = Collectives(0.0, 0.0, 0.0, 0, 0, False)
        rows = _rows(ran, shares, strategy, moved if with_moved else none, away if with_away else Offload(0, 0, 0),
                     issue, reduces)  # fmt: skip
        return finished(rows, 4)

    early = strategy.stage >= 2
    times = [(repeats - 1, early), (1, True)]
    everything = sum(count * micro(reduces) for count, reduces in times)
    nearby = sum(count * micro(reduces, with_away=False) for count, reduces in times)
    alone = repeats * micro(False, False, False)
    device = repeats * sum(one.repeats * one.device for one in ran)
    own = numbers.trained / (job.world // strategy.tp if strategy.stage else 1)
    updated = 0.0 if strategy.offload_optimizer != "none" else update_seconds(job, strategy, node, int(own))
    parts = {
        "matrix products": repeats * sum(one.repeats * one.products for one in ran),
        "attention": repeats * sum(one.repeats * one.attention for one in ran),
        "memory traffic": repeats * sum(one.repeats * one.memory for one in ran),
        "host": max(0.0, alone - device),
        "communication": max(0.0, nearby - alone) + moved.update,
        "tensor parallelism": repeats * split,
        "offload": max(0.0, everything - nearby) + away.step,
        "optimizer": updated,
    }
    seconds = sum(parts.values())
    speed = strategy.global_batch * job.seq_len / seconds / job.world
    return Prediction(speed, speed * LOW, speed * HIGH, seconds, parts)


def _shares(ran: Sequence[Pass], numbers: Numbers) -> list[float]:
    """The share of the model's parameters that one of each part's equal ones has; what is outside is half before."""
    blocks = sum(one.repeats for one in ran if one.forward and one.name not in ("before", "head"))
    block = min(1.0 / max(blocks, 1), numbers.block / max(numbers.total, 1))
    outside = max(0.0, 1.0 - block * blocks) / 2
    return [outside if one.name in ("before", "head") else block for one in ran]


def _rows(
    ran: Sequence[Pass],
    shares: Sequence[float],
    strategy: Strategy,
    moved: Collectives,
    away: Offload,
    issue: float,
    reduces: bool,
) -> list[tuple[int, tuple[float, ...]]]:
    """Every part on the host, on the network before it is used, on the GPU, and on the network and the link behind."""
    beside = strategy.buffers.overlap_comm or strategy.stage == 3
    rows = []
    for one, share in zip(ran, shares, strict=True):
        gather = share * one.gathers * (moved.gather + away.fetch)
        reduce = share * moved.reduce if reduces and not one.forward else 0.0
        taken = share * away.gradients if not one.forward else 0.0
        host = one.host + share * issue * (one.gathers * moved.calls + (moved.reduces if reduce else 0))
        device = one.device
        if strategy.stage == 0:
            device, reduce = device + reduce, 0.0
        if not moved.prefetched and gather:
            device, gather = device + gather, 0.0
        if not beside:
            device, reduce = device + reduce + taken, 0.0
            taken = 0.0
        ahead = gather + (reduce if strategy.stage == 3 else 0.0)
        behind = taken + (0.0 if strategy.stage == 3 else reduce)
        device += CONTENTION * min(one.device, gather + reduce)
        rows.append((one.repeats, (host, ahead, device, behind)))
    return rows


if __name__ == "__main__":
    print("\n".join(summary(speed_cases(from_causes))))
