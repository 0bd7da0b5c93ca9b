"""The named parts of a strategy's memory at every moment that can be its highest, its micro-batch left open."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import attrs

from dsgen.buffers import Buffers
from dsgen.jobs import Job
from dsgen.memory.activations import Activations, activations
from dsgen.memory.activations import Moment as Activity
from dsgen.memory.backward import Load, buckets, epilogue, reductions, start
from dsgen.memory.buckets import arrivals
from dsgen.memory.gathered import Gathered, gathered
from dsgen.memory.hosts import Host, host
from dsgen.memory.states import FP32, States, states
from dsgen.memory.trained import AFTER, BEFORE

__all__ = ["Moment", "Parts", "parts"]

Part = tuple[int, int]  # bytes, and bytes per sequence of the micro-batch
FUSED = ("AdamW", "Adam")  # at stage 0 their wrapper also flattens the fp32 gradients (fp16/fused_optimizer.py)


@attrs.frozen(eq=False)
class Moment:
    """One moment on one GPU.

    Attributes:
        phase: load, init, forward, backward or step.
        parts: Part -> (bytes, bytes per sequence of the micro-batch).
    """

    phase: str
    parts: dict[str, Part]

    def total(self, micro_batch: int) -> int:
        """Bytes of all parts."""
        found = 0
        for fixed, each in self.parts.values():
            found += fixed + each * micro_batch
        return found


@attrs.frozen(eq=False)
class Parts:
    """One strategy, its micro-batch left open.

    Attributes:
        moments: Those that can be the highest of their phase.
        host: What the ranks of one node hold in its RAM and on its drives.
    """

    moments: tuple[Moment, ...]
    host: Host


def parts(job: Job, layout: Any, buffers: Buffers, accumulates: bool) -> Parts:
    """Every part of a layout's memory.

    Args:
        job: The job.
        layout: Anything with stage, offload_optimizer, offload_param, tp, checkpointing and precision.
        buffers: Element counts of the communication buffers.
        accumulates: Whether a step has more than one forward pass.
    """
    found = states(job, layout, buffers)
    training = job.training
    active = activations(
        job.model,
        precision=layout.precision,
        attention=training.attention,
        seq_len=job.seq_len,
        tp=layout.tp,
        method=training.method,
        checkpointing=layout.checkpointing,
        chunked_loss=training.chunked_loss,
        lora_rank=training.lora_rank,
        lora_targets=training.lora_targets,
        zero3=layout.stage == 3,
    )
    live = None
    if layout.stage == 3:
        rest = (training.method, training.lora_rank, training.lora_targets, layout.tp)
        live = gathered(job.model, *rest, buffers, layout.checkpointing)
    moments = tuple(_Moments(job, layout, buffers, found, active, accumulates, live).all())
    return Parts(moments, host(job, layout, buffers, found, accumulates))


@attrs.frozen
class _Moments:
    job: Job
    layout: Any
    buffers: Buffers
    found: States
    active: Activations
    accumulates: bool
    gathered: Gathered | None

    def all(self) -> Iterator[Moment]:
        yield from self.before_training()
        yield from self.forward()
        yield from self.backward()
        yield from self.step()

    def held(self) -> dict[str, Part]:
        """What is on the GPU at every moment of training."""
        found, offloaded = self.found, not self.found.on_gpu
        weights = 0 if self.layout.offload_param != "none" else found.weights
        held = {
            "weights": (weights, 0),
            "fp32 master weights": (0 if offloaded else found.master, 0),
            "optimizer states": (0 if offloaded else found.moments, 0),
        }
        if offloaded and self.layout.stage in (1, 2):
            held["offload buffers"] = (found.size * _largest(found), 0)
        return held if self.gathered is None else {**held, **self._gathers(0)}

    def before_training(self) -> Iterator[Moment]:
        """Load: stage 3 makes each tensor whole before it cuts it. Init: flat copies, and the states' first values."""
        found, held, stage = self.found, self.held(), self.layout.stage
        whole = (found.size * found.numbers.largest, 0)
        if stage == 3:
            yield Moment("load", {"weights": held["weights"], "temporaries": whole})
            grads, bucket = start(found, stage, self.buffers, self.accumulates)
            yield Moment(
                "init",
                {
                    "weights": held["weights"],
                    "fp32 master weights": held["fp32 master weights"],
                    "gradients": (grads, 0),
                    "communication buckets": (bucket, 0),
                    "temporaries": whole,
                },
            )
            return
        # The flat copy is made beside the weights where it has room, else in the node's RAM (stage_1_and_2.py).
        if found.widened:  # a 4-bit base is loaded on the GPU; what is not in 4 bits becomes 16-bit again, one by one
            more = found.widened + found.size * found.numbers.largest
            yield Moment("load", {"weights": (held["weights"][0] + found.widened, 0)})
            yield Moment("init", {"weights": (held["weights"][0] + more, 0)})
        flat = found.size * found.tensors.elements
        beside = held["weights"][0] + flat <= self.job.hardware.usable_memory_bytes or not stage
        yield Moment("init", {"weights": held["weights"], "temporaries": (flat if beside else 0, 0)})
        first = FP32 * found.own if found.on_gpu and found.master else 0
        yield Moment(
            "init",
            {
                "weights": held["weights"],
                "fp32 master weights": held["fp32 master weights"],
                "optimizer states": held["optimizer states"] if stage == 0 and found.master else (0, 0),
                "temporaries": (first, 0),
            },
        )

    def training(self) -> dict[str, Part]:
        """What is on the GPU in forward and backward besides activations, gradients and buckets."""
        held = self.held()
        return held if self.gathered is None else {**held, **self._gathers(self.gathered.turn)}

    def live(self, block: int, index: int = -1) -> dict[str, Part]:
        """At stage 3, what is gathered in backward of a block, or of one of its tensors."""
        if self.gathered is None:
            return {}
        elements = self.gathered.at(block)
        if index >= 0 and self.job.training.method == "full":
            elements = self.gathered.uses.get(index, elements)
        return self._gathers(elements)

    def _gathers(self, elements: int) -> dict[str, Part]:
        """Gathered parameters; a single rank reads them where they are, unless they wait in the node's RAM."""
        if self.found.ranks == 1 and self.layout.offload_param == "none":
            return {"gathered parameters": (0, 0)}
        size = self.found.size * (elements + self.found.numbers.persistent) + self.found.packed
        return {"gathered parameters": (size, 0)}

    def forward(self) -> Iterator[Moment]:
        grads, bucket = start(self.found, self.layout.stage, self.buffers, self.accumulates)
        base = {
            **self.training(),
            "gradients": (grads, 0),
            "communication buckets": (bucket, 0),
            "inputs": self.active.inputs,
        }
        running = {}
        if self.gathered is not None:
            running = self._gathers(self.gathered.forward)
        for moment in self.active.forward:
            live = running if moment.where == "block" else {}
            yield Moment("forward", {**base, **live, "gradients": (grads + moment.fresh, 0), **_alive(moment)})

    def backward(self) -> Iterator[Moment]:
        found, stage, buffers = self.found, self.layout.stage, self.buffers
        training = {**self.training(), "inputs": self.active.inputs}
        grads, bucket = start(found, stage, buffers, self.accumulates)
        walked = stage >= 2 or (stage == 1 and buffers.overlap_comm and not self.accumulates)
        grows = not walked and not self.accumulates
        full = buckets(found, stage, buffers)
        last = self.job.model.layers - 1
        for moment in self.active.backward:
            block = AFTER if moment.where == "loss" else BEFORE if moment.where == "embedding" else last - moment.blocks
            gradients = grads + moment.fresh + (moment.gradients if grows else 0)
            parts = {
                **training,
                **self.live(block),
                "gradients": (gradients, 0),
                "communication buckets": (full if moment.gradients or moment.blocks else bucket, 0),
                **_alive(moment),
            }
            yield Moment("backward", parts)
        order = arrivals(found.tensors, _runs(self.active, found.size))
        for load in reductions(found, stage, buffers, self.accumulates, order):
            yield self._loaded(load, training)
        for load in epilogue(found, stage, buffers):
            yield self._loaded(load, training)

    def _loaded(self, load: Load, training: dict[str, Part]) -> Moment:
        fresh, alive = self._arrived(load)
        parts = {
            **training,
            **self.live(load.block, load.index),
            "gradients": (load.gradients + fresh, 0),
            "communication buckets": (load.buckets, 0),
            **alive,
        }
        fixed, each = parts.get("temporaries", (0, 0))
        return Moment("backward", {**parts, "temporaries": (fixed + load.temporaries, each)})

    def _arrived(self, load: Load) -> tuple[int, dict[str, Part]]:
        """Bytes of fresh gradients, and activations, when a gradient is made that does not fit into the bucket."""
        active = self.active
        if load.block == BEFORE:
            return (self.found.size * self.found.tensors.numels[0] if load.place >= 0 else 0), {}
        fixed, each = active.tables if load.block != AFTER else active.outside
        number, found = load.block, None
        for run in active.blocks:
            here = min(max(number, 0), run.count) if load.block != AFTER else run.count
            fixed, each = fixed + here * run.kept[0], each + here * run.kept[1]
            if 0 <= number < run.count:
                found = run
                break
            number -= run.count
        if found is None or load.place >= len(found.arrivals):
            return self.found.size * self.found.tensors.head, {"activations": (fixed, each)}
        moment = found.arrivals[load.place]
        alive = _alive(moment)
        own = alive["activations"]
        return moment.fresh, {**alive, "activations": (fixed + own[0], each + own[1])}

    def step(self) -> Iterator[Moment]:
        found, stage, size = self.found, self.layout.stage, self.found.size
        held = self.held()
        whole = size * found.tensors.elements
        if stage == 0:
            copies = 0
            if size != FP32:
                copies = FP32 * found.own * (2 if self.job.training.optimizer in FUSED else 1)
            yield Moment("step", {**held, "gradients": (whole + copies, 0)})
        elif stage == 3:
            group = min(found.own, self.buffers.sub_group)
            grads, bucket = start(found, stage, self.buffers, self.accumulates)
            copies = (FP32 + (size if size != FP32 else 0)) * group if found.on_gpu else 0
            held["communication buckets"] = (bucket, 0)
            yield Moment("step", {**held, "gradients": (grads + copies, 0)})
            if self.layout.precision == "fp16":  # `isinf` of all gradients makes their absolute values
                yield Moment("step", {**held, "gradients": (grads, 0), "temporaries": (grads, 0)})
        elif found.on_gpu:
            kept = {"gradients": (size * found.kept, 0)}
            pieces = found.tensors.prefix(found.own)
            widest = min(max(found.tensors.numels[:pieces], default=0), found.own)
            yield Moment("step", {**held, **kept, "temporaries": (8 * widest, 0)})
            flat = (size * found.own if pieces > 1 else 0) + (FP32 * found.own if size != FP32 else 0)
            yield Moment("step", {**held, **kept, "temporaries": (flat, 0)})
        else:
            yield Moment("step", held)


def _alive(moment: Activity) -> dict[str, Part]:
    return {
        "activations": moment.activations,
        "logits and loss": moment.logits,
        "temporaries": moment.temporaries,
    }


def _runs(active: Activations, size: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """For every run of equal blocks how many, and elements of one's gradients as they are made."""
    runs = []
    for run in active.blocks:
        ends = [*(moment.gradients for moment in run.arrivals), run.gradients]
        runs.append((run.count, tuple((end - begin) // size for begin, end in itertools.pairwise(ends))))
    return tuple(runs)


def _largest(found: States) -> int:
    return max(found.tensors.numels, default=0)
