"""The requests of DeepSpeed for gathered parameters, gradients and optimizer at stage 3, in the order of its code.

Followed from runtime/zero/stage3.py of DeepSpeed 0.19.8 (__add_grad_to_ipg_bucket, __avg_scatter_grads,
partition_grads, step) and runtime/comm/coalesced_collectives.py.
"""

from typing import NamedTuple

from dsgen.memory.backward import NORM_CHUNK
from dsgen.memory.buckets import Order
from dsgen.memory.events import Step
from dsgen.memory.gathered import uses_of, walked, walked_later
from dsgen.memory.replaying.gathering import Gathering
from dsgen.memory.replaying.requests import Handle, Requests
from dsgen.memory.shares import NORM, sub_groups
from dsgen.memory.states import States
from dsgen.strategies.buffers import MOMENTS, Buffers

__all__ = ["Scattering"]

_GATHERS, _REDUCES = 1, 2  # the streams of all-gathers and of reduce-scatters with overlap_comm


class _Scattered(NamedTuple):
    """A gradient in the bucket: which tensor, and where it is if it waits where it was made."""

    tensor: int
    handle: Handle


class Scattering:
    """Parameters, gradients and optimizer of one rank.

    Args:
        requests: Where it asks.
        states: Its states.
        buffers: Those of the layout.
        passes: Forward passes of a step.
        order: The tensors in the order in which backward makes their gradients.
        step: What the order of use depends on.
        reads: A single rank reads its parameters where they are.
        optimizer: Its name.
    """

    def __init__(
        self,
        requests: Requests,
        states: States,
        buffers: Buffers,
        passes: int,
        order: Order,
        step: Step,
        reads: bool,
        optimizer: str,
    ) -> None:
        self.requests, self.states, self.buffers, self.order = requests, states, buffers, order
        self.several, self.usage, self.optimizer = passes > 1, step, optimizer
        self.size = 0 if reads else states.size
        self.gathering: Gathering | None = None
        self.place = self.filled = 0
        self.bucket: list[_Scattered] = []
        self.begun, self.stepped, self.last = 0, False, False
        self.left: dict[int, Handle] = {}  # of tensors that wait gathered for the next pass

    def begin(self, last: bool) -> None:
        """A pass begins; the first of all records the order of use, and fetches nothing ahead."""
        buffers, usage, alone = self.buffers, self.usage, self.states.among == 1
        limits = buffers.persistence, buffers.prefetch, buffers.max_live, buffers.max_reuse
        anew = self.several and self.begun == 1 and not alone  # what persists is gathered once more
        # Before the first step nothing persists yet: stage 3 has cut all of it, and gathers it with the others.
        persists = buffers.persistence if self.begun or alone else 0
        behind = bool(self.left)
        if not self.begun:
            walk = walked(usage, (persists, 0, 0, 0), alone, behind=behind)
        elif self.several and not alone and not anew:
            walk = walked_later(usage, limits, behind)
        else:
            walk = walked(usage, limits, alone, anew, behind=behind)
        stream, uses = _GATHERS if buffers.overlap_comm else 0, uses_of(usage, persists, anew)
        self.gathering = Gathering(self.requests, stream, usage, uses, walk, self.size, not self.begun, self.left)
        self.begun, self.place, self.last = self.begun + 1, 0, last

    def turn(self) -> None:
        """Backward begins; the bucket is there already."""

    def take(self, gradient: Handle, size: int) -> None:
        """Take a weight's gradient; one larger than the bucket waits outside."""
        tensor, _ = self.order[self.place] if self.place < len(self.order) else (-1, 0)
        self.place += 1
        numel, bucket = self.states.tensors.numels[tensor], self.buffers.reduce_bucket
        if self.filled + numel > bucket:
            self._flush()
        if self.buffers.contiguous and numel <= bucket:
            self.requests.give(gradient)
            gradient = 0
        self.bucket.append(_Scattered(tensor, gradient))
        self.filled += numel

    def end(self, last: bool) -> None:
        """A pass has ended, the last one of its step or not."""
        self._flush()
        if self.gathering is not None:
            self.left = self.gathering.end(last)

    def step(self) -> None:
        """The optimizer steps, sub-group by sub-group."""
        requests, states = self.requests, self.states
        if states.on_gpu:
            for numel in states.cut_up.numels:
                requests.borrow(NORM * -(-numel // states.among))
            for group in sub_groups(states.cut_up, states.among, self.buffers.sub_group, states.split):
                share = sum(-(-states.cut_up.numels[index] // states.among) for index in group)
                stepped = requests.take(states.size * share if len(group) > 1 else 0)
                if states.size != states.wide:
                    wide = requests.take(states.wide * share)
                    requests.give(stepped)
                    stepped = wide
                count = MOMENTS[self.optimizer]
                if not self.stepped and count:
                    requests.together([states.moments * share // states.own // count] * count)
                requests.borrow(states.listed * share)
                requests.give(stepped)
        self.stepped = True

    def _flush(self) -> None:
        """What is in the bucket is cut among the ranks, and this rank's shares go where they wait for the step."""
        if not self.bucket:
            return
        requests, states, stream = self.requests, self.states, _REDUCES if self.buffers.overlap_comm else 0
        bucket = sorted(self.bucket)
        shares = [-(-states.tensors.numels[tensor] // states.among) for tensor, _ in bucket]
        padded = sum(shares) * states.among
        copy = 0 if len(bucket) == 1 and padded == self.filled else requests.take(states.size * padded, stream)
        before: Handle = 0
        for (_, gradient), share in zip(bucket, shares, strict=True):
            if not states.on_gpu:  # it comes back from where it waits, for its norm and to leave in fp32
                moved = requests.take(states.size * share, stream)
                requests.give(before)
                before = moved
                if self.last:
                    requests.borrow(NORM * min(share, NORM_CHUNK), stream)
                    requests.borrow(states.wide * share if states.size != states.wide else 0, stream)
            requests.give(gradient)
        requests.give(before, copy)
        self.bucket, self.filled = [], 0
