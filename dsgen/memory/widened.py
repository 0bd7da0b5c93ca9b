"""What keys may take from a GPU's peak, and add to it, that change it in ways which are not counted."""

from __future__ import annotations

from typing import Any

from dsgen.families.parameters import parameters
from dsgen.jobs.job import Job
from dsgen.memory.numbers import count
from dsgen.memory.older_releases import shares_out_at_0
from dsgen.memory.runs import Run
from dsgen.memory.shares import FP32
from dsgen.memory.states import STATE_BYTES
from dsgen.memory.together import per_sequence
from dsgen.strategies.buffers import EIGHT_BITS, MOMENTS, Buffers

__all__ = ["cast_bytes", "widened"]

_SIXTEEN = 2  # bytes of a gradient in 16 bits
_GATHERS = 3  # the stage that cuts weights too
_SUMS_APART = 2  # the stage that keeps the sums of several passes apart from the gradients of the last
# An element of an optimizer that stays: weight, gradient and AdamW's two moments in fp32.
_STEPPED = 4 * FP32


def widened(job: Job, layout: Any, buffers: Buffers) -> tuple[int, int]:
    """Bytes that the job's uncounted keys take at most from what a layout holds on one GPU, and that they add.

    Gradients that are summed in fp32 wait beside their 16-bit ones: all of them below stage 2, which reduces only what
    is whole, and this rank's from there on; at stage 2 the largest does not wait for its sum in 16 bits. Gradients that
    travel in fp32 do so in a copy of the bucket, or of a single gradient larger than that, in a flat one of those
    copies, and back in 16 bits. Of an offloaded optimizer `ratio` may leave whole groups on the GPU. What stage 3
    gathers in 8 bits takes half until it is waited for, and then lies in 8 bits and twice in 16 for a moment; gradients
    that it sends in 4 bits need no flat copy of the bucket. Held against the simulation in
    benchmarks/memory_agreement_widened.json. Of releases of DeepSpeed see `_shared`, of torch.autocast `_cast`.

    Args:
        job: The job.
        layout: Anything with stage, tp, precision, checkpointing and offload_optimizer, and perhaps a micro-batch.
        buffers: Its buffers.
    """
    shares = not layout.stage and layout.precision == "bf16" and shares_out_at_0(job.version)
    if not shares and not any(job.unsure):
        return 0, 0
    unsure, training, stage = job.unsure, job.training, layout.stage
    trains = (training.method, training.lora_rank, training.lora_targets, layout.tp, training.lora_train_embeddings)
    numbers = count(job.model, *trains, buffers.persistence)
    own = -(-numbers.trained // (job.world // layout.tp)) if stage else numbers.trained
    less, more = _shared(job, layout, numbers.trained) if shares else (0, 0)
    if layout.precision != "fp32":
        if unsure.gradients:
            more += (FP32 + _SIXTEEN) * (own if stage > 1 else numbers.trained)
            less += _SIXTEEN * numbers.largest if stage == _SUMS_APART else 0
        if unsure.reduced:
            more += (FP32 + _SIXTEEN) * max(buffers.reduce_bucket, numbers.largest)
    if unsure.fetched and stage == 3:
        less += min(numbers.total, buffers.max_live + buffers.prefetch)
        more += (1 + _SIXTEEN) * numbers.largest
    if unsure.sent and stage == 3:
        less += _SIXTEEN * max(buffers.reduce_bucket, numbers.largest)
        more += numbers.largest
    if unsure.cast and layout.precision == "fp32":
        lower, higher = _cast(job, layout)
        less, more = less + lower, more + higher
    if unsure.kept and stage == 3 and layout.offload_optimizer != "none":
        more += _STEPPED * min(own, int(unsure.kept * own) + buffers.sub_group)
    return less, more


def _shared(job: Job, layout: Any, trained: int) -> tuple[int, int]:
    """What BF16_Optimizer takes less than is counted at stage 0, and more: all gradients are in fp32 from init on, and
    a rank has its share of the rest. No flat copies of gradients are made, nor 16-bit ones kept, while it steps.
    """
    optimizer = job.training.optimizer
    moment = STATE_BYTES if optimizer == EIGHT_BITS else FP32
    states = (FP32 + moment * MOMENTS[optimizer]) * trained
    away = states - states // (job.world // layout.tp)
    return away + (FP32 + _SIXTEEN) * trained, max(0, FP32 * trained - away)


def _cast(job: Job, layout: Any) -> tuple[int, int]:
    """What torch.autocast over weights in fp32 takes less than fp32 throughout, and more.

    What is computed may be in 16 bits all of it, and what stage 3 gathers of the matrices is (torch_autocast.py of
    DeepSpeed 0.19.8: comm_dtype). Below it torch keeps a cast of each matrix until the forward ends, and the logits are
    there in 16 bits beside those in fp32.
    """
    sequences = getattr(layout, "micro_batch", 1)
    wide, halved = (
        per_sequence(Run(job.model, job.training, job.seq_len, precision, layout.tp, layout.checkpointing, False))
        for precision in ("fp32", "bf16")
    )
    less = max(0, wide - halved) * sequences
    logits = _SIXTEEN * sequences * job.seq_len * job.model.vocab_size // layout.tp
    casts = cast_bytes(job, layout)
    return (less + casts, logits) if layout.stage == _GATHERS else (less, casts + logits)


def cast_bytes(job: Job, layout: Any) -> int:
    """The 16-bit casts of a model's matrices on one GPU, of which a forward below stage 3 holds each.

    torch's cache holds the cast of a trained weight until the outermost context is left, and autograd that of any until
    the layer's backward; DeepSpeed 0.19.8 enters one context around each forward (runtime/torch_autocast.py).
    """
    tied = "embedding" if job.model.tied_embeddings else ""  # the matrix that makes the logits, too
    elements = sum(item.total for item in parameters(job.model) if item.matrix or item.kind in ("expert", tied))
    return _SIXTEEN * elements // int(layout.tp)
