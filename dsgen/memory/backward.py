"""What gradients and their buckets take while backward runs, at every stage, and at which moments that is most."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dsgen.memory.activations import Activity
from dsgen.memory.buckets import Flush, Runs, flat_chunk, flushes, larger_of
from dsgen.memory.cuts import reaches, widest_of
from dsgen.memory.shares import NORM
from dsgen.memory.states import FP32, States
from dsgen.memory.together import Together
from dsgen.memory.trained import BEFORE
from dsgen.strategies.buffers import Buffers

__all__ = ["NORM", "Load", "aside", "beside", "buckets", "epilogue", "of_two", "reductions", "start", "stays"]

NORM_CHUNK = 250_000_000  # elements of which stage 3 takes a norm at once (stage3.py, _constant_buffered_norm2)


class Load(NamedTuple):
    """Gradients and buffers at one moment of backward, in bytes on the GPU.

    Attributes:
        block: Block whose backward runs; BEFORE, AFTER, or counted from 0.
        place: Which of its gradients has just been made; -1 at the end of backward.
        gradients: Bytes of gradients that DeepSpeed holds outside the buckets, the one just made not among them.
        buckets: Bytes of buckets and of the flat copies made of them.
        fresh: Bytes of the gradient just made.
        temporaries: Bytes that a norm takes.
        tensor: Index of the gradient just made among the trained tensors; -1 at the end of backward.
    """

    block: int
    place: int
    gradients: int
    buckets: int
    fresh: int = 0
    temporaries: int = 0
    tensor: int = -1


def aside(job: Any, layout: Any) -> bool:
    """Whether gradients that wait where they were made are counted, as far as they were compared with the simulation.

    Below stage 3 with the optimizer on the CPU they never do (stage_1_and_2.py, __init__).

    Args:
        job: Anything with training, as a Job has.
        layout: Anything with stage and offload_optimizer.
    """
    if layout.stage < 3 and layout.offload_optimizer != "none":
        return True
    return not layout.stage or not (job.training.optimizer == "Muon" or layout.offload_optimizer == "nvme")


def start(states: States, stage: int, buffers: Buffers, accumulates: bool) -> tuple[int, int]:
    """Bytes of gradients and of buckets that the last forward pass of a step begins with."""
    if stage == 3:
        own = states.size * states.own if states.on_gpu else 0
        return own, buckets(states, stage, buffers)
    if not accumulates:
        return 0, 0
    if stage == 2:
        return (states.size * states.kept if states.on_gpu else 0), 0
    whole = states.size * states.tensors.elements
    return whole, buckets(states, stage, buffers) if stage == 1 else 0


def buckets(states: States, stage: int, buffers: Buffers) -> int:
    """Bytes of the flat buffers while gradients arrive: two where stages 1 and 2 reduce beside backward."""
    if not stage or not buffers.contiguous:
        return 0
    return states.size * buffers.reduce_bucket * (2 if buffers.overlap_comm and stage < 3 else 1)


def beside(stage: int, buffers: Buffers, accumulates: bool) -> bool:
    """Whether gradients are reduced while backward runs, and not behind it."""
    return stage >= 2 or (stage == 1 and buffers.overlap_comm and not accumulates)


def reductions(states: States, stage: int, buffers: Buffers, accumulates: bool, both: Together) -> Iterator[Load]:
    """What is there at every reduction beside backward that can make its peak.

    Args:
        states: The states.
        stage: The ZeRO stage.
        buffers: Element counts of the communication buffers.
        accumulates: Gradients of earlier passes are there.
        both: What lives beside them.
    """
    runs = both.runs
    prior, bucket = start(states, stage, buffers, accumulates)[0], buckets(states, stage, buffers)
    if stage == 3:
        # A gradient that leaves for the CPU comes back for its norm, one share at a time (partition_grads).
        for flush in both.reductions(states, buffers):
            held, copied = states.size * flush.larger, states.size * flush.copied
            moved = 0 if states.on_gpu else _normed(states.size, states.wide, flush.normed) + FP32 * flush.before
            fresh = states.size * flush.current
            yield Load(flush.block, flush.place, prior + held, bucket + copied + moved, fresh, 0, flush.tensor)
    elif beside(stage, buffers, accumulates):
        for flush in flushes(states.tensors, buffers.reduce_bucket, states.ranks, runs, stage == 1):
            load, normed = _reduced(states, flush, prior + states.size * flush.stay, bucket)
            yield load
            if normed is not None:
                yield normed
            if not states.on_gpu and flush.current > buffers.reduce_bucket:  # it is cloned first (offload only)
                there = prior + states.size * (flush.left + flush.current)
                yield load._replace(gradients=there, buckets=bucket)
            if flush.begun and states.on_gpu:  # the flat copy is gone by then
                gradients = load.gradients + states.size * flush.begun
                yield load._replace(gradients=gradients, buckets=bucket, temporaries=0)
        if stage == 1:  # gradients larger than the bucket never enter it, and stay until the step
            larger = stays(states, buffers, runs, states.tensors.elements)
            # The last reductions take their norms beside all of them.
            norm = 0 if states.on_gpu or not larger else NORM * widest_of(states.tensors, states.ranks)
            yield Load(BEFORE, -1, larger + (states.size * states.kept if states.on_gpu else 0), bucket, 0, norm)


def stays(states: States, buffers: Buffers, runs: Runs, handed: int) -> int:
    """Bytes of gradients that stage 1 leaves where they were made, beside backward, until the step.

    Those larger than the bucket never enter it. This rank's own are copied and freed.

    Args:
        states: The states.
        buffers: Element counts of the communication buffers.
        runs: As for `flushes`.
        handed: Elements handed over by then.
    """
    return states.size * larger_of(states.tensors, buffers.reduce_bucket, states.ranks, runs, handed)


def of_two(states: States, buffers: Buffers, both: Together, gradients: int, alive: Activity) -> int:
    """Bytes of gradients where the embedding is the head too and stage 1 reduces beside the second pass.

    In the blocks that pass has fewer the further it is. At the embedding:
    With a pass between the first and the last, a third gradient of the embedding waits beside those of all weights.
    With two, the first pass has only its own two, and the last has four once all others are reduced.
    """
    if alive.where != "embedding":
        left = stays(states, buffers, both.runs, alive.gradients // states.size)
        return max(gradients - alive.gradients + left, alive.gradients + alive.fresh)
    head = states.size * states.tensors.head
    others = stays(states, buffers, both.runs, states.tensors.elements - states.tensors.head)
    return max(gradients - head, 4 * head + others)


def _normed(size: int, wide: int, share: int) -> int:
    """Bytes of a share of a gradient on the GPU while its norm is taken in float64, or it is copied to `wide` bytes."""
    return size * share + max(NORM * min(share, NORM_CHUNK), wide * share if size != wide else 0)


def _reduced(states: States, flush: Flush, prior: int, bucket: int) -> tuple[Load, Load | None]:
    """A reduction with its flat copy, and with a norm if that takes more: the copy is gone by then."""
    own = states.size * flush.own if states.on_gpu else 0
    copied, normed = states.size * flush.copied, 0 if states.on_gpu else NORM * flush.normed
    gradients, fresh = prior + own + states.size * flush.larger, states.size * flush.current
    load = Load(flush.block, flush.place, gradients, bucket + copied, fresh, 0, flush.tensor)
    return load, load._replace(buckets=bucket, temporaries=normed) if normed > copied else None


def epilogue(states: States, stage: int, buffers: Buffers) -> Iterator[Load]:
    """What is there when backward is over and gradients that waited for its end are reduced."""
    whole = states.size * states.tensors.elements
    if stage == 0:
        yield Load(BEFORE, -1, whole, states.size * flat_chunk(states.tensors))
    elif stage == 1 and not buffers.overlap_comm:
        yield Load(BEFORE, -1, whole, buckets(states, stage, buffers))
        if loads := _after(states, buffers):
            yield max(loads, key=lambda load: load.gradients + load.buckets + load.temporaries)


def _after(states: States, buffers: Buffers) -> list[Load]:
    """The reductions that follow backward at stage 1, in the order of the model."""
    tensors, size, bucket = states.tensors, states.size, buffers.reduce_bucket
    whole, flat = size * tensors.elements, buckets(states, 1, buffers)
    loads = []
    index = stay = 0
    for flush in flushes(tensors, bucket, states.ranks, None):
        while index < len(tensors.ends) and tensors.ends[index] <= flush.done:
            numel = tensors.numels[index]
            stay += numel if numel > bucket and not reaches(tensors, states.ranks, index) else 0
            index += 1
        # A gradient larger than the bucket stays where it is: this rank's own until it has been copied.
        gone = flush.done - stay + (flush.elements if flush.elements <= bucket else 0)
        left = whole - size * gone
        if states.on_gpu:
            before, behind = left + size * flush.own, left + size * (flush.own + flush.begun)
            loads += [Load(BEFORE, -1, before, flat + size * flush.copied), Load(BEFORE, -1, behind, flat)]
            continue
        loads.append(Load(BEFORE, -1, left, flat + size * flush.copied))
        loads.append(Load(BEFORE, -1, left, flat, 0, NORM * flush.normed))
        if flush.current > bucket:  # it is cloned first (offload only)
            loads.append(Load(BEFORE, -1, left + size * flush.current, flat))
    return loads
