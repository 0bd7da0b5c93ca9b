"""What an evaluation takes on a GPU beside the states of training: a forward without gradients, of some sequences.

The Trainer's (transformers 5.23, Trainer.prediction_step and evaluation_loop): the loss alone is asked for, logits are
of one batch, `use_cache` is off, and with Liger's loss `skip_logits` is said, so that it is chunked there too. It was
not before 5.15, nor heard by Liger before 0.6, whose forward made all logits (dsgen.jobs.releases). Who hands the
Trainer `compute_metrics` keeps the logits of all batches on the GPU besides, of all ranks on each, but for
eval_accumulation_steps: they are gathered and put behind those of before, in a new tensor (gather_for_metrics;
EvalLoopContainer.add).
"""

import functools
from typing import NamedTuple

import attrs

from dsgen.jobs.job import Job
from dsgen.jobs.releases import evaluates_in_chunks
from dsgen.memory.activations import evaluates
from dsgen.memory.asked import Asked, Plain, asked_of, batchless, copied, felt, tells, through_training
from dsgen.memory.backward import start
from dsgen.memory.estimates import Room, Verdict, room, verdict
from dsgen.memory.moments import Moment, highest, moment
from dsgen.memory.runs import Run
from dsgen.memory.states import FP32, states
from dsgen.memory.together import without_gradients
from dsgen.memory.widened import widened
from dsgen.strategies.buffers import Buffers
from dsgen.strategies.strategies import Strategy

__all__ = [
    "TRAINER_SEQUENCES",
    "Evaluation",
    "cached_bytes",
    "evaluation",
    "generation",
    "kept_bytes",
    "most_sequences",
]

TRAINER_SEQUENCES = 8  # per_device_eval_batch_size, its default in TrainingArguments (transformers 5.23)
HALF = 2  # bytes of an element in 16 bits
INDEX = 8  # bytes of an int64 token id, which is its own label
KEPT, CACHE, LOGITS = "kept logits", "keys and values", "logits and loss"
GATHERED = "gathered parameters"
_MEANWHILE = (LOGITS, "activations", "inputs", GATHERED)  # of a batch, and gone behind it
MOST = 1024  # sequences; more are not looked for: our choice, which ends a search


class Evaluation(NamedTuple):
    """An evaluation's batch on one GPU.

    Attributes:
        sequences: Of the batch.
        peak_bytes: Bytes of all tensors at its highest moment.
        high_bytes: Most that the process may take then, everything outside the tensors included.
        limit_bytes: What is there.
        parts: Part -> bytes; they add up to the peak.
        verdict: Whether it fits.
        left_bytes: What stage 3 keeps gathered of it: the next pass of training takes so much more (below 0: less).
    """

    sequences: int
    peak_bytes: int
    high_bytes: int
    limit_bytes: int
    parts: dict[str, int]
    verdict: Verdict
    left_bytes: int


def evaluation(job: Job, strategy: Strategy, sequences: int = TRAINER_SEQUENCES, kept: int = 0) -> Evaluation | None:
    """The memory of an evaluation; None of no sequences, and where it is not counted: of a model with an encoder.

    Args:
        job: The job.
        strategy: The strategy that trains it.
        sequences: Of a batch on one GPU.
        kept: Batches whose logits stay on the GPU; 0 where the loss alone is asked for.
    """
    if not (sequences and evaluates(job.model)):
        return None
    moments, gathered, left = _moments_of(job, strategy, sequences)
    top = max(moments, key=lambda one: one.total(sequences))
    parts = {name: fixed + each * sequences for name, (fixed, each) in top.parts.items()}
    if kept:
        each = kept_bytes(job, strategy, sequences)
        there = {name: size for name, size in parts.items() if name not in _MEANWHILE} | {GATHERED: gathered}
        if kept > 1:
            behind = there | {KEPT: 2 * kept * each}  # those of before, the last, and both in one
        else:  # those of this rank are there until it has those of all
            behind = there | {KEPT: each, LOGITS: each // job.world if job.world > 1 else 0}
        parts = max(parts | {KEPT: (kept - 1) * each}, behind, key=lambda one: sum(one.values()))
    return _evaluated(job, strategy, sequences, parts, left)


def generation(job: Job, strategy: Strategy, sequences: int, tokens: int) -> Evaluation | None:
    """The memory of a generation of some sequences, of so many tokens with their prompts; None where not counted.

    A forward of the prompts, whose last token alone has logits, and the keys and values of each token since. At stage 3
    each token gathers all weights anew.
    """
    one, cached = evaluation(job, strategy, sequences), cached_bytes(job, strategy)
    if one is None or not cached:
        return None
    parts = {name: size for name, size in one.parts.items() if name != LOGITS}
    return _evaluated(job, strategy, sequences, {**parts, CACHE: sequences * tokens * cached}, one.left_bytes)


def kept_bytes(job: Job, strategy: Strategy, sequences: int) -> int:
    """Bytes on each GPU of the logits of one batch that the Trainer keeps: those of all ranks."""
    wide = strategy.precision == "fp32" or job.model.logits_upcast == "model"
    return job.world * sequences * job.seq_len * job.model.vocab_size * (FP32 if wide else HALF)


def cached_bytes(job: Job, strategy: Strategy) -> int:
    """Bytes of the keys and values of a token in one sequence; 0 where they are not counted, of MLA.

    Of sliding windows it is the most: what lies before a window goes.
    """
    model = job.model
    if model.kv_lora_rank:
        return 0
    return 2 * model.layers * model.kv_heads * model.head_size * (FP32 if strategy.precision == "fp32" else HALF)


def _evaluated(job: Job, strategy: Strategy, sequences: int, parts: dict[str, int], left: int) -> Evaluation:
    peak, gpu = sum(parts.values()), room(job, strategy, strategy.buffers)
    less, more = widened(job, strategy, strategy.buffers)
    high = gpu.high(peak, False, more)
    told = {name: size for name, size in parts.items() if size}
    return Evaluation(
        sequences, peak, high, gpu.limit, told, verdict(gpu.low(peak, False, less), high, gpu.limit), left
    )


def most_sequences(job: Job, strategy: Strategy) -> int | None:
    """The most sequences of an evaluation's batch that fit for certain, 0 if not even one does; None: not counted."""
    if not evaluates(job.model):
        return None
    gpu = room(job, strategy, strategy.buffers)
    if not _fits(job, strategy, 1, gpu):
        return 0
    low, high = 1, MOST + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(job, strategy, middle, gpu) else (low, middle)
    return low


def _fits(job: Job, strategy: Strategy, sequences: int, gpu: Room) -> bool:
    peak = max(one.total(sequences) for one in _moments_of(job, strategy, sequences)[0])
    return gpu.high(peak, False, widened(job, strategy, strategy.buffers)[1]) <= gpu.limit


def _moments_of(job: Job, strategy: Strategy, sequences: int) -> tuple[tuple[Moment, ...], int, int]:
    if job.training.chunked_loss and not evaluates_in_chunks(job.training):
        job = attrs.evolve(job, training=attrs.evolve(job.training, chunked_loss=False))
    single = sequences == 1 and tells(job, strategy.tp)
    return _moments(asked_of(job, strategy, single), batchless(strategy), felt(strategy.buffers, strategy.stage))


@functools.lru_cache(maxsize=256)
def _moments(asked: Asked, layout: Plain, buffers: Buffers) -> tuple[tuple[Moment, ...], int, int]:
    """Those that can be the highest, between two steps of training; what is gathered behind a batch, and what they
    leave for the next step."""
    held = states(asked, layout, buffers)
    run = Run(
        asked.model,
        asked.training,
        asked.seq_len,
        layout.precision,
        layout.tp,
        layout.checkpointing,
        layout.stage == 3,
        asked.single,
    )
    here = layout.offload_param == "none"
    free = here and held.ranks == 1 < held.among  # one replica of what AutoTP has split
    grads, bucket = start(held, layout.stage, buffers, False)
    there = through_training(layout, held)
    if held.copies:  # of what is released on the way hpZ's are made anew, of all of it at most
        there = copied(there, held.copies, True)[1]
    alive_then, gathered, left = without_gradients(run, buffers, held.among == 1, here, free)
    moments = (
        moment("evaluate", there, grads, bucket, 0, live, alive, INDEX * asked.seq_len) for alive, live, _ in alive_then
    )
    return tuple(highest(moments)), gathered, left
