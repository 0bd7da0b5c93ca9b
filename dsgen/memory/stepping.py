"""What lives on one GPU while the optimizer steps: copies of gradients, their norms, and what torch's own loops make.

Followed from the code of DeepSpeed 0.19.8 (runtime/zero/stage_1_and_2.py and stage3.py, step) and of torch 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.memory.activations import Activity
from dsgen.memory.backward import NORM, start
from dsgen.memory.cuts import cut, widest_of
from dsgen.memory.moments import NOTHING, Moment, ResidentStates, moment
from dsgen.memory.shares import flattened
from dsgen.memory.states import FP32, FUSED, MUON, States
from dsgen.memory.together import Together
from dsgen.strategies.buffers import Buffers

__all__ = ["making_states", "stepped"]


def stepped(
    optimizer: str,
    stage: int,
    precision: str,
    buffers: Buffers,
    states: States,
    both: Together,
    held: ResidentStates,
    returns_wide: bool = False,
) -> Iterator[Moment]:
    """The moments of a step that can be its highest.

    Args:
        optimizer: Its name.
        stage: The ZeRO stage.
        precision: bf16, fp16 or fp32.
        buffers: Element counts of the communication buffers.
        states: The states.
        both: What lives beside them.
        held: What is there all the time.
        returns_wide: Weights that the CPU has stepped come back in fp32, a group at a time.
    """
    size, wide, asked = states.size, states.wide, both.active.asked
    alive = NOTHING._replace(activations=asked, temporaries=asked)
    listed = states.listed  # bytes an element, on the GPU
    if stage == 0:
        fused = optimizer in FUSED and not listed
        copies = FP32 * states.own * (2 if fused else 1) if size != FP32 else 0
        grads = size * states.tensors.elements + copies + states.updates
        yield moment("step", held, grads, 0, listed * states.own, 0, alive)
    elif stage == 3:
        yield from _of_stage_3(precision, buffers, states, held, both.packed, alive, listed)
    elif states.on_gpu:
        cuts = cut(states.tensors, states.ranks)
        kept = size * states.kept if optimizer != MUON or len(cuts) > 1 else 0  # Muon's are updates by then
        updated = size * cuts[0].kept if optimizer == MUON else 0
        yield moment("step", held, kept + updated, 0, NORM * widest_of(states.tensors, states.ranks), 0, alive)
        for one in cuts:  # group by group
            flat = (size * one.share if one.tensors > 1 else 0) + (wide * one.share if size != wide else 0)
            yield moment("step", held, kept + updated + flat, 0, 0, 0, alive)
            updated = 0
        if listed:
            yield moment("step", held, (wide + listed) * states.own, 0, 0, 0, alive)
    else:
        back = wide * max(one.share for one in cut(states.tensors, states.ranks)) if returns_wide else 0
        yield moment("step", held._replace(staged=0), states.updates, 0, back, 0, alive)


def _of_stage_3(
    precision: str, buffers: Buffers, states: States, held: ResidentStates, kept: int, alive: Activity, listed: int
) -> Iterator[Moment]:
    """Group by group; `kept` is what stays gathered."""
    size, wide = states.size, states.wide
    grads, bucket = start(states, 3, buffers, False)
    if states.updates:  # Muon's matrices are gathered whole
        yield moment("step", held._replace(staged=0), grads, bucket, states.updates, kept, alive)
    if states.on_gpu:
        most, joined = flattened(states.cut_up, states.among, buffers.sub_group, states.split)
        copies = max(size * joined + wide * joined, wide * most) if size != wide else wide * joined
        yield moment("step", held, grads + copies, bucket, 0, kept, alive)
        norm = NORM * -(-states.cut_up.largest // states.among)
        yield moment("step", held, grads, bucket, norm, kept, alive)
        if listed:
            flat = wide * (most if size != wide else joined)
            yield moment("step", held, grads + flat, bucket, listed * most, kept, alive)
    else:
        yield moment("step", held, grads, bucket, 0, kept, alive)
    if precision == "fp16":  # `isinf` of all gradients makes their absolute values
        yield moment("step", held, grads, bucket, grads, kept, alive)


def making_states(
    stage: int, buffers: Buffers, states: States, both: Together, held: ResidentStates
) -> Iterator[Moment]:
    """The first step of a partitioned optimizer on the GPU, when it makes its states: the gradients are flat by then.

    Args:
        stage: 1 to 3.
        buffers, states, both, held: As for `stepped`.
    """
    asked = both.active.asked
    alive = NOTHING._replace(activations=asked, temporaries=asked)
    if stage < 3:
        yield moment("step", held, (states.wide + states.listed) * states.own, 0, 0, 0, alive)
        return
    grads, bucket = start(states, 3, buffers, False)
    most = flattened(states.cut_up, states.among, buffers.sub_group, states.split)[0]
    yield moment("step", held, grads + states.wide * most, bucket, states.listed * most, both.packed, alive)
