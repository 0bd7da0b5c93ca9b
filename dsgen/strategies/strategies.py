"""The ways to run a Job: ZeRO stage, offload, tensor parallelism, checkpointing, micro-batch and buffers."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator

import attrs

from dsgen.jobs.job import Job
from dsgen.shapes.pins import Pin
from dsgen.strategies.buffers import Buffers
from dsgen.strategies.copies import no_copies, uncounted_encoder
from dsgen.strategies.unsplit import unsplit

__all__ = [
    "Layout",
    "Rejection",
    "Strategy",
    "batches",
    "best_precision",
    "describe",
    "layouts",
    "strategy",
]

MOST_SEQUENCES = 128  # largest micro-batch tried, sequences per GPU: above it no kernel gains anything more
# Sequences per optimizer step: 1 M tokens at 4096, where Llama 2 fine-tuned (arXiv 2307.09288).
DEFAULT_GLOBAL_BATCH = 256

# stage -> (optimizer, parameters) places that do something there; the others are tried only when a pin asks for them.
_OFFLOADS = {
    0: (("none", "none"),),
    1: (("none", "none"), ("cpu", "none")),
    2: (("none", "none"), ("cpu", "none")),
    3: (("none", "none"), ("cpu", "none"), ("cpu", "cpu"), ("nvme", "cpu"), ("nvme", "nvme")),
}
_TENSOR_PARALLEL_STAGES = (1, 2)  # where AutoTP is tried unasked: stage 0 is wrong in 16 bit, stage 3 is new in 0.19.4
_TP_AT_3 = (0, 19, 4)  # first release that takes AutoTP with stage 3 (runtime/engine.py of 0.19.0 to 0.19.5 compared)
_UNSCALED = (0, 18, 3)  # first release without a scaled loss in fp16 at stage 0 (run; DeepSpeed pull request 8393)
_ALL_OFFLOADS = tuple(itertools.product(("none", "cpu", "nvme"), repeat=2))


@attrs.frozen(kw_only=True)
class Layout:
    """A strategy without its batch: what decides the fixed part of memory."""

    stage: int
    offload_optimizer: str
    offload_param: str
    tp: int
    checkpointing: bool
    precision: str

    def __str__(self) -> str:
        return describe(self)


@attrs.frozen(kw_only=True)
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


@attrs.frozen(kw_only=True)
class Rejection:
    """A strategy that cannot run, and the reason or number that says why.

    Attributes:
        layout: What was tried.
        why: One sentence.
        pin: The pin that excluded it, where one did.
        missing_bytes: How much memory it lacked, where that was the cause; else 0.
    """

    layout: Layout
    why: str
    pin: Pin | None = None
    missing_bytes: int = 0
    place: str = ""


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


def layouts(job: Job) -> Iterator[Layout | Rejection]:
    """Every layout worth trying for a Job, and those that facts or pins exclude."""
    pinned = {pin.field for pin in job.pins}
    asked = bool({"offload_optimizer", "offload_param"} & pinned)
    precisions = ("bf16", "fp16", "fp32") if "precision" in pinned else (best_precision(job),)
    degrees = _degrees(job)
    for precision, stage, tp in itertools.product(precisions, (0, 1, 2, 3), degrees):
        if tp > 1 and stage not in _TENSOR_PARALLEL_STAGES and "tp" not in pinned:
            continue
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
            why = _impossible(job, layout)
            yield layout if why is None else Rejection(layout=layout, why=why)


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
    if job.hardware.intra_node_link not in ("nvlink", "xgmi"):
        return (1,)  # over PCIe the all-reduce of every layer costs more than it saves
    return tuple(tp for tp in (1, 2, 4, 8) if _impossible_tp(job, tp) is None)


def best_precision(job: Job) -> str:
    """The 16 bits that the GPU has units for, bf16 before fp16; without either fp32."""
    hardware = job.hardware
    if hardware.bf16_flops_per_second > 0:
        return "bf16"
    return "fp16" if hardware.fp16_flops_per_second > 0 else "fp32"


def _impossible(job: Job, layout: Layout) -> str | None:
    """Why a layout cannot run; None when it can."""
    hardware, stage, optimizer, parameter = job.hardware, layout.stage, layout.offload_optimizer, layout.offload_param
    if layout.precision == "bf16" and not hardware.bf16_flops_per_second:
        return "this GPU has no bf16 units; use fp16"
    if layout.precision == "fp16" and not hardware.fp16_flops_per_second:
        return "this device has no fp16 units"
    if stage == 0 and optimizer != "none":
        return "optimizer offload needs ZeRO: at stage 0 DeepSpeed offloads nothing"
    if stage == 0 and job.training.optimizer == "Adagrad" and layout.precision != "fp32":
        return "Adagrad at stage 0 in 16 bit cannot save a checkpoint (KeyError in 0.19.8); stage 1 can"
    if stage == 0 and job.narrow:
        return "16-bit master weights need ZeRO: at stage 0 DeepSpeed refuses them"
    if stage == 0 and layout.precision == "fp16" and _release(job) >= _UNSCALED:
        return "since 0.18.3 DeepSpeed does not scale the loss in fp16 at stage 0, and hardly learns; stage 1 scales it"
    if stage < 3 and parameter != "none":
        return "parameter offload works at stage 3 only"
    if stage < 3 and optimizer == "nvme":
        return "NVMe offload works at stage 3 only: below it DeepSpeed silently uses CPU memory"
    if "nvme" in (optimizer, parameter) and not hardware.nvme_capacity_bytes:
        return "this node has no local NVMe"
    if hardware.vendor == "cpu" and (optimizer, parameter) != ("none", "none"):
        return "on a CPU there is nowhere to offload to"
    if (why := no_copies(job, layout) or uncounted_encoder(job.model, job.training, layout)) or layout.tp == 1:
        return why
    if why := _impossible_tp(job, layout.tp):
        return why
    if stage == 0 and layout.precision != "fp32":
        return "AutoTP at stage 0 in 16 bit computes a wrong gradient norm (seen on 0.19.8); stage 1 is right"
    if stage == 3 and _release(job) < _TP_AT_3:
        return f"DeepSpeed {job.version} refuses AutoTP with stage 3; 0.19.4 is the first that does not"
    return None


def _impossible_tp(job: Job, tp: int) -> str | None:
    model = job.model
    if tp > 1 and _release(job) < (0, 16, 4):
        return f"DeepSpeed {job.version} has no AutoTP for training; 0.16.4 is the first"
    if tp > 1 and (why := unsplit(job)):
        return why
    if job.world % tp:
        return f"{job.world} GPUs do not divide into tensor-parallel groups of {tp}"
    if tp > job.gpus_per_node:
        return f"tensor parallelism over {tp} GPUs would leave the node of {job.gpus_per_node}"
    if model.attention_heads % tp or model.kv_heads % tp:
        return f"{model.attention_heads} heads and {model.kv_heads} key heads do not divide by {tp}"
    return None


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
            wanted = max(1, DEFAULT_GLOBAL_BATCH // (replicas * per_replica))
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


def _release(job: Job) -> tuple[int, ...]:
    return tuple(int(part) for part in job.version.split("."))


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
