"""The named parts of a strategy's memory at every moment that can be its highest, its micro-batch left open."""

import functools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dsgen.jobs.job import Job
from dsgen.memory.activations import FORWARD, Activity, Offloaded
from dsgen.memory.asked import (
    Asked,
    Plain,
    asked_of,
    batchless,
    copied,
    felt,
    kept_by_autograd,
    recording,
    through_training,
)
from dsgen.memory.backward import Load, aside, beside, buckets, epilogue, of_two, reductions, start, stays
from dsgen.memory.beginning import at_first, beginning
from dsgen.memory.buckets import kept_from
from dsgen.memory.doubted import doubted
from dsgen.memory.hosts import Host, Locked, adapter_bytes, host
from dsgen.memory.loading import loaded, under_zero_init
from dsgen.memory.loose import loose
from dsgen.memory.moments import NOTHING, Moment, ResidentStates, highest, moment
from dsgen.memory.runs import Run
from dsgen.memory.states import FP32, FUSED, MUON, States, flattening, states
from dsgen.memory.stepping import making_states, stepped
from dsgen.memory.together import Together, per_sequence, together
from dsgen.memory.trained import AFTER, BEFORE
from dsgen.shapes.profiles import Model, Training
from dsgen.strategies.buffers import Buffers
from dsgen.strategies.constraints import UNCOUNTED, Constraint, Setup, refusals
from dsgen.strategies.wishes import refused

__all__ = ["Parts", "counted", "parts", "passes_of", "sequence_bytes"]

NEVER = 1 << 62  # bytes
# Bytes an element of a gradient in which infinities are looked for: fp32, whether it is one or none or either, and that
# in fp32 (stage_1_and_2.py, _has_inf_or_nan, DeepSpeed 0.18.9).
CHECKED = 4 + 3 + 4
Line = tuple[int, int]


class Parts(NamedTuple):
    """One strategy, its micro-batch left open.

    Attributes:
        moments: Those that can be the highest of their phase.
        lines: (bytes, bytes for every sequence) of those that can be the highest of all.
        host: What the ranks of one node hold in its RAM and on its drives.
        doubted: DeepSpeed may run otherwise, or not at all.
        warning: What a person should know of that, where it is known.
    """

    moments: tuple[Moment, ...]
    lines: tuple[Line, ...]
    host: Host
    doubted: bool
    warning: str | None

    def peak(self, micro_batch: int) -> int:
        """Bytes of the highest moment of a micro-batch."""
        return max([fixed + each * micro_batch for fixed, each in self.lines])


def parts(job: Job, layout: Any, buffers: Buffers, passes: int, single: bool = False) -> Parts:
    """Every part of a layout's memory.

    Args:
        job: The job.
        layout: Anything with stage, offload_optimizer, offload_param, tp, checkpointing and precision.
        buffers: Element counts of the communication buffers.
        passes: Forward passes of a step; more than three are like three.
        single: The micro-batch is not open: it is one sequence, where that tells (dsgen.memory.asked.tells).

    Raises:
        DsgenError: Adapters that there are not, or what is not counted of a model with an encoder.
    """
    training = asked_of(job, layout).training
    if (broken := _broken(job.model, training, layout.offload_param, layout.tp)) is not None:
        raise refused(*broken)
    return counted(job, layout, buffers, passes, single)


def counted(job: Job, layout: Any, buffers: Buffers, passes: int, single: bool = False) -> Parts:
    """Those of a layout that `layouts` offers, which asked before whether it is counted."""
    swapped = buffers.swap_buffers if layout.offload_optimizer == "nvme" else 0
    locked = buffers.locked, buffers.locked_shares
    place = swapped, buffers.sub_group, buffers.pipelined
    node = job.gpus_per_node, job.hardware.usable_memory_bytes, locked, place
    return _parts(*_telling(job, layout, buffers, passes, single), node)


def passes_of(
    job: Job, layout: Any, buffers: Buffers, passes: int, single: bool = False
) -> tuple[tuple[Moment, ...], ...]:
    """Moments of the first step; of its passes by two counts, the lower of which holds; of a later one. As `parts`."""
    return _passes(*_telling(job, layout, buffers, passes, single))


def _telling(
    job: Job, layout: Any, buffers: Buffers, passes: int, single: bool
) -> tuple[Asked, Plain, Buffers, bool, bool, bool]:
    """What moments depend on: the same for all that have the same."""
    stage = layout.stage
    accumulates = passes > 1 and stage < 3  # stage 3 has the sum of its gradients whatever the passes are
    tied = job.model.tied_embeddings and job.training.method == "full"
    twice = passes == 2 and stage == 1 and buffers.overlap_comm and tied
    anew = passes > 1 and stage == 3
    waits = not buffers.contiguous and aside(job, layout)
    return (
        asked_of(job, layout, single),
        batchless(layout),
        felt(
            kept_by_autograd(buffers, layout.checkpointing),
            stage,
            waits and (stage == 3 or layout.offload_optimizer == "none"),
        ),
        accumulates,
        twice,
        anew,
    )


def sequence_bytes(job: Job, layout: Any) -> int:
    """Bytes that each sequence of a micro-batch adds to the peak at least, and soon known.

    They are those of the same layout without stage 3, whose hooks only keep more; so layouts of all stages share them.

    Args:
        job: The job.
        layout: Anything with tp, checkpointing and precision.
    """
    ways = layout.precision, layout.tp, layout.checkpointing, False
    return per_sequence(Run(job.model, job.training, job.seq_len, *ways))


@functools.lru_cache(maxsize=8192)
def _parts(
    asked: Asked,
    layout: Plain,
    buffers: Buffers,
    accumulates: bool,
    twice: bool,
    anew: bool,
    node: tuple[int, int, tuple[bool, bool], tuple[int, int, bool]],
) -> Parts:
    """Those of a kind of node: its GPUs, bytes of one, whether RAM is page-locked, tensors that swap to NVMe, and
    elements of a group of them."""
    ranks, memory, locked, swapped = node
    states, moments, lines, moved = _of_layout(asked, layout, buffers, accumulates, twice, anew)
    flat, before = flattening(states, layout.stage)
    if layout.stage:  # stages 1 and 2 make the flat copy beside the weights where it has room, else in the node's RAM
        flattens = layout.stage < 3 and not asked.in_ram and states.weights + flat <= memory
    else:
        flattens = states.size < FP32 and asked.training.optimizer in FUSED
    if flattens:
        init = moment("init", ResidentStates(states.tables + states.weights + flat, before, 0, 0))
        moments, lines = (init, *moments), (*lines, (init.fixed, init.each))
    warning = doubted(asked.model, asked.training, layout.stage)
    # What Muon gathers of split layers when it steps on the CPU was simulated once, 7 % below what is counted.
    unsure = states.split is not None and states.updates > 0 and not states.on_gpu
    coming = loaded(asked.model, asked.training, layout, states, ranks)
    leaves = layout.stage in (1, 2) and not flattens  # the weights leave for RAM, and are copied flat beside them
    narrow = 0 if asked.returns_wide else states.size * states.own  # what goes back to the GPU waits in 16 bits
    made = under_zero_init(asked.training, layout.stage)
    pinned = Locked(*locked, asked.model, adapter_bytes(asked.training, states.size), made, moved)
    away = 2 * flat if leaves else 0
    node_ram = host(ranks, layout, swapped, states, accumulates, coming, away, narrow, pinned)
    return Parts(moments, lines, node_ram, warning is not None or unsure, warning)


@functools.lru_cache(maxsize=256)
def _broken(model: Model, training: Training, offload_param: str, tp: int) -> tuple[Constraint, Setup] | None:
    """Adapters that there are not, and what is not counted of a model with an encoder."""
    architecture = model.architecture
    at = Setup(offload_param=offload_param, tp=tp, training=training, model=model, architecture=architecture)
    item = next(refusals(at, UNCOUNTED), None)
    return None if item is None else (item, at)


@functools.lru_cache(maxsize=8192)
def _of_layout(
    asked: Asked, layout: Plain, buffers: Buffers, accumulates: bool, twice: bool, anew: bool
) -> tuple[States, tuple[Moment, ...], tuple[Line, ...], tuple[Offloaded, ...]]:
    """States of a layout; its moments but the one that depends on the GPU's size, the highest, what passes offload."""
    of = _moments(asked, layout, buffers, accumulates, twice, anew)
    moments = tuple(highest(of.all()))
    return of.states, moments, _lines(moments), of.both.active.offloaded


@functools.lru_cache(maxsize=64)
def _passes(
    asked: Asked, layout: Plain, buffers: Buffers, accumulates: bool, twice: bool, anew: bool
) -> tuple[tuple[Moment, ...], ...]:
    of = _moments(asked, layout, buffers, accumulates, twice, anew)
    first, held = of.held()
    before, began = of.unstepped(first), of
    if of.states.among > 1 and layout.stage == 3:  # the first pass of all fetches nothing ahead
        here = layout.offload_param == "none"
        free = here and of.states.ranks == 1
        began = of._replace(both=together(_run(asked, layout, anew), recording(buffers), False, here, free=free))
    sure = (*of.recorded(before), *of.first_step(first))
    either = ((*one.forward(before), *one.backward(before)) for one in (began, of))
    later = (*of.forward(held), *of.backward(held), *of.step(first))
    return tuple(tuple(highest(one)) for one in (sure, *either, later))


def _run(asked: Asked, layout: Plain, anew: bool) -> Run:
    """A pass of a layout."""
    lingers = asked.lingers_on or (asked.lingers and anew)
    rest = (layout.precision, layout.tp, layout.checkpointing, layout.stage == 3, asked.single, lingers, asked.returns)
    return Run(asked.model, asked.training, asked.seq_len, *rest)


def _moments(asked: Asked, layout: Plain, buffers: Buffers, accumulates: bool, twice: bool, anew: bool) -> "_Moments":
    held = states(asked, layout, buffers)
    run = _run(asked, layout, anew)
    here = layout.offload_param == "none"
    group = held.copies.group if held.copies and not anew else 0  # a later pass has all copies already
    free = here and held.ranks == 1 < held.among  # one replica of what AutoTP has split
    both = together(run, buffers, held.among == 1, here, group=group, free=free)
    second = together(run, buffers, False, here, True, free=free) if anew and held.among > 1 else None
    if group:  # in the first pass of all every tensor has a copy already
        second = together(run, recording(buffers), False, here)
    return _Moments(asked, layout, buffers, held, both, second, accumulates, twice)


def _lines(moments: Iterable[Moment]) -> tuple[Line, ...]:
    kept: list[Line] = []
    for each, fixed in sorted(((one.each, one.fixed) for one in moments), reverse=True):
        if not kept or fixed > kept[-1][0]:
            kept.append((fixed, each))
    return tuple(kept)


class _Moments(NamedTuple):
    job: Asked
    layout: Plain
    buffers: Buffers
    states: States
    both: Together
    second: Together | None  # the pass of the first step that can be higher than later ones
    accumulates: bool
    twice: bool

    def held(self) -> tuple[ResidentStates, ResidentStates]:
        """What is there until the first step is over, its new states apart, and in the passes of a later one."""
        held = through_training(self.layout, self.states)
        copies = self.states.copies
        return copied(held, copies, not self.both.copies) if copies else (held, held)

    def all(self) -> Iterator[Moment]:
        first, held = self.held()
        yield from beginning(self.job, self.layout, self.buffers, self.states, first, self.accumulates)
        yield from self.forward(held)
        yield from self.recorded(self.unstepped(first))
        yield from self.backward(held)
        yield from self.step(first)

    def step(self, held: ResidentStates) -> Iterator[Moment]:
        kind, layout = self.job.training.optimizer, self.layout
        rest = self.buffers, self.states, self.both, held, self.job.returns_wide
        yield from stepped(kind, layout.stage, layout.precision, *rest)

    def first_step(self, first: ResidentStates) -> Iterator[Moment]:
        """The first step of all, which makes states; Muon's is taken for a later one."""
        makes = self.layout.stage and self.states.on_gpu and self.job.training.optimizer != MUON
        yield from self.step(self.unstepped(first) if makes else first)
        if makes:
            yield from making_states(self.layout.stage, self.buffers, self.states, self.both, first)

    def unstepped(self, first: ResidentStates) -> ResidentStates:
        """What is there in the passes of the first step: the states of most optimizers are not."""
        made = at_first(self.job.training, self.layout, self.states)
        return first._replace(optimizer=made, staged=0)

    def forward(self, held: ResidentStates) -> Iterator[Moment]:
        grads, bucket = start(self.states, self.layout.stage, self.buffers, self.accumulates)
        inputs = self.both.active.inputs[1]
        for alive, live, _ in self.both.forward:
            yield moment("forward", held, grads + alive.fresh, bucket, 0, live, alive, inputs)

    def recorded(self, before: ResidentStates) -> Iterator[Moment]:
        """The passes of the first step that can be higher than later ones: they record the order of use."""
        grads, bucket = start(self.states, self.layout.stage, self.buffers, self.accumulates)
        inputs = self.both.active.inputs[1]
        second = self.second.forward + self.second.backward if self.second else ()
        for alive, live, waiting in self.both.first_step + second:
            phase = "forward" if alive.way == FORWARD else "backward"
            there = grads + alive.fresh + (0 if self.buffers.contiguous else waiting)
            yield moment(phase, before, there, bucket, 0, live, alive, inputs)

    def backward(self, held: ResidentStates) -> Iterator[Moment]:
        states, stage, buffers_ = self.states, self.layout.stage, self.buffers
        if not buffers_.contiguous and stage < 3:
            yield from loose(states, stage, buffers_, self.accumulates, self.both, held, self._loaded)
            return
        grads, bucket = start(states, stage, buffers_, self.accumulates)
        walked = beside(stage, buffers_, self.accumulates)
        grows = not walked and not self.accumulates
        full = buckets(states, stage, buffers_)
        bucket = full if self.job.early_buckets else bucket
        inputs = self.both.active.inputs[1]
        keeping = self.keeping()
        runs = self.both.runs
        first = self.both.active.first
        if stage in (1, 2):  # the buckets are made when the first gradient comes
            head = 0 if states.tensors.tied else states.tensors.head
            cloned = walked and not states.on_gpu and head > buffers_.reduce_bucket  # on its way to the CPU
            there = grads + first.fresh + (states.size * head if cloned else 0)
            yield moment("backward", held, there, full, 0, 0, first, inputs)
        for alive, live, waiting in (*self.both.backward, *self.second_block(), *self.first_kept(keeping)):
            gradients = grads + alive.fresh + (alive.gradients if grows else waiting if walked else 0)
            if walked and stage == 1:
                handed = alive.gradients // states.size
                gradients += stays(states, buffers_, runs, handed - waiting // states.size)
            if alive.gradients >= keeping:  # this rank's own stay, in a buffer for all of them
                gradients += states.size * states.kept
            if self.twice:
                gradients = of_two(states, buffers_, self.both, gradients, alive)
            there = full if alive.gradients or alive.blocks else bucket
            yield moment("backward", held, gradients, there, 0, live, alive, inputs)
        # On their way to the CPU the sums of all passes are reduced beside the last one, as those of one pass are.
        again = stage == 1 and self.accumulates and buffers_.overlap_comm and not states.on_gpu
        if walked or again:
            for load in reductions(states, stage, buffers_, self.accumulates and not again, self.both):
                yield self._loaded(load, held)
        if states.updates and states.on_gpu and stage in (1, 2):  # each of this rank's matrices becomes an update
            rest = grads if stage == 2 else stays(states, buffers_, runs, states.tensors.elements)
            there = states.size * states.kept + states.updates + rest
            yield moment("backward", held, there, full, 0, 0, NOTHING, inputs)
        for load in epilogue(states, stage, buffers_):
            yield self._loaded(load, held)
        if self.job.checks_wide:
            yield from self._checked(held, grads, full)

    def _checked(self, held: ResidentStates, gradients: int, buckets: int) -> Iterator[Moment]:
        """The largest gradient while older releases look for infinities in copies of it: a head's, an embedding's."""
        size, first, tensors = self.states.size, self.both.active.first, self.states.tensors
        inputs = self.both.active.inputs[1]
        for numel, alive in ((0 if tensors.tied else tensors.head, first), (max(tensors.numels, default=0), NOTHING)):
            yield moment("backward", held, gradients + size * numel, buckets, CHECKED * numel, 0, alive, inputs)

    def first_kept(self, keeping: int) -> Iterator[tuple[Activity, int, int]]:
        """Moments of the first block behind which this rank's own gradients are kept, if others are around it."""
        done = 0
        for run in reversed(self.both.active.blocks if keeping < NEVER else ()):
            for alive, live, waiting in self.both.backward:
                more = -(-(keeping - alive.gradients) // run.gradients) if run.gradients else 0
                if alive.where == "block" and alive.blocks == done and 0 < more < run.repeats - 1:
                    yield alive.without(more, run.kept, run.gradients), live, waiting
            done += run.repeats

    def second_block(self) -> Iterator[tuple[Activity, int, int]]:
        """Moments of the second block of backward, which has buckets where the first has no gradient yet."""
        run = self.both.active.blocks[-1]
        if self.layout.stage in (1, 2) and run.repeats > 2:  # else it is the last of its run
            for alive, live, waiting in self.both.backward:
                if alive.where == "block" and not alive.blocks and not alive.gradients:
                    yield alive.without(1, run.kept, run.gradients), live, waiting

    def keeping(self) -> int:
        """Bytes of gradients that backward has handed over when this rank's own begin to be kept beside it."""
        states, stage = self.states, self.layout.stage
        keeps = stage < 3 and beside(stage, self.buffers, self.accumulates)
        if not keeps or not states.on_gpu or not states.tensors.elements:
            return NEVER
        return states.size * kept_from(states.tensors, self.buffers.reduce_bucket, states.ranks, self.both.runs)

    def _loaded(self, load: Load, held: ResidentStates) -> Moment:
        alive = self.both.copying(self._arrived(load), load.block, load.tensor)
        live = self.both.when(load.block, load.tensor)
        grads = load.gradients + alive.fresh
        tensors = self.states.tensors
        if tensors.tied and load.tensor not in (-1, tensors.table):  # the head's gradient waits for the embedding's
            grads += self.states.size * self.states.tensors.head
        return moment("backward", held, grads, load.buckets, load.temporaries, live, alive, self.both.active.inputs[1])

    def _arrived(self, load: Load) -> Activity:
        """What is alive, fresh gradients among it, when a gradient is made that does not fit into the bucket."""
        active = self.both.active
        if load.block == BEFORE:
            return NOTHING._replace(activations=active.asked, temporaries=active.asked, fresh=load.fresh)
        fixed, each = active.tables if load.block != AFTER else active.outside
        number, run = load.block, None
        for run in active.blocks:
            here = run.repeats if load.block == AFTER else min(max(number, 0), run.repeats)
            fixed, each = fixed + here * run.kept[0], each + here * run.kept[1]
            if 0 <= number < run.repeats:
                break
            number -= run.repeats
        if run is None or load.block == AFTER or load.place >= len(run.arrivals):
            return NOTHING._replace(activations=(fixed, each), fresh=load.fresh)
        alive = run.arrivals[load.place]
        kept = (fixed + alive.activations[0], each + alive.activations[1])
        return Activity(kept, alive.logits, alive.temporaries, alive.gradients, alive.fresh)
