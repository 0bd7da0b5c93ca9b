"""The moments of a strategy before its first step: while the model loads, and while DeepSpeed is initialized."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.families.parameters import parameter_count
from dsgen.memory.asked import Asked, Plain
from dsgen.memory.backward import start
from dsgen.memory.cuts import cut
from dsgen.memory.loading import loaded, under_zero_init
from dsgen.memory.moments import Moment, ResidentStates, moment
from dsgen.memory.numbers import splitting
from dsgen.memory.shares import flattened
from dsgen.memory.states import ADAGRAD, FP32, FUSED, States
from dsgen.memory.trained import wide_adapters
from dsgen.shapes.profiles import Training
from dsgen.strategies.buffers import Buffers

__all__ = ["at_first", "beginning"]


def beginning(
    job: Asked, layout: Plain, buffers: Buffers, states: States, held: ResidentStates, accumulates: bool
) -> Iterator[Moment]:
    """Load: zero.Init makes each tensor whole before it cuts it. Init: flat copies, and the states' first values.

    Args:
        job, layout, buffers: As for `states`.
        states: The states.
        held: What is on the GPU from the first forward pass on.
        accumulates: As for `start`.
    """
    stage, size = layout.stage, states.size
    if states.loaded:  # what is not in 4 bits becomes fp32 where peft prepares it, and 16-bit again, one by one
        yield moment("load", ResidentStates(states.tables + states.loaded + states.lifting, 0, 0, 0))
        yield moment("init", ResidentStates(states.tables + states.loaded + states.casting, 0, 0, 0))
    elif not under_zero_init(job.training, stage):
        yield from _coming_whole(job, layout, states)
    if stage == 3:
        if under_zero_init(job.training, stage):
            yield moment("load", ResidentStates(states.tables + states.making, 0, 0, 0))
        yield from _partitioned(job, layout, buffers, states, held, accumulates)
        return
    if not (states.on_gpu or job.moves_first):  # this rank's part of a group is copied before it leaves for the CPU
        share = max(one.share for one in cut(states.tensors, states.ranks))
        yield moment("init", ResidentStates(held.weights, 0, 0, 0), temporaries=size * share)
    first = states.wide * states.own if states.on_gpu and states.master else 0
    wrapped = stage == 0 and states.master > 0
    optimizer = at_first(job.training, layout, states)
    if wrapped and job.training.optimizer not in FUSED:  # their wrapper makes those of the weights too
        first += size * states.own
    yield moment("init", held._replace(optimizer=optimizer, staged=0), first)


def at_first(training: Training, layout: Plain, states: States) -> int:
    """Bytes of optimizer states that are on the GPU when the first forward pass begins; a step makes the others."""
    if not states.on_gpu:
        return 0
    wrapped = layout.stage == 0 and states.master > 0  # whose wrapper steps once
    return states.moments if wrapped or training.optimizer == ADAGRAD else states.early


def _coming_whole(job: Asked, layout: Plain, states: States) -> Iterator[Moment]:
    """The model on the GPU whole: where the program loads it there, and at stage 3 until DeepSpeed has cut it."""
    coming = loaded(job.model, job.training, layout, states, 1)
    if coming.gpu:
        yield moment("load", ResidentStates(states.tables + coming.gpu, 0, 0, 0))
        yield moment("init", ResidentStates(states.tables + coming.casting, 0, 0, 0))
    if layout.stage == 3:  # each tensor is cut, and this rank's share of it copied, before it goes
        shares = -(-states.tensors.largest // states.among) if layout.offload_param == "none" else 0
        whole = parameter_count(job.model) + (states.tensors.elements if job.training.method != "full" else 0)
        yield moment("init", ResidentStates(states.tables + states.size * (whole + shares), 0, 0, 0))


def _partitioned(
    job: Asked, layout: Plain, buffers: Buffers, states: States, held: ResidentStates, accumulates: bool
) -> Iterator[Moment]:
    """Init at stage 3: each group's fp32 values are copied; each trained tensor is whole once, to get its hook."""
    size = states.size
    if states.split:
        there, whole = splitting(job.model, layout.tp)
        parts = ResidentStates(held.weights + size * there, 0, 0, 0)
        yield moment("init", parts, temporaries=size * whole, gathered=size * whole)
    if states.on_gpu and size != FP32 and not wide_adapters(job.training):
        most = flattened(states.cut_up, states.among, buffers.sub_group, states.split)[0]
        yield moment("init", ResidentStates(held.weights, held.master + states.wide * most, states.early, 0))
    grads, bucket = start(states, 3, buffers, accumulates)
    whole = states.tensors.largest
    if layout.offload_param != "none":
        whole += -(-whole // states.ranks)  # this rank's share waits on the GPU beside it
    yield moment(
        "init",
        held._replace(optimizer=at_first(job.training, layout, states), staged=0),
        grads,
        bucket,
        gathered=size * whole,
    )
