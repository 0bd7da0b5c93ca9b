"""What the ranks of one node hold in its RAM and on its drives, while a model loads and while it trains."""

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dsgen.allocators.pinned import PinnedMemory
from dsgen.families.parameters import Parameter, parameters
from dsgen.memory.activations import Offloaded
from dsgen.memory.conversions import tied_elements
from dsgen.memory.cuts import cut
from dsgen.memory.loading import Loaded
from dsgen.memory.shares import group_numels
from dsgen.memory.states import FP32, States
from dsgen.memory.trained import Trained, wide_adapters
from dsgen.shapes.profiles import Model, Training

__all__ = ["Host", "Locked", "adapter_bytes", "host"]

PARAM_NVME_BUFFERS = 5  # offload_param.buffer_count, its default: each holds a rank's share of the largest tensor
MAX_IN_CPU = 1_000_000_000  # elements of NVMe parameters kept in RAM (offload_param.max_in_cpu, its default)
COMING = ("load", "init")  # before training: the model is read, then DeepSpeed is initialized


class Locked(NamedTuple):
    """What decides which tensors of a node are page-locked.

    Attributes:
        optimizer: Whether what an optimizer on the CPU needs is.
        shares: Whether the shares of parameters are that wait there, before they are one tensor.
        model: The model; beneath adapters it is frozen.
        adapters: Bytes of an element of adapters before initialize, and of their gradients; 0 where all is trained.
        zero_init: Whether it is made under zero.Init.
        offloaded: What a pass of a rank copies there.
    """

    optimizer: bool
    shares: bool
    model: Model
    adapters: int
    zero_init: bool
    offloaded: tuple[Offloaded, ...] = ()


class Host(NamedTuple):
    """One node.

    Attributes:
        phases: load, init, training, and step where that takes more -> part -> bytes in RAM.
        beyond: Bytes that torch holds beyond the page-locked tensors: it rounds each up to a power of two and keeps
            what was freed, and what hpZ makes in a pass lies there twice while it is page-locked.
        nvme: Part -> bytes on the local drives.
        phase, peak: The one of them that takes most RAM, and its bytes.
        stored: Bytes on the local drives.
        mapped: Bytes of the checkpoint's files in the page cache while the model loads, which the kernel takes back.
        ranks: Of the node.
        offloaded: What a pass of each copies to RAM, in none of the numbers above: it hangs on the micro-batch.
    """

    phases: dict[str, dict[str, int]]
    beyond: int
    nvme: dict[str, int]
    phase: str
    peak: int
    stored: int
    mapped: int
    ranks: int = 1
    offloaded: tuple[Offloaded, ...] = ()

    def passing(self, micro_batch: int) -> dict[str, int]:
        """Part -> bytes in RAM when forward has ended."""
        parts = dict(self.phases["training"])
        for one in self.offloaded:
            size = one.size[0] + one.size[1] * micro_batch
            parts[one.part] = parts.get(one.part, 0) + self.ranks * one.number * size
        return parts

    def kept(self, micro_batch: int) -> int:
        """Bytes that torch's allocator of page-locked memory keeps of what passes have copied there."""
        memory = PinnedMemory()
        for one in self.offloaded:
            memory.allocate(one.size[0] + one.size[1] * micro_batch, one.number)
        return self.ranks * memory.reserved_bytes

    @property
    def stepping(self) -> dict[str, int]:
        """Part -> bytes in RAM while the optimizer steps: most of what training takes."""
        return self.phases[self.stepping_phase]

    @property
    def stepping_phase(self) -> str:
        """The phase when it does."""
        return "step" if "step" in self.phases else "training"


def host(
    ranks: int,
    layout: Any,
    swapped: tuple[int, int, bool],
    states: States,
    accumulates: bool,
    coming: Loaded,
    flat: int,
    back: int,
    locked: Locked,
) -> Host:
    """The host of a layout; all ranks of a node are alike.

    Args:
        ranks: Ranks of one node.
        layout: Anything with stage, offload_optimizer and offload_param.
        swapped: Tensors that NVMe swapping holds, elements of a group that is stepped at once, and whether one is read
            and another written meanwhile.
        states: The states.
        accumulates: Gradients of earlier passes are there.
        coming: What the model takes while it loads.
        back: Bytes that a rank's stepped weights wait in for the GPU, at stages 1 and 2.
        locked: What decides which tensors are page-locked.
        flat: Bytes that a rank has in RAM while its trained weights are made one flat tensor there, and moved back.
    """
    size, own = states.size, states.own
    training: dict[str, int] = {}
    largest = states.tensors.largest
    tensors, elements, pipelined = swapped
    groups: tuple[int, ...] = (own,)
    if layout.stage == 3:  # each group ends with a whole tensor
        groups = group_numels(states.cut_up, states.among, elements, states.split)
    group = max(groups, default=0)
    if layout.offload_optimizer == "cpu":
        training["fp32 master weights"] = ranks * states.master
        training["optimizer states"] = ranks * states.moments
        training["gradients"] = ranks * states.wide * own
        if layout.stage == 3:
            training["gradients"] += ranks * size * own
        else:
            training["offload buffers"] = ranks * (back + size * largest)
            if accumulates and layout.stage == 2 and states.wide == FP32:
                training["gradients"] += ranks * size * states.kept
    elif layout.offload_optimizer == "nvme":
        training["offload buffers"] = ranks * tensors * FP32 * group
        training["gradients"] = ranks * size * own
    if layout.offload_param == "cpu":
        training["weights"] = ranks * (states.weights + (states.secondary.whole if states.secondary else 0))
    elif layout.offload_param == "nvme":
        waiting = ranks * PARAM_NVME_BUFFERS * size * -(-largest // states.ranks)
        training["offload buffers"] = training.get("offload buffers", 0) + waiting
        training["weights"] = ranks * min(states.weights, size * MAX_IN_CPU)
    stored = _nvme(ranks, layout, states)
    loading = {"weights": coming.ram}
    init = {"weights": ranks * flat} if flat else loading
    if layout.stage == 3 and layout.offload_param == "none":
        # A rank's shares of what is trained become one tensor in RAM and go back (zero/utils.py, defragment), when the
        # model that was read has left.
        init = {"weights": max(coming.ram, ranks * (locked.adapters or size) * own)}
    phases = {"load": loading, "init": init, "training": training}
    meanwhile: dict[str, int] = {}
    if layout.stage == 3 and layout.offload_optimizer != "none" and layout.offload_param == "none" and size < FP32:
        # torch casts a group into a tensor of its own before it goes to the GPU (stage3.py,
        # _reassign_or_swap_out_partitioned_parameters; aten/src/ATen/native/cuda/Copy.cu, copy_kernel_cuda).
        meanwhile["temporaries"] = ranks * size * group
    if layout.offload_optimizer == "nvme":
        # The first step makes a group's beside the buffers; of a pipeline each stays until the second reads it
        # (pipelined_optimizer_swapper.py, _complete_swap_out).
        meanwhile["optimizer states"] = ranks * (states.moments if pipelined else states.moments * group // own)
    if meanwhile:
        phases["step"] = {**training, **meanwhile}
    sizes = {name: sum(parts.values()) for name, parts in phases.items()}
    phase = max(phases, key=lambda name: sizes[name])  # the first of equals
    away = _of_optimizer(layout, states, accumulates, back, tensors, groups, locked.adapters)
    beyond = _beyond(
        _shares(layout, states, locked),
        _of_parameters(layout, states, locked),
        away if locked.optimizer else (),
    )
    beyond = ranks * (beyond + _twice(layout, states))
    there = phase, sizes[phase], sum(stored.values()), coming.mapped, ranks, locked.offloaded
    return Host(phases, beyond, stored, *there)


def adapter_bytes(training: Training, size: int) -> int:
    """Bytes of an element of adapters at stage 3, where a weight has `size`; 0 where all weights are trained."""
    if training.method == "full":
        return 0
    return FP32 if wide_adapters(training) else size


def _of_optimizer(
    layout: Any, states: States, accumulates: bool, back: int, tensors: int, groups: Sequence[int], adapters: int
) -> Iterator[int]:
    """Bytes of each page-locked tensor of a rank that an optimizer away from the GPU needs.

    Below stage 3 its master weights and their gradients, what both wait in on their way, and each gradient that passes
    add up (stage_1_and_2.py, __init__, initialize_optimizer_states, buffer_to_accumulate_to_in_cpu). At stage 3 the
    16-bit gradients as one tensor and those that a group is stepped with, but no master weights (stage3.py,
    _setup_for_real_optimizer, initialize_optimizer_states); on NVMe the buffers that groups are swapped through.
    """
    own, size = states.own, states.size
    if layout.offload_optimizer == "nvme":
        yield from [FP32 * max(groups, default=0)] * tensors
        yield size * own
    elif layout.offload_optimizer == "cpu" and layout.stage == 3:
        yield (adapters or size) * own
        yield from (states.wide * group for group in groups)
    elif layout.offload_optimizer == "cpu":
        yield from (states.master, states.wide * own, back, size * states.tensors.largest)
        if accumulates and layout.stage == 2 and states.wide == FP32:
            for one in cut(states.tensors, states.ranks):
                yield from (size * numel for numel in states.tensors.numels[one.first : one.first + one.tensors])


def _shares(layout: Any, states: States, locked: Locked) -> dict[int, int]:
    """Shares that wait page-locked each for itself, and are freed before training: bytes -> how many.

    The trained ones until all of them are one tensor (partition_parameters.py, _partition_param; stage3.py,
    _move_to_flat_buffer); under zero.Init also those of a head, until transformers ties it to the embedding.
    """
    if layout.offload_param != "cpu" or not locked.shares:
        return {}
    size, sizes = locked.adapters or states.size, Counter[int]()
    for numel, count in _alike(states.cut_up):
        sizes[size * -(-numel // states.among)] += count
    if locked.zero_init and locked.model.tied_embeddings:
        head, second = -(-tied_elements(locked.model) // states.among), states.secondary
        sizes[states.size * head] += 1
        if second:
            sizes[second.groups * states.size * head] += 1
    return sizes


@functools.lru_cache(maxsize=1024)
def _alike(cut_up: Trained) -> tuple[tuple[int, int], ...]:
    """Elements of a tensor, and how many have as many."""
    return tuple(Counter(cut_up.numels).items())


def _of_parameters(layout: Any, states: States, locked: Locked) -> Iterator[int]:
    """Bytes of each page-locked tensor of a rank that parameters away from the GPU need.

    Trained ones are one tensor (stage3.py, _create_param_groups_fp16_flat_cpu_memory), frozen ones lie each in its own
    (partition_parameters.py, partition), and so does each of hpZ's second shares (_partition_param_sec); on NVMe they
    pass through buffers.
    """
    size = states.size
    if layout.offload_param == "cpu":
        yield size * states.own
        second = states.secondary
        for item in parameters(locked.model) if locked.adapters else ():
            yield from [_share(states, item)] * item.repeats
            if second:
                yield from [second.groups * _share(states, item)] * item.repeats
        if second:
            yield from (second.groups * second.width * -(-numel // states.among) for numel in states.tensors.numels)
    elif layout.offload_param == "nvme":
        yield from [size * -(-states.tensors.largest // states.ranks)] * PARAM_NVME_BUFFERS


def _share(states: States, item: Parameter) -> int:
    """Bytes of a rank's share of a frozen tensor; matrices of a base in 4 bits lie two elements to a byte."""
    packed = states.loaded and item.matrix and item.layer
    return -(-item.numel // states.among) // 2 if packed else states.size * -(-item.numel // states.among)


def _twice(layout: Any, states: States) -> int:
    """Bytes of the largest share that hpZ makes anew in RAM: of each the page-locked one is a copy."""
    second = states.secondary if layout.offload_param == "cpu" else None
    return second.groups * second.width * -(-states.tensors.largest // states.among) if second else 0


def _beyond(freed: Mapping[int, int], before: Iterable[int], behind: Iterable[int]) -> int:
    """What torch's host allocator holds beyond a run's page-locked tensors, of which each has some bytes.

    Args:
        freed: Bytes -> how many such tensors are there first, and go.
        before: Of those that come before they go.
        behind: Of those that come when they are gone, and may get their blocks.
    """
    memory, used = PinnedMemory(), 0
    for size, count in freed.items():
        memory.allocate(size, count)
    for size in before:
        memory.allocate(size)
        used += size
    for size, count in freed.items():
        memory.free(size, count)
    for size in behind:
        memory.allocate(size)
        used += size
    return memory.reserved_bytes - used


def _nvme(ranks: int, layout: Any, states: States) -> dict[str, int]:
    there = {}
    if layout.offload_optimizer == "nvme":
        there["optimizer states"] = ranks * (states.moments + 2 * FP32 * states.own)
    if layout.offload_param == "nvme":
        there["weights"] = ranks * states.weights
    return there
