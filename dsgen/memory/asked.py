"""What a layout asks of the memory model, without what makes no difference; and what it holds all the time."""

import functools
from typing import Any, NamedTuple

import attrs

from dsgen.families import family_of
from dsgen.families.tape.chunked import LIGERS
from dsgen.jobs.job import Job
from dsgen.jobs.releases import must_reenter, recomputed
from dsgen.jobs.samples import attention_beside
from dsgen.memory.moments import ResidentStates
from dsgen.memory.older_releases import (
    checks_in_fp32,
    clones_first,
    counts_what_a_step_releases,
    flattens_in_ram,
    leaves_embeddings,
    makes_buckets_early,
    moves_first,
    returns_wide,
)
from dsgen.memory.secondary import Secondary
from dsgen.memory.states import States, states
from dsgen.shapes.profiles import Model, Training
from dsgen.strategies.buffers import Buffers
from dsgen.strategies.strategies import Layout

__all__ = [
    "Asked",
    "Plain",
    "asked_of",
    "batchless",
    "copied",
    "felt",
    "kept_by_autograd",
    "recording",
    "resident_bytes",
    "tells",
    "through_training",
]

_ALL = 1 << 62  # elements that no model has
_SPLITS = (1, 2)  # stages that share out states and leave weights whole
_GATHERS = 3  # the stage that cuts weights too


class Plain(NamedTuple):
    """A layout as a key: a tuple is made and compared in a fraction of the time."""

    stage: int
    offload_optimizer: str
    offload_param: str
    tp: int
    checkpointing: bool
    precision: str


def resident_bytes(job: Job, layout: Layout, buffers: Buffers) -> int:
    """Bytes that a layout holds on the GPU from the first forward pass on: less than its peak, and soon known."""
    return _held(asked_of(job, layout), batchless(layout), felt(buffers, layout.stage))


@functools.lru_cache(maxsize=8192)
def _held(asked: "Asked", layout: Plain, buffers: Buffers) -> int:
    return sum(through_training(layout, states(asked, layout, buffers)))


def through_training(layout: Plain, states: States) -> ResidentStates:
    """What is on the GPU from the first forward pass on."""
    gpu = states.on_gpu
    return ResidentStates(
        states.tables + states.scales + (0 if layout.offload_param != "none" else states.weights),
        states.master if gpu else 0,
        states.moments if gpu else 0,
        0 if gpu or layout.stage == 3 else states.size * states.tensors.largest,
        states.staged,
    )


def copied(held: ResidentStates, copies: Secondary, again: bool) -> tuple[ResidentStates, ResidentStates]:
    """What is on the GPU until the first step is over, and while any later one steps; and in the passes of a later one.

    Args:
        held: It without hpZ's copies.
        copies: Those.
        again: The pass is not the first of its step, so all that are made in a pass are there already.
    """
    there = copies.lasting + (copies.again if again else 0)
    return held._replace(weights=held.weights + copies.whole), held._replace(weights=held.weights + there)


def batchless(layout: Any) -> Plain:
    """What a layout or a strategy is without its batch."""
    places = layout.offload_optimizer, layout.offload_param
    return Plain(layout.stage, *places, layout.tp, layout.checkpointing, layout.precision)


@functools.lru_cache(maxsize=1024)
def felt(buffers: Buffers, stage: int, loose: bool = False) -> Buffers:
    """The buffers that a stage has on the GPU; those of others are 0, so that equal stages are computed once.

    Args:
        buffers: Those of a layout.
        stage: Its stage.
        loose: Gradients that wait where they were made are counted.
    """
    gathers = stage == 3
    return Buffers(
        reduce_bucket=buffers.reduce_bucket if stage else 0,
        prefetch=buffers.prefetch if gathers else 0,
        persistence=buffers.persistence if gathers else 0,
        max_live=buffers.max_live if gathers else 0,
        max_reuse=buffers.max_reuse if gathers else 0,
        sub_group=buffers.sub_group if gathers else 0,
        swap_buffers=0,
        overlap_comm=buffers.overlap_comm and stage in (1, 2),
        secondary=buffers.secondary if gathers else 0,
        contiguous=not (loose and stage),
    )


def kept_by_autograd(buffers: Buffers, checkpointing: bool) -> Buffers:
    """The buffers of a pass with gradients, in which nothing is released where `memory_efficient_linear` is off.

    F.linear then saves a view of its weight, which holds what was gathered until its backward (torch's `t()` before
    `mm`); not where checkpointing runs a block again, whose weights are gathered anyway.
    """
    if buffers.efficient_linear or checkpointing:
        return buffers
    return buffers._replace(max_live=_ALL, max_reuse=_ALL)


def recording(buffers: Buffers) -> Buffers:
    """Those that the first pass of all has, which records the order of use: each tensor goes right after its use."""
    return buffers._replace(persistence=-1, prefetch=0, max_live=0, max_reuse=0)


def tells(job: Job, tp: int) -> bool:
    """Whether one sequence is less than its share of several: something copies nothing of it.

    That is eager attention, which joins sequences and heads, sdpa, which padding gives a mask, the loss of a tied head
    that AutoTP has sharded, and that of older releases, which cuts the logits, or of Liger's the hidden states.
    """
    model = job.model
    family = family_of(model)
    sharded = tp > 1 and model.tied_embeddings and family.autotp.tied_head
    cut = LIGERS[model.liger].shifted if job.training.chunked_loss else model.logits_shifted
    masked = attention_beside(job, False) != job.training.attention
    return family.eager(job.training.attention) or masked or sharded or cut


class Asked(NamedTuple):
    """What moments depend on besides layout and buffers: the same for every hardware.

    Attributes:
        model: The architecture.
        training: How it is trained.
        seq_len: Tokens of a sequence.
        world: Ranks; at stage 0 those of one replica.
        single: As in a run.
        narrow: As in a job.
        returns_wide: Weights that the CPU has stepped come back in fp32 (dsgen.memory.older_releases).
        foreach: AdamW is torch's foreach one.
        clones_first: Master weights of stage 3 are cloned before they are fp32 (dsgen.memory.older_releases).
        in_ram: Stages 1 and 2 flatten the weights in RAM, whatever a GPU has free (there).
        lingers: Stage 3 leaves embeddings gathered until the next pass of the same step (there).
        lingers_on: It fetches ahead as if they were there behind a step too (there).
        early_buckets: Stages 1 and 2 make the buckets of gradients before backward begins (there).
        checks_wide: They look for infinities in fp32 copies of a gradient that goes to the CPU (there).
        moves_first: They move a rank's part of the weights to the CPU without a copy on the GPU (there).
        returns: As in a step.
    """

    model: Model
    training: Training
    seq_len: int
    world: int
    single: bool = False
    narrow: str = ""
    returns_wide: bool = False
    foreach: bool = False
    clones_first: bool = False
    in_ram: bool = False
    lingers: bool = False
    lingers_on: bool = False
    early_buckets: bool = False
    checks_wide: bool = False
    moves_first: bool = False
    returns: bool = False


def asked_of(job: Job, layout: Any, single: bool = False) -> Asked:
    """What a job asks with a layout; `single` as in a run."""
    world = job.world if layout.stage else layout.tp
    older = _older(layout.stage, layout.offload_optimizer, job.version, job.foreach)
    returns = must_reenter(job.training.method, layout.stage, job.version)
    training = recomputed(job.training, layout.stage, job.version)
    if (attention := attention_beside(job, single)) != training.attention:
        training = _attending(training, attention)
    return Asked(job.model, training, job.seq_len, world, single, job.narrow, *older, returns)


@functools.lru_cache(maxsize=256)
def _attending(training: Training, attention: str) -> Training:
    """A training with another attention: a new one for each strategy would take longer than the rest of its memory."""
    return attrs.evolve(training, attention=attention)


@functools.lru_cache(maxsize=256)
def _older(
    stage: int, optimizer: str, version: str, foreach: bool
) -> tuple[bool, bool, bool, bool, bool, bool, bool, bool, bool]:
    """What hangs on the release, of `Asked`, from `returns_wide` on."""
    wide = stage in _SPLITS and optimizer == "cpu" and returns_wide(version)
    clones = stage == _GATHERS and optimizer == "none" and clones_first(version)
    in_ram = stage in _SPLITS and flattens_in_ram(version)
    lingers = stage == _GATHERS and leaves_embeddings(version)
    lingers_on = lingers and counts_what_a_step_releases(version)
    early = stage in _SPLITS and makes_buckets_early(version)
    checks = stage in _SPLITS and optimizer != "none" and checks_in_fp32(version)
    moves = stage in _SPLITS and optimizer != "none" and moves_first(version)
    return wide, foreach, clones, in_ram, lingers, lingers_on, early, checks, moves
