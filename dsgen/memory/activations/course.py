"""The moments of a model's stretches in the course of a whole run: each beside what the others hold by then."""

from __future__ import annotations

from collections.abc import Sequence

from dsgen.families.tape.moments import BACKWARD, Activity, Size, front
from dsgen.memory.activations.recording import Recording

__all__ = ["NOTHING", "backward", "first", "forward", "plus"]

NOTHING: Size = (0, 0)
# A tensor is on its way to RAM until so many more were kept (dsgen/engine/simulate/activation_offloading.py).
STASH = 5


def forward(
    before: list[Activity],
    runs: list[tuple[str, int, Recording]],
    last: Recording,
    rest: Size,
    read: Size,
    referred: Size,
    beside: Sequence[Size] = (),
    under_way: Size = NOTHING,
) -> tuple[Activity, ...]:
    """The highest moments of forward: in the embedding, in the first and last block of every run, in the loss.

    `beside` is what else is alive while each run passes, and until the logits are made; `under_way` the input of a
    block that is still on its way to RAM.
    """
    moments = [moment._replace(where="embedding") for moment in before]
    below, done = rest, 0
    for place, (_, count, stretch) in enumerate(runs):
        for index in sorted({0, count - 1}):
            base = plus(below, stretch.kept, index)
            base = plus(base, referred) if done + index else base
            base = plus(base, beside[place]) if beside else base
            base = plus(base, under_way, min(done + index, STASH - 1))
            moments += [_placed(moment, "block", base, 0, done + index) for moment in stretch.forward]
        below = plus(below, stretch.kept, count)
        done += count
    for moment in last.forward:  # the model's own forward has ended when the head runs
        base = plus(below, referred) if moment.logits == NOTHING else plus(below, read, -1)
        base = plus(base, beside[-1]) if beside and moment.logits == NOTHING else base
        moments.append(_placed(moment, "loss", base, 0, done))
    return front(moments)


def backward(
    last: Recording,
    runs: list[tuple[str, int, Recording]],
    below: Size,
    ends: list[Activity],
    waiting: int,
    head: int,
    shrinks: bool = False,
    end: Recording | None = None,
) -> tuple[Activity, ...]:
    """The highest moments of backward: in the loss, in the first and last block of every run, in the embedding.

    `head` is the bytes of the head's gradient where it is the last one until a block makes one; `shrinks` is as for
    `front`; `end` is the last block, where that is another in backward.
    """
    moments = [_placed(moment, "loss", below, 0, 0) for moment in last.backward]
    made, done = last.gradients, 0
    for place in range(len(runs) - 1, -1, -1):
        _, count, stretch = runs[place]
        for index in sorted({0, count - 1}):
            base = plus(below, stretch.kept, -index - 1)
            before = made + index * stretch.gradients
            run = stretch if end is None or done + index else end
            placed = [_placed(moment, "block", base, before, done + index) for moment in run.backward]
            if head and not done + index:
                placed = [one._replace(last=head) if one.gradients == before else one for one in placed]
            moments += placed
        below = plus(below, stretch.kept, -count)
        made += count * stretch.gradients
        done += count
    moments += [_placed(moment._replace(way=BACKWARD), "embedding", NOTHING, made, done) for moment in ends]
    return front([_waiting(moment, waiting) for moment in moments], shrinks)


def first(last: Recording, block: Recording, below: Size, waiting: int) -> Activity:
    """The moment of the first gradient: in the head if anything is trained there that does not wait, or a block."""
    after = last.arrivals[1:] if waiting else last.arrivals
    if after:
        return _waiting(_placed(after[0], "loss", below, 0, 0), waiting)
    return _waiting(_placed(block.arrivals[0], "block", plus(below, block.kept, -1), last.gradients, 0), waiting)


def _waiting(moment: Activity, waiting: int) -> Activity:
    """A moment when the first bytes of gradients handed over wait for others first."""
    if not waiting or moment.gradients < waiting:
        return moment
    last = 0 if moment.last == waiting else moment.last
    return moment._replace(gradients=moment.gradients - waiting, fresh=moment.fresh + waiting, last=last)


def _placed(moment: Activity, where: str, below: Size, gradients: int, blocks: int) -> Activity:
    """A moment of a stretch as one of the whole run."""
    return moment._replace(
        activations=plus(moment.activations, below),
        gradients=moment.gradients + gradients,
        where=where,
        blocks=blocks,
    )


def plus(one: Size, other: Size, times: int = 1) -> Size:
    """One size and a number of times another."""
    return one[0] + times * other[0], one[1] + times * other[1]
