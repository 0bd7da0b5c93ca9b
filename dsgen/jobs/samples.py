"""How samples of several lengths make sequences: padded to the longest of a micro-batch, packed, or end to end."""

from __future__ import annotations

import functools

from dsgen.jobs.fused_attention import computes_scores, fused_in_torch, running_attention
from dsgen.jobs.job import Job
from dsgen.shapes.attention_kinds import GROUPED, MASKED
from dsgen.shapes.profiles import Hardware, Model, Training

__all__ = [
    "SPREAD",
    "attention_beside",
    "beside_card",
    "beside_padding",
    "pads",
    "said_of_scores",
    "seen_length",
    "tokens_of_sequence",
    "varied_mean",
]

# Standard deviation of the lengths of samples, by their mean, where they are far from the longest. Without padding the
# runs of foundation-model-stack/fms-acceleration (876e2ed, scripts/benchmarks/refs_orca/a100_80gb_pf.csv) have samples
# of 289 tokens, with it sequences of 369, 442 and 524 in micro-batches of 2, 4 and 8: 1.28, 1.53 and 1.81 times as
# many, where 0.5 makes 1.27, 1.53 and 1.77.
SPREAD = 0.5


def varied_mean(training: Training) -> int | None:
    """Tokens of a sample in the mean where micro-batches have several lengths; None where all are alike."""
    return None if training.packing else training.mean_len


def attention_beside(job: Job, single: bool) -> str:
    """The attention that runs where a job asks for one; a `single` sequence has no padding.

    Samples that share a row have a mask of their borders; it is counted as long as one sequence, and is longer where a
    micro-batch is one row.
    """
    training = job.training
    shared = training.packing or training.padding_free
    runs, unmasked = _of_torch(job.hardware, job.model, training)
    attention = beside_padding(runs, shared or (pads(job.seq_len, varied_mean(training)) and not single))
    return GROUPED if attention == "sdpa" and unmasked else str(attention)


def said_of_scores(job: Job, single: bool) -> str | None:
    """That torch computes all scores, of whole sequences or a `single` one, and what a program may do; else None."""
    if attention_beside(job, single) != GROUPED:
        return None
    where = f"on {job.names.get('hardware', 'this GPU')}" if job.training.precision != "fp32" else "in fp32"
    return (
        f"torch's sdpa has no fused kernel for grouped queries {where}, and computes all scores, in fp32; with "
        "transformers.integrations.sdpa_attention.use_gqa_in_sdpa = lambda *_: False ahead of training it has one, and "
        "takes less memory and time than is said"
    )


@functools.lru_cache(maxsize=256)
def _of_torch(hardware: Hardware, model: Model, training: Training) -> tuple[str, bool]:
    """The attention that is asked for, or torch's where an NVIDIA GPU has no other; whether that has no kernel for it
    where there is no mask."""
    if hardware.vendor != "nvidia":
        return training.attention, False
    runs = running_attention(hardware, model, training, training.precision)
    runs = runs if training.attention == "flash" and runs == "sdpa" else training.attention
    return runs, runs == "sdpa" and computes_scores(hardware, model, training, training.precision)


def pads(longest: int, mean: int | None) -> bool:
    """Whether micro-batches of several samples are padded: not where nothing is said of lengths, or all are alike."""
    return mean is not None and mean < longest


def beside_padding(attention: str | None, padded: bool) -> str | None:
    """The attention that runs where one is asked for: MASKED where sdpa gets a mask, as a micro-batch is `padded`.

    transformers leaves the mask out where all of it is ones (5.23, masking_utils.py, _ignore_causal_mask_sdpa; 4.36 and
    later likewise), and FlashAttention takes the padding out.
    """
    return MASKED if padded and attention == "sdpa" else attention


def beside_card(attention: str | None, hardware: Hardware | None, half: bool, padded: bool) -> str | None:
    """The attention that a simulation runs where one is asked for, whose model says whether it groups queries.

    Args:
        attention: What is asked for.
        hardware: The GPUs, where they are known.
        half: It computes in 16 bits.
        padded: Micro-batches have padding.
    """
    alone = hardware is not None and hardware.vendor == "nvidia" and not fused_in_torch(hardware, half)
    runs = beside_padding("sdpa" if alone and attention == "flash" else attention, padded)
    return GROUPED if alone and runs == "sdpa" else runs


def seen_length(longest: int, mean: int | None) -> int:
    """Tokens of sequences whose attention sees as much as that of packed samples; 0 where nobody knows their mean.

    A token sees half of its sample, and a long sample has more tokens: the mean of the squares by the mean.

    Args:
        longest: Tokens of the longest sample.
        mean: Of one in the mean.
    """
    if not mean or mean >= longest:
        return 0
    return min(longest, max(1, round(mean * (1 + SPREAD**2 * (1 - mean / longest)))))


def tokens_of_sequence(job: Job) -> int:
    """Tokens of a sequence that are a sample's own, in the mean: what a run's tokens are counted in."""
    return varied_mean(job.training) or job.seq_len
