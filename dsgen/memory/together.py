"""Activations beside what stage 3 has gathered for them: the moments that can be the highest, and bytes of both.

Neither depends on where optimizer and parameters are, so the layouts that differ in this alone share them.
"""

import bisect
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dsgen.memory.activations import FORWARD, Activations, Activity, Offloaded, activations, execution, inference
from dsgen.memory.buckets import Flush, Runs, waiting_of, worst
from dsgen.memory.forward_only import forward_only
from dsgen.memory.gathered import Gathered, gathered
from dsgen.memory.numbers import count
from dsgen.memory.runs import Run
from dsgen.memory.shares import scattered
from dsgen.memory.states import States
from dsgen.memory.trained import AFTER, BEFORE, narrow_adapters, trained
from dsgen.strategies.buffers import Buffers

__all__ = ["Together", "offloaded", "per_sequence", "runs_of", "together", "without_gradients"]

# The coordinator's, in elements; there is one rank; which reads what it has; a pass that gathers anew what persists;
# ranks that share what hpZ copies in this pass; what AutoTP has split is not cut again.
Limits = tuple[int, int, int, int, bool, bool, bool, int, bool]
Alive = tuple[Activity, int, int]  # a moment, bytes gathered then, and bytes of a gradient too large for the bucket


class Together(NamedTuple):
    """What lives on one GPU while a pass runs, besides states and gradients.

    Attributes:
        active: The activations.
        runs: For every run of equal blocks how many, and elements of one's gradients as they are made.
        forward: Moments of forward that can be its highest.
        backward: The same for backward. Below stage 3 no moment is left out, for gradients may grow beside them.
        first_step: Moments of the first step that can be its highest, and higher than those of later ones.
        gathered: What stage 3 gathers; None below it.
        size: Bytes of a gathered element; 0 where a single rank reads its parameters where they are.
        persistent: What is never partitioned, in elements of a weight.
        reduced: What `reductions` has found by now: (elements of a bucket, ranks, whether shares are swapped,
            whether gradients wait where they were made) -> it.
    """

    active: Activations
    runs: Runs
    forward: tuple[Alive, ...]
    backward: tuple[Alive, ...]
    first_step: tuple[Alive, ...]
    gathered: Gathered | None
    size: int
    persistent: int
    reduced: dict[tuple[int, int, bool, bool, bool], list[Flush]]

    def bytes(self, elements: int) -> int:
        """Bytes of gathered parameters and of those that are never partitioned."""
        return self.size * (elements + self.persistent)

    def when(self, block: int, tensor: int) -> int:
        """Bytes gathered in backward of a block when the gradient of a tensor has been made; see `Gathered.when`."""
        return self.bytes(self.gathered.when(block, tensor)) if self.gathered else 0

    def reductions(self, states: States, buffers: Buffers) -> list[Flush]:
        """The reduce-scatters of stage 3 that can be the highest beside what is gathered."""
        key = buffers.reduce_bucket, states.ranks, states.swaps, not buffers.contiguous, not states.on_gpu
        if key not in self.reduced:
            bucket, ranks, *how = key
            split = (states.cut_up, states.among) if states.split else ()
            made = scattered(states.tensors, bucket, ranks, self.runs, *how, *split)
            when = self.gathered.when if self.gathered and self.size else None
            self.reduced[key] = worst(made, (lambda one: when(one.block, one.tensor)) if when else None)
        return self.reduced[key]

    def copying(self, alive: Activity, block: int, tensor: int | None = None) -> Activity:
        """A moment in a block with what hpZ has copied in this pass by then, or when a tensor's gradient was made."""
        if self.gathered is None or not self.gathered.copies:
            return alive
        return alive._replace(copies=self.size * self.gathered.copied(block, alive.way, alive.position, tensor))

    @property
    def copies(self) -> bool:
        """Whether hpZ makes copies in this pass."""
        return self.gathered is not None and bool(self.gathered.copies)

    @property
    def packed(self) -> int:
        """Bytes gathered when backward has ended."""
        return self.bytes(self.gathered.packed) if self.gathered else 0


def together(
    run: Run, buffers: Buffers, alone: bool, here: bool, anew: bool = False, group: int = 0, free: bool = False
) -> Together:
    """What lives while a pass runs.

    Args:
        run: The pass.
        buffers: Those that the stage has.
        alone: A single rank has all states.
        here: Parameters wait on the GPU.
        anew: The second pass of the first step: the first one, which records the order of use, has released even
            what is never partitioned later.
        group: Ranks that share the copies that hpZ makes in this pass; 0 where it makes none.
        free: What AutoTP has split is on the GPU whole: there is one replica.
    """
    limits = None
    if run.told:
        coordinated = (buffers.persistence, buffers.prefetch, buffers.max_live, buffers.max_reuse)
        limits = (*coordinated, alone, alone and here, anew, group, free)
    if run.told and not buffers.contiguous:
        return _loose(run, limits, buffers.reduce_bucket)
    sizes = _lasts(run)
    # Buckets between two sizes of gradients let the same ones wait.
    place = bisect.bisect_right(sizes, run.size * buffers.reduce_bucket)
    return _together(run, limits, sizes[place - 1] if place else 0)


def without_gradients(
    run: Run, buffers: Buffers, alone: bool, here: bool, free: bool = False
) -> tuple[tuple[Alive, ...], int, int]:
    """The moments of forwards under torch.no_grad that can be their highest, with the bytes gathered then.

    Arguments are as for `together`.

    Returns:
        The moments, the bytes that are gathered when a forward is over, and those that training has gathered more in
        the pass that follows.
    """
    training = run.training
    ways = (training.method, run.checkpointing, training.chunked_loss, training.lora_rank, training.lora_targets)
    wide = (training.lora_train_embeddings, narrow_adapters(training))
    rest = (run.told and training.method != "full", run.single, False, *wide)
    on = execution(run.model, run.precision, training.attention, run.seq_len, run.tp, *ways, *rest)
    moments = inference(on, run.told)
    if not run.told:
        return tuple((alive, 0, 0) for alive in moments), 0, 0
    limits = (buffers.persistence, buffers.prefetch, buffers.max_live, buffers.max_reuse)
    there = _beside(run, (*limits, alone, alone and here, False, 0, free))[0]
    blocks = tuple(blocks._replace(kept=(0, 0)) for blocks in there.active.blocks)
    only = forward_only(run.step(free), limits, alone)
    there = there._replace(active=there.active._replace(blocks=blocks), gathered=only.gathered)
    layers = sum(run.repeats for run in blocks)
    highest = _highest([(alive, live, 0) for alive, live in _among(there, moments, layers, False)])
    return highest, there.size * only.behind, there.size * only.left


def offloaded(run: Run) -> tuple[Offloaded, ...]:
    """What a pass copies to the node's RAM."""
    return _active(run).offloaded


@functools.lru_cache(maxsize=4096)
def per_sequence(run: Run) -> int:
    """Bytes of activations, logits and temporaries that each sequence has at the moment that has most of them."""
    active = _active(run)
    return max(
        alive.activations[1] + alive.logits[1] + alive.temporaries[1] for alive in (*active.forward, *active.backward)
    )


@functools.lru_cache(maxsize=4096)
def _active(run: Run) -> Activations:
    training = run.training
    return activations(
        run.model,
        precision=run.precision,
        attention=training.attention,
        seq_len=run.seq_len,
        tp=run.tp,
        method=training.method,
        checkpointing=run.checkpointing,
        chunked_loss=training.chunked_loss,
        lora_rank=training.lora_rank,
        lora_targets=training.lora_targets,
        zero3=run.told and training.method != "full",  # trained weights keep their input anyway
        told=run.told,
        single=run.single,
        drops=training.lora_dropout > 0,
        embeddings=training.lora_train_embeddings,
        narrow=narrow_adapters(training),
        target_len=training.target_len,
        reentrant=run.reentrant,
        offloads=run.offloads,
    )


@functools.lru_cache(maxsize=4096)
def _lasts(run: Run) -> list[int]:
    """Bytes of the gradients that may wait, each size once, in rising order."""
    return sorted({alive.last for alive in _active(run).backward})


@functools.lru_cache(maxsize=4096)
def runs_of(run: Run) -> Runs:
    """For every run of equal blocks how many, and elements of one's gradients as backward makes them."""
    runs = []
    for blocks in _active(run).blocks:
        ends = [*(moment.gradients for moment in blocks.arrivals), blocks.gradients]
        runs.append((blocks.repeats, tuple((end - begin) // run.size for begin, end in itertools.pairwise(ends))))
    return tuple(runs)


@functools.lru_cache(maxsize=4096)
def _together(run: Run, limits: Limits | None, bucket: int) -> Together:
    active = _active(run)
    if limits is None:
        forward = tuple((alive, 0, 0) for alive in active.forward)
        backward = tuple((alive, 0, _waiting(alive, bucket)) for alive in active.backward)
        return Together(active, runs_of(run), forward, backward, (), None, 0, 0, {})
    there, before, behind = _beside(run, limits)
    waiting = [(alive, live, _waiting(alive, bucket)) for alive, live in behind]
    return there._replace(forward=before, backward=_highest(waiting))


@functools.lru_cache(maxsize=1024)
def _loose(run: Run, limits: Limits, bucket: int) -> Together:
    """As `_together` where gradients wait where they were made until they fill a bucket: every block is looked at."""
    there, before, _ = _beside(run, limits)
    tensors = trained(run.model, *run.trains)
    layers = sum(blocks.repeats for blocks in there.active.blocks)

    def waiting(alive: Activity) -> int:
        return run.size * waiting_of(tensors, bucket, there.runs, alive.gradients // run.size)

    behind = [(alive, live, waiting(alive)) for alive, live in _among(there, there.active.backward, layers, True, True)]
    first = tuple((alive, live, waiting(alive) if alive.way != FORWARD else 0) for alive, live, _ in there.first_step)
    return there._replace(forward=before, backward=_highest(behind), first_step=first)


@functools.lru_cache(maxsize=4096)
def _beside(run: Run, limits: Limits) -> tuple[Together, tuple[Alive, ...], tuple[tuple[Activity, int], ...]]:
    """What stage 3 gathers, the highest moments of forward, and all of backward with the bytes gathered then."""
    persistence, prefetch, max_live, max_reuse, alone, read, anew, group, free = limits
    model, active, chunked = run.model, _active(run), run.training.chunked_loss
    coordinated = (persistence, prefetch, max_live, max_reuse)
    gathered_then = gathered(run.step(free), coordinated, alone, anew, group)
    persistent = 0  # gathered anew, it is among what is gathered
    if not anew:
        numbers = count(model, *run.trains, persistence)
        persistent = numbers.persistent + (numbers.persistent_adapters if run.wide else 0)
    there = Together(active, runs_of(run), (), (), (), gathered_then, 0 if read else run.size, persistent, {})
    head = run.size * trained(model, *run.trains).head if chunked else 0
    layers = sum(blocks.repeats for blocks in active.blocks)
    forward = [(alive, live, 0) for alive, live in _among(there, active.forward, layers, False)]
    # The first time, even a single rank gathers the head for a chunked loss.
    first = [(alive, head, 0) for alive, live, _ in forward if head and alive.where == "loss" and not live]
    first += _highest(_of_first_step(there, active.forward, layers, False))
    first += _highest(_of_first_step(there, active.backward, layers, True))
    behind = tuple(_among(there, active.backward, layers, True))
    return there._replace(first_step=tuple(first)), _highest(forward), behind


def _of_first_step(both: Together, moments: Sequence[Activity], layers: int, back: bool) -> list[Alive]:
    """Moments of the first step when a module is gathered whole."""
    gathered = both.gathered
    if gathered is None or not gathered.first_step:
        return []
    whole = []
    for alive in moments:
        block = layers - 1 - alive.blocks if back else alive.blocks
        elements = gathered.first_step.get((block, alive.way, *alive.position)) if alive.where == "block" else None
        if elements:
            whole.append((alive, both.bytes(elements), 0))
    return whole


def _waiting(alive: Activity, bucket: int) -> int:
    """Bytes of the gradient made last if it is larger than the bucket: it waits where it was made for the next one."""
    return alive.last if alive.last > bucket else 0


def _among(
    both: Together, moments: Sequence[Activity], layers: int, back: bool, every: bool = False
) -> Iterator[tuple[Activity, int]]:
    """Moments with the bytes gathered then: as they are, which is in the first and the last of equal blocks, and
    between these where more is gathered than in every later block, or in `every` block."""
    gathered = both.gathered
    if gathered is None:
        return
    runs = both.active.blocks
    ends = dict(zip(itertools.accumulate(run.repeats for run in runs), runs, strict=True))
    for alive in moments:
        block = layers - 1 - alive.blocks if back else alive.blocks
        if alive.where != "block":
            around = BEFORE if alive.where == "embedding" else AFTER
            yield both.copying(alive, around), both.bytes(gathered.at(around, alive.way, alive.position))
            continue
        yield both.copying(alive, block), both.bytes(gathered.at(block, alive.way, alive.position))
        run = ends.get(block + 1)
        if run is None:
            continue
        for behind, more in gathered.higher(block, alive.way, alive.position, run.repeats - 2, every):
            yield both.copying(alive.without(behind, run.kept, run.gradients), block - behind), both.bytes(more)


def _highest(moments: Sequence[Alive]) -> tuple[Alive, ...]:
    """Those that are the highest for some micro-batch, whatever stays beside them."""
    sums = []
    for number, (alive, live, waiting) in enumerate(moments):
        (activations, more), (logits, wider), (temporaries, other) = alive[:3]
        fixed = activations + logits + temporaries + alive.fresh + live + waiting
        sums.append((-more - wider - other, -fixed, number))
    sums.sort()
    kept: list[int] = []
    most = 0
    for _, fixed, number in sums:
        if fixed < most or not kept:
            most = fixed
            kept.append(number)
    return tuple(moments[number] for number in kept)
