"""The all-gathers of parameters that stage 3 calls: how many of which size, in forward and in backward."""

import functools
from collections import Counter
from typing import NamedTuple

from dsgen.memory.activations import FORWARD
from dsgen.memory.events import Step, events
from dsgen.memory.gathered import uses_of, walked, walked_later
from dsgen.memory.runs import Run
from dsgen.strategies.buffers import Buffers

__all__ = ["Gather", "Gathers", "Rows", "gathers", "persistent_tensors"]


class Gather(NamedTuple):
    """One all-gather.

    Attributes:
        elements: What it makes, in elements of a weight.
        tensors: How many tensors that is.
        second: It takes them from the second shares that hpZ has made, among the ranks that have these.
    """

    elements: int
    tensors: int
    second: bool


Rows = tuple[tuple[Gather, int], ...]  # one of a kind, and how often


class Gathers(NamedTuple):
    """The all-gathers of one micro-batch, from the second step on.

    Attributes:
        forward: In forward.
        backward: In backward, and in the forward that checkpointing repeats.
    """

    forward: Rows
    backward: Rows

    @property
    def elements(self) -> tuple[int, int]:
        """Elements of a weight gathered in forward, and in backward."""
        forward, backward = (sum([one.elements * calls for one, calls in rows]) for rows in self)
        return forward, backward

    @property
    def several(self) -> int:
        """Elements of a weight that come several tensors in a call."""
        return sum([one.elements * calls for rows in self for one, calls in rows if one.tensors > 1])


def gathers(run: Run, buffers: Buffers, copying: bool = False, several: bool = False) -> Gathers:
    """What a micro-batch of a pass gathers.

    Args:
        run: What runs.
        buffers: The coordinator's limits.
        copying: hpZ makes its second shares in it.
        several: A step has several micro-batches, so that the coordinator learnt in one behind another what to release.
    """
    limits = buffers.persistence, buffers.prefetch, buffers.max_live, buffers.max_reuse
    return _gathers(run.step(), limits, copying, several)


@functools.lru_cache(maxsize=256)
def _gathers(step: Step, limits: tuple[int, int, int, int], copying: bool, several: bool) -> Gathers:
    """Tensors of one call are gathered apart where their types differ: adapters in fp32, and what is in 16 bits
    (partition_parameters.py, _all_gather_coalesced)."""
    steps, uses = events(step), uses_of(step, limits[0], False)
    extents, order, frozen, wide = uses.extents, uses.order, uses.frozen, step.wide
    walk = walked_later(step, limits) if several else walked(step, limits, False, False, copying)
    forward: dict[tuple[int, int, bool], int] = {}
    backward: dict[tuple[int, int, bool], int] = {}
    for event, called, second in walk.gathers:
        calls = forward if steps[event].way == FORWARD else backward
        parts = [called]
        if len(called) == 1:
            named = extents[called[0]], 1, second
            calls[named] = calls.get(named, 0) + 1
            continue
        if wide:
            adapters = [use for use in called if order[use] not in frozen]
            if 0 < len(adapters) < len(called):
                parts = [adapters, [use for use in called if order[use] in frozen]]
        for part in parts:
            named = sum([extents[use] for use in part]), len(part), second
            calls[named] = calls.get(named, 0) + 1
    ahead, behind = (tuple((Gather(*one), often) for one, often in rows.items()) for rows in (forward, backward))
    return Gathers(ahead, behind)


def persistent_tensors(run: Run, persistence: int) -> tuple[tuple[int, int], ...]:
    """Tensors that every rank keeps whole, and gathers after the step, each by itself: (elements of a weight, calls).

    Frozen ones are among them (stage3.py, _post_step).
    """
    return _persistent(run.step(), persistence)


@functools.lru_cache(maxsize=256)
def _persistent(step: Step, persistence: int) -> tuple[tuple[int, int], ...]:
    sizes = {
        held.place: held.extent(step.wide)
        for _, part in step.modules.parts
        for module in part
        for held in module.tensors
        if held.numel <= persistence
    }
    return tuple(Counter(sizes.values()).items())
