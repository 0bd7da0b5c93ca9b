"""What autograd keeps of the stretch behind the blocks, where it waits in the node's RAM until backward asks for it.

Followed from TRL's OffloadActivations, as dsgen/engine/simulate/activation_offloading.py has it.
"""

from typing import NamedTuple

from dsgen.families.tape.execution import Execution
from dsgen.families.tape.graph import LOGITS, Storage
from dsgen.families.tape.lifetimes import Record, size
from dsgen.families.tape.moments import Size

__all__ = ["Offloaded", "leaving", "moved"]


class Offloaded(NamedTuple):
    """Equal tensors that a pass copies to RAM.

    Attributes:
        part: What they are a part of.
        size: Of one.
        number: How many there are.
        blocks: They go into the blocks; the others are kept behind them.
        late: Backward begins with what keeps them, and waits until they have left.
        returns: They come back.
    """

    part: str
    size: Size
    number: int
    blocks: bool = True
    late: bool = False
    returns: bool = True


def moved(hidden: Size, on: Execution, head: Record) -> tuple[Offloaded, ...]:
    """What a pass copies to RAM: the input of each block, and what is kept behind them."""
    made = [Offloaded("activations", hidden, on.model.layers)]
    kept = [one for one in dict.fromkeys(head.saves) if one.needed]  # backward reaches
    first = min((one.needed for one in kept), default=0)
    for one in kept:
        part = "logits and loss" if one.kind == LOGITS and not on.chunked else "activations"
        late = one.needed == first
        made.append(Offloaded(part, size([one]), 1, False, late, not (late and on.chunked)))
    return tuple(made)


def leaving(head: Record, chunked: bool) -> Record:
    """The record of a stretch, of which what is kept leaves the GPU, and comes back for the first node that kept it.

    It is there until the first node of backward has ended: that of a chunked loss, or of the likelihood, which has
    nothing of it. What other nodes keep too, while it is on its way, stays for these. What came back stays until the
    next node that asks has ended.
    """
    cleared = min((one.kept for one in head.saves if one.kept), default=0) if chunked else head.asked
    away = [one for one in dict.fromkeys(head.saves) if one.needed >= cleared < one.kept]
    ends = {one.needed: one.kept for one in away}  # of each node that asks for what is away
    back: dict[int, list[Storage]] = {}
    for one in away:
        end = next((ends[place] for place in sorted(ends) if place > one.needed), len(head.steps))
        copy = Storage(one.kind, one.fixed, one.each, end)
        copy.returns = True
        back.setdefault(one.needed, []).append(copy)
        one.kept = max(cleared, one.until)
    places = [place for place, copies in back.items() for _ in copies]

    def later(steps: int) -> int:
        return steps + sum(place < steps for place in places)

    made = [step for place, step in enumerate((*head.steps, None)) for step in (*back.get(place, ()), step)][:-1]
    for steps, step in enumerate(made, 1):
        if isinstance(step, Storage):
            step.last, step.kept, step.again = later(step.last), later(step.kept), later(step.again)
            step.last = max(step.last, steps if step.returns else 0)
    return head._replace(steps=made)
