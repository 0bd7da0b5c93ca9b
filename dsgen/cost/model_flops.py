"""FLOPs that a step's model has, without what is recomputed: of products and attention, as MFU counts them."""

from __future__ import annotations

import functools

from dsgen.cost.model_work import work
from dsgen.cost.sample_lengths import computed_length, sees, targets_length
from dsgen.families.tape.moments import Size
from dsgen.families.tape.work import FORWARD_PASS, Work
from dsgen.jobs.job import Job
from dsgen.kernels.rates import rates
from dsgen.memory.trained import narrow_adapters
from dsgen.strategies.strategies import Strategy

__all__ = ["model_flops", "utilization"]

_FORWARD, _BACKWARD = 4, 8  # of attention per pair that is seen and element of a head: two products, and four


def model_flops(job: Job, strategy: Strategy) -> float:
    """FLOPs of one GPU's share of an optimizer step: forward and backward, attention as the pairs that are seen."""
    training, length, divided = job.training, computed_length(job, strategy), sees(job)
    model = work(
        job.model,
        precision=strategy.precision,
        attention=training.attention,
        seq_len=length,
        tp=strategy.tp,
        method=training.method,
        checkpointing=strategy.checkpointing,
        chunked_loss=training.chunked_loss,
        lora_rank=training.lora_rank,
        lora_targets=training.lora_targets,
        zero3=strategy.stage == 3,
        drops=training.lora_dropout > 0,
        embeddings=training.lora_train_embeddings,
        narrow=narrow_adapters(training),
        target_len=targets_length(job, length),
    )
    done = _flops(model.forward, strategy.micro_batch, divided) + _flops(model.backward, strategy.micro_batch, divided)
    return strategy.accumulation * done


def utilization(job: Job, strategy: Strategy, seconds: float) -> float:
    """MFU: the model's FLOPs a second by the dense peak of the dtype; `seconds` is one optimizer step."""
    peak = rates(job.hardware, job.network).peak(strategy.precision)
    return model_flops(job, strategy) / seconds / peak


def _flops(done: Work, batch: int, divided: int) -> float:
    at = functools.partial(_at, batch=batch)
    total = sum(2.0 * often * at(one.m) * at(one.n) * at(one.k) * at(one.batch) for one, often in done.products)
    for call, often in done.attentions:
        each = _FORWARD if call.phase == FORWARD_PASS else _BACKWARD
        samples, queries, keys = float(batch), call.queries, call.keys
        if 0 < divided < queries:
            samples, queries, keys = batch * queries / divided, divided, divided
        window = min(call.window or keys, keys)
        ramp = window * (window + 1) / 2 if queries == keys else float(window * window)
        pairs = ramp + (queries - window) * window
        total += often * samples * each * call.heads * call.head_size * pairs
    return total


def _at(size: Size, batch: int) -> int:
    return size[0] + batch * size[1]
