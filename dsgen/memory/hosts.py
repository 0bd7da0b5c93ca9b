"""What the ranks of one node hold in its RAM and on its drives, while a model loads and while it trains."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dsgen.memory.loading import Loaded
from dsgen.memory.states import FP32, States

__all__ = ["Host", "host"]

PARAM_NVME_BUFFERS = 5  # offload_param.buffer_count, its default: each holds a rank's share of the largest tensor
MAX_IN_CPU = 1_000_000_000  # elements of NVMe parameters kept in RAM (offload_param.max_in_cpu, its default)
COMING = ("load", "init")  # before training: the model is read, then DeepSpeed is initialized


class Host(NamedTuple):
    """One node.

    Attributes:
        phases: load, init, training, and step where that takes more -> part -> bytes in RAM.
        pinned: Bytes of the training parts that are page-locked, where torch rounds up to a power of two.
        nvme: Part -> bytes on the local drives.
        phase, peak: The one of them that takes most RAM, and its bytes.
        stored: Bytes on the local drives.
        mapped: Bytes of the checkpoint's files in the page cache while the model loads, which the kernel takes back.
    """

    phases: dict[str, dict[str, int]]
    pinned: int
    nvme: dict[str, int]
    phase: str
    peak: int
    stored: int
    mapped: int

    @property
    def stepping(self) -> dict[str, int]:
        """Part -> bytes in RAM while the optimizer steps: most of what training takes."""
        return self.phases.get("step", self.phases["training"])


def host(
    ranks: int,
    layout: Any,
    swapped: Sequence[int],
    states: States,
    accumulates: bool,
    coming: Loaded,
    flat: int = 0,
    back: int = 0,
) -> Host:
    """The host of a layout; all ranks of a node are alike.

    Args:
        ranks: Ranks of one node.
        layout: Anything with stage, offload_optimizer and offload_param.
        swapped: Tensors that NVMe swapping holds, and elements of a group that is stepped at once.
        states: The states.
        accumulates: Gradients of earlier passes are there.
        coming: What the model takes while it loads.
        back: Bytes that a rank's stepped weights wait in for the GPU, at stages 1 and 2.
        flat: Bytes that a rank has in RAM while its trained weights are made one flat tensor there, and moved back.
    """
    size, own = states.size, states.own
    training: dict[str, int] = {}
    pinned = 0
    largest = states.tensors.largest
    tensors, elements = swapped
    group = min(own, elements + largest // states.ranks)  # it ends with a whole tensor
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
        pinned += sum(training.values()) - training["optimizer states"]
    elif layout.offload_optimizer == "nvme":
        training["offload buffers"] = ranks * tensors * FP32 * group
        training["gradients"] = ranks * size * own
        pinned += sum(training.values())
    if layout.offload_param == "cpu":
        training["weights"] = ranks * states.weights
        pinned += training["weights"]
    elif layout.offload_param == "nvme":
        waiting = ranks * PARAM_NVME_BUFFERS * size * -(-largest // states.ranks)
        training["offload buffers"] = training.get("offload buffers", 0) + waiting
        training["weights"] = ranks * min(states.weights, size * MAX_IN_CPU)
        pinned += waiting
    stored = _nvme(ranks, layout, states)
    loading = {"weights": coming.ram}
    phases = {"load": loading, "init": {"weights": ranks * flat} if flat else loading, "training": training}
    if layout.stage == 3 and layout.offload_optimizer != "none" and layout.offload_param == "none" and size < FP32:
        # torch casts a group into a tensor of its own before it goes to the GPU (stage3.py,
        # _reassign_or_swap_out_partitioned_parameters; aten/src/ATen/native/cuda/Copy.cu, copy_kernel_cuda).
        phases["step"] = {**training, "temporaries": ranks * size * group}
    sizes = {name: sum(parts.values()) for name, parts in phases.items()}
    phase = max(phases, key=lambda name: sizes[name])  # the first of equals
    return Host(phases, pinned, stored, phase, sizes[phase], sum(stored.values()), coming.mapped)


def _nvme(ranks: int, layout: Any, states: States) -> dict[str, int]:
    there = {}
    if layout.offload_optimizer == "nvme":
        there["optimizer states"] = ranks * (states.moments + 2 * FP32 * states.own)
    if layout.offload_param == "nvme":
        there["weights"] = ranks * states.weights
    return there
