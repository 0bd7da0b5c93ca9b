"""The ways to run a Job: ZeRO stage, offload, tensor parallelism, checkpointing, micro-batch and buffers."""

import functools
import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import attrs

from dsgen.jobs.job import DEFAULT_SEQ_LEN, Job
from dsgen.shapes.pins import Pin
from dsgen.shapes.value import Value
from dsgen.strategies.buffers import Buffers
from dsgen.strategies.constraints import DEGREE, Setup, first, refusals, unasked

__all__ = [
    "DEGREES",
    "FAST_LINKS",
    "Layout",
    "Rejection",
    "Strategy",
    "batches",
    "best_precision",
    "default_sequences",
    "describe",
    "layouts",
    "places_are_pinned",
    "strategy",
]

# Largest micro-batch tried, sequences per GPU. Our choice, which ends the search: of more, short sequences of a small
# model alone could gain.
MOST_SEQUENCES = 128

# stage -> (optimizer, parameters) places that do something there; the others are tried only when a pin asks for them.
_OFFLOADS = {
    0: (("none", "none"),),
    1: (("none", "none"), ("cpu", "none")),
    2: (("none", "none"), ("cpu", "none")),
    3: (("none", "none"), ("cpu", "none"), ("cpu", "cpu"), ("nvme", "cpu"), ("nvme", "nvme")),
}
# AutoTP's, that are tried unasked: the divisors of 8, the most GPUs that a node of a built-in profile has.
DEGREES = (1, 2, 4, 8)
FAST_LINKS = ("nvlink", "xgmi")  # between the GPUs of a node
_TENSOR_PARALLEL_STAGES = (1, 2)  # where AutoTP is tried unasked: stage 0 is wrong in 16 bit, stage 3 is new in 0.19.4
_ALL_OFFLOADS = tuple(itertools.product(("none", "cpu", "nvme"), repeat=2))


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Layout(Value):
    """A strategy without its batch: what decides the fixed part of memory."""

    stage: int
    offload_optimizer: str
    offload_param: str
    tp: int
    checkpointing: bool
    precision: str

    def __str__(self) -> str:
        return describe(self)


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Strategy(Layout):
    """One way to run a Job.

    Attributes:
        micro_batch: Sequences per GPU and forward pass.
        accumulation: Forward passes per optimizer step.
        global_batch: Distinct sequences per optimizer step: micro_batch x accumulation x (world / tp).
        buffers: Sizes of what DeepSpeed communicates through.
    """

    micro_batch: int
    accumulation: int
    global_batch: int
    buffers: Buffers

    def __str__(self) -> str:
        return f"{describe(self)}, mb {self.micro_batch}"


class Rejection(NamedTuple):
    """A strategy that cannot run, and the reason or number that says why.

    Attributes:
        layout: What was tried.
        why: One sentence.
        pin: The pin that excluded it, where one did.
        missing_bytes: How much memory it lacked, where that was the cause; else 0.
        place: Where: gpu, host or nvme.
        uncertain: It may fit; what it lacks is what the high end of its interval lacks.
    """

    layout: Layout
    why: str
    pin: Pin | None = None
    missing_bytes: int = 0
    place: str = ""
    uncertain: bool = False


def describe(layout: Layout) -> str:
    """A strategy in words: `ZeRO-2 + CPU optimizer, tp 2, checkpointing`."""
    words = "plain data parallel" if layout.stage == 0 else f"ZeRO-{layout.stage}"
    if layout.offload_optimizer != "none":
        words += f" + {'CPU' if layout.offload_optimizer == 'cpu' else 'NVMe'} optimizer"
    if layout.offload_param != "none":
        words += f" + {'CPU' if layout.offload_param == 'cpu' else 'NVMe'} parameters"
    if layout.tp > 1:
        words = f"AutoTP {layout.tp} + {words}"
    return f"{words}, checkpointing" if layout.checkpointing else words


def layouts(job: Job, everywhere: bool = False) -> Iterator[Layout | Rejection]:
    """Every layout worth trying for a Job, and those that facts or pins exclude.

    Args:
        job: The job.
        everywhere: Optimizer and parameters in every place, as where a pin names one.
    """
    pinned = {pin.field for pin in job.pins}
    asked = everywhere or places_are_pinned(job)
    precisions = ("bf16", "fp16", "fp32") if "precision" in pinned else (best_precision(job),)
    degrees = _degrees(job)
    for precision, stage, tp in itertools.product(precisions, (0, 1, 2, 3), degrees):
        if tp > 1 and stage not in _TENSOR_PARALLEL_STAGES and "tp" not in pinned:
            continue
        speaks: dict[tuple[str, str], str | None] = {}  # against a layout, with checkpointing or without
        for (optimizer, parameter), checkpointing in itertools.product(
            _ALL_OFFLOADS if asked else _offloads(job, stage), (False, True)
        ):
            layout = Layout(
                stage=stage,
                offload_optimizer=optimizer,
                offload_param=parameter,
                tp=tp,
                checkpointing=checkpointing,
                precision=precision,
            )
            pin = next((pin for pin in job.pins if getattr(layout, pin.field, pin.allowed[0]) not in pin.allowed), None)
            if pin is not None:
                yield Rejection(layout=layout, why=f"{pin} excludes it", pin=pin)
                continue
            places = optimizer, parameter
            if places not in speaks:
                speaks[places] = first(job, layout) or (None if tp == 1 or "tp" in pinned else unasked(job, layout))
            why = speaks[places]
            yield layout if why is None else Rejection(layout=layout, why=why)


def places_are_pinned(job: Job) -> bool:
    """Whether somebody says where optimizer or parameters lie."""
    return any(pin.field in ("offload_optimizer", "offload_param") for pin in job.pins)


def _offloads(job: Job, stage: int) -> tuple[tuple[str, str], ...]:
    """Where a stage may put optimizer and parameters; adapters have states too small to be worth moving."""
    if stage == 3 and job.training.method != "full":
        return (("none", "none"), ("none", "cpu"), ("none", "nvme"))
    return _OFFLOADS[stage]


def _degrees(job: Job) -> tuple[int, ...]:
    """Tensor-parallel degrees worth trying: what a pin names, else powers of two where links and model allow."""
    asked = {value for pin in job.pins if pin.field == "tp" for value in pin.allowed}
    if asked:
        return tuple(sorted(asked))
    if job.undivided_batch:
        return (1,)  # AutoTP's fewer replicas could share the batch, but nobody asks for it this way
    if job.hardware.intra_node_link not in FAST_LINKS:
        return (1,)  # over PCIe the all-reduce of every layer costs more than it saves; several nodes are offered it
    return tuple(tp for tp in DEGREES if _degree(job, tp))


def best_precision(job: Job) -> str:
    """The 16 bits that the GPU has units for, bf16 before fp16; without either fp32."""
    hardware = job.hardware
    if hardware.bf16_flops_per_second > 0:
        return "bf16"
    return "fp16" if hardware.fp16_flops_per_second > 0 else "fp32"


def _degree(job: Job, tp: int) -> bool:
    """Whether a tensor-parallel degree can be had at any stage."""
    model = job.model
    at = Setup(
        version=job.version,
        tp=tp,
        training=job.training,
        architecture=model.architecture,
        heads=(model.attention_heads, model.kv_heads),
        world=job.world,
        gpus_per_node=job.gpus_per_node,
    )
    return next(refusals(at, DEGREE), None) is None


def batches(job: Job, layout: Layout) -> tuple[tuple[int, int, int], ...] | str:
    """The (micro-batch, accumulation, global batch) triples a layout allows, largest micro-batch first.

    Returns:
        The triples, or one sentence that says why there is none.
    """
    replicas = job.world // layout.tp
    micro = _pinned(job, "micro_batch")
    steps = _pinned(job, "accumulation")
    total = job.training.global_batch
    train = _pinned(job, "train_batch")
    if train is not None:
        if train % job.world:
            return f"train_batch_size {train} is no multiple of the {job.world} GPUs"
        total_from_train = train // layout.tp
        if total is not None and total != total_from_train:
            return f"train_batch_size {train} means a global batch of {total_from_train}, not {total}"
        total = total_from_train
    if total is None:
        per_replica = (micro or 1) * (steps or 1)
        if micro is None or steps is None:
            wanted = max(1, default_sequences(job) // (replicas * per_replica))
            per_replica *= 2 ** int(math.log2(wanted))
        if micro is None and steps is not None:  # nobody said how many sequences a step has: the default, or fewer
            sizes = (size for size in _divisors(per_replica // steps) if size <= MOST_SEQUENCES)
            return tuple((size, steps, size * steps * replicas) for size in sizes)
    elif total % replicas:
        below = total // replicas * replicas
        near = f"{below} or {below + replicas}" if below else f"{replicas}"
        return f"a global batch of {total} does not divide among {replicas} data-parallel replicas (nearest: {near})"
    else:
        per_replica = total // replicas
    triples = tuple(
        (size, per_replica // size, per_replica * replicas)
        for size in _divisors(per_replica)
        if (micro is None or size == micro)
        and (steps is None or per_replica // size == steps)
        and (size <= MOST_SEQUENCES or size == micro)
    )
    if triples:
        return triples
    asked = [f"micro-batch {micro}" if micro else "", f"accumulation {steps}" if steps else ""]
    return f"{' and '.join(part for part in asked if part)} cannot make {per_replica} sequences per replica and step"


def default_sequences(job: Job) -> int:
    """Sequences per optimizer step when nobody says how many: as many as the tokens of a step hold.

    Shorter sequences than DEFAULT_SEQ_LEN are no more than of that length: no recipe for short texts takes more.
    """
    wishes = job.training
    bounds = [wishes.tokens_per_step, wishes.tokens_per_gpu and wishes.tokens_per_gpu * job.world]
    return max(1, min(bound for bound in bounds if bound) // max(job.seq_len, DEFAULT_SEQ_LEN))


def strategy(layout: Layout, batch: tuple[int, int, int], buffers: Buffers) -> Strategy:
    """A layout with its batch and its buffers."""
    micro, accumulation, total = batch
    return Strategy(
        stage=layout.stage,
        offload_optimizer=layout.offload_optimizer,
        offload_param=layout.offload_param,
        tp=layout.tp,
        checkpointing=layout.checkpointing,
        precision=layout.precision,
        micro_batch=micro,
        accumulation=accumulation,
        global_batch=total,
        buffers=buffers,
    )


def _pinned(job: Job, field: str) -> int | None:
    return next((pin.allowed[0] for pin in job.pins if pin.field == field), None)


@functools.lru_cache(maxsize=1024)
def _divisors(number: int) -> tuple[int, ...]:
    small = [size for size in range(1, math.isqrt(number) + 1) if number % size == 0]
    return tuple(sorted({*small, *(number // size for size in small)}, reverse=True))
