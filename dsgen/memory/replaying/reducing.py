"""The requests of DeepSpeed for gradients and optimizer at stages 0 to 2, in the order of its code.

Followed from DeepSpeed 0.19.8: runtime/zero/stage_1_and_2.py (reduce_independent_p_g_buckets_and_remove_grads,
average_tensor, copy_grads_in_partition, step), runtime/fp16/fused_optimizer.py, runtime/engine.py.
"""

from typing import NamedTuple

from dsgen.memory.backward import beside
from dsgen.memory.buckets import FLAT_CHUNK, Order, pieces
from dsgen.memory.cuts import cut, reaches, widest_of
from dsgen.memory.replaying.requests import Handle, Requests
from dsgen.memory.shares import NORM
from dsgen.memory.states import FP32, FUSED, States
from dsgen.strategies.buffers import MOMENTS, Buffers

__all__ = ["Reducing"]

_REDUCES = 1  # the stream on which buckets are reduced with overlap_comm


class _Arrived(NamedTuple):
    """A gradient in the bucket: which tensor, its elements, and where it is if it waits where it was made."""

    tensor: int
    numel: int
    handle: Handle


class Reducing:
    """Gradients and optimizer of one rank.

    Args:
        requests: Where it asks.
        states: Its states.
        stage: 0, 1 or 2.
        buffers: Those that the stage has.
        passes: Forward passes of a step.
        order: The tensors in the order in which backward makes their gradients.
        optimizer: Its name.
        alone: No other rank has the same.
        early: Buckets are made before backward begins.
    """

    def __init__(
        self,
        requests: Requests,
        states: States,
        stage: int,
        buffers: Buffers,
        passes: int,
        order: Order,
        optimizer: str,
        alone: bool,
        early: bool,
    ) -> None:
        self.requests, self.states, self.stage, self.buffers = requests, states, stage, buffers
        self.order, self.optimizer, self.alone, self.early = order, optimizer, alone, early
        self.walked = beside(stage, buffers, passes > 1)
        self.place = self.filled = 0
        self.buckets: list[Handle] = []
        self.bucket: list[_Arrived] = []
        self.where: dict[int, Handle] = {}  # tensor -> its gradient that stays until the step
        self.own: list[Handle] = []  # this rank's own of this pass
        self.summed: list[Handle] = []  # and of the passes before
        self.stepped = False
        self.gathering = None  # below stage 3 no weight is gathered

    def begin(self, _: bool) -> None:
        """A pass begins."""
        self.place = 0

    def turn(self) -> None:
        """Backward begins, before which older releases make the buckets."""
        if self.early:
            self._make_buckets()

    def _make_buckets(self) -> None:
        if self.stage and self.buffers.contiguous and not self.buckets:
            count = 2 if self.buffers.overlap_comm else 1
            self.buckets = self.requests.together([self.states.size * self.buffers.reduce_bucket] * count)

    def take(self, gradient: Handle, size: int) -> None:
        """Take a weight's gradient."""
        states = self.states
        tensor, _ = self.order[self.place] if self.place < len(self.order) else (-1, 0)
        self.place += 1
        self._make_buckets()
        if self.walked:
            self._arrive(tensor, states.tensors.numels[tensor], gradient)
        elif tensor in self.where:
            self.requests.give(gradient)  # it is added to that of the passes before
        else:
            self.where[tensor] = gradient

    def end(self, last: bool) -> None:
        """A pass has ended, the last one of its step or not."""
        requests, states = self.requests, self.states
        if not self.stage:
            self._reduce_whole(last)
            return
        if self.walked:
            self._flush()
        elif last:
            for tensor in sorted(self.where):
                self._arrive(tensor, states.tensors.numels[tensor], self.where.pop(tensor))
            self._flush()
        if self.summed:
            requests.give(*self.own)
        else:
            self.summed = self.own
        self.own = []
        if last or self.stage > 1:
            requests.give(*self.buckets)
            self.buckets = []

    def step(self) -> None:
        """The optimizer steps."""
        if not self.stage:
            self._step_whole()
        elif self.states.on_gpu:
            self._step_groups()
        self.requests.give(*self.where.values(), *self.summed)
        self.where, self.summed, self.stepped = {}, [], True

    def _arrive(self, tensor: int, numel: int, gradient: Handle) -> None:
        """A gradient enters the bucket, where there is room; one that is larger waits outside."""
        if self.filled + numel > self.buffers.reduce_bucket:
            self._flush()
        if numel > self.buffers.reduce_bucket or not self.buffers.contiguous:
            if numel > self.buffers.reduce_bucket and not self.states.on_gpu:  # it is cloned
                clone = self.requests.take(self.states.size * numel)
                self.requests.give(gradient)
                gradient = clone
        else:
            self.requests.give(gradient)
            gradient = 0
        self.bucket.append(_Arrived(tensor, numel, gradient))
        self.filled += numel

    def _flush(self) -> None:
        """What is in the bucket is reduced, piece by piece of the ranks' shares; this rank keeps its own."""
        if not self.bucket:
            return
        requests, states, stream = self.requests, self.states, _REDUCES if self.buffers.overlap_comm else 0
        for size in self._copies():
            requests.borrow(states.size * size, stream)
        for tensor, numel, gradient in self.bucket:
            mine = reaches(states.tensors, states.ranks, tensor)
            if mine and states.on_gpu and self.buffers.contiguous and not self.own:
                self.own = [requests.take(states.size * states.kept, stream)]
            elif mine and not states.on_gpu:  # its norm is taken, and it leaves in fp32
                piece = min(numel, states.own)
                requests.borrow(NORM * piece, stream)
                requests.borrow(FP32 * piece, stream)
            if gradient and self._stays(mine):
                self.where[tensor] = gradient
            else:
                requests.give(gradient)
        self.bucket, self.filled = [], 0

    def _stays(self, mine: bool) -> bool:
        """Whether a gradient stays where it was made until the step, `mine` or another rank's."""
        if self.buffers.contiguous:
            return self.stage == 1 and self.walked and not mine
        return self.stage == 1 or mine

    def _copies(self) -> list[int]:
        """Elements of the flat copies that are reduced: none where it is one piece."""
        tensors, ranks = self.states.tensors, self.states.ranks
        groups = cut(tensors, ranks)
        among: set[int] = set()
        calls: list[tuple[int, int]] = []
        for tensor, numel, _ in self.bucket:
            group = next(one for one in reversed(groups) if one.first <= tensor)
            end = tensors.ends[tensor] - group.begin
            among |= {(end - numel) // group.share, (end - 1) // group.share}
            calls = pieces(end - numel, end, group.share, self.buffers.reduce_bucket)
        if not self.buffers.contiguous:
            return [self.filled] if len(self.bucket) > 1 else []
        if self.filled > self.buffers.reduce_bucket:
            return [elements for elements, count in calls if count > 1]
        return [self.filled] if len(among) > 1 else []

    def _reduce_whole(self, last: bool) -> None:
        """Stage 0 reduces all gradients behind the last pass, in flat copies."""
        if not last or self.alone:
            return
        filled = count = 0
        for numel in self.states.tensors.numels:
            filled, count = filled + numel, count + 1
            if filled > FLAT_CHUNK:
                self.requests.borrow(self.states.size * filled if count > 1 else 0)
                filled = count = 0
        self.requests.borrow(self.states.size * filled if count > 1 else 0)

    def _step_whole(self) -> None:
        """Stage 0: fp32 gradients one by one, then flat; its states are there since initialize."""
        requests, states = self.requests, self.states
        if states.size == FP32:
            self._make_states(states.moments)
            requests.give(*requests.together([states.listed * numel for numel in states.tensors.numels]))
            return
        wide = requests.together([FP32 * numel for numel in states.tensors.numels])
        if self.optimizer in FUSED and not states.listed:
            requests.borrow(FP32 * states.own)
        requests.give(*requests.together([states.listed * numel for numel in states.tensors.numels]))
        requests.give(*wide, *self.where.values())
        self.where = {}

    def _step_groups(self) -> None:
        """Stages 1 and 2, group by group."""
        requests, states = self.requests, self.states
        requests.borrow(NORM * widest_of(states.tensors, states.ranks))
        groups = cut(states.tensors, states.ranks)
        for one in groups:
            flat = requests.take(states.size * one.share if one.tensors > 1 else 0)
            stepped = [flat]
            if states.size != states.wide:
                stepped = [requests.take(states.wide * one.share)]
                requests.give(flat)
            if one is groups[-1] and (flat or states.size != states.wide):  # what they were copied from goes
                requests.give(*self.summed)
                self.summed = []
            self._make_states(states.moments * one.share // states.own if states.own else 0)
            requests.borrow(states.listed * one.share)
            requests.give(*stepped)

    def _make_states(self, size: int) -> None:
        """The optimizer's states of a group come with the first step."""
        count = MOMENTS[self.optimizer]
        if not self.stepped and count:
            self.requests.together([size // count] * count)
