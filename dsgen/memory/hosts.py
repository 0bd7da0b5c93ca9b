"""What the ranks of one node hold in its RAM and on its drives, while a model loads and while it trains."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dsgen.memory.states import FP32, States

__all__ = ["Host", "host"]

PARAM_NVME_BUFFERS = 5  # offload_param.buffer_count, its default: each holds a rank's share of the largest tensor
MAX_IN_CPU = 1_000_000_000  # elements of NVMe parameters kept in RAM (offload_param.max_in_cpu, its default)
LOAD_SHARD_BYTES = 5 * 10**9  # a safetensors shard as Hugging Face writes them; each rank reads one at a time


class Host(NamedTuple):
    """One node.

    Attributes:
        phases: load and training -> part -> bytes in RAM.
        pinned: Bytes of the training parts that are page-locked, where torch rounds up to a power of two.
        nvme: Part -> bytes on the local drives.
        phase, peak: The one of the two that takes more RAM, and its bytes.
        stored: Bytes on the local drives.
    """

    phases: dict[str, dict[str, int]]
    pinned: int
    nvme: dict[str, int]
    phase: str
    peak: int
    stored: int


def host(ranks: int, layout: Any, swapped: Sequence[int], states: States, accumulates: bool) -> Host:
    """The host of a layout; all ranks of a node are alike.

    Args:
        ranks: Ranks of one node.
        layout: Anything with stage, offload_optimizer and offload_param.
        swapped: Tensors that NVMe swapping holds, and elements of a group of them.
        states: The states.
        accumulates: Gradients of earlier passes are there.
    """
    size, own = states.size, states.own
    training: dict[str, int] = {}
    pinned = 0
    largest = states.tensors.largest
    if layout.offload_optimizer == "cpu":
        training["fp32 master weights"] = ranks * states.master
        training["optimizer states"] = ranks * states.moments
        training["gradients"] = ranks * states.wide * own
        if layout.stage == 3:
            training["gradients"] += ranks * size * own
        else:
            training["offload buffers"] = ranks * size * (own + largest)
            if accumulates and layout.stage == 2 and states.wide == FP32:
                training["gradients"] += ranks * size * states.kept
        pinned += sum(training.values()) - training["optimizer states"]
    elif layout.offload_optimizer == "nvme":
        tensors, elements = swapped
        group = min(own, elements + largest // states.ranks)  # a group ends with a whole tensor
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
    whole = size * states.numbers.total
    # A base that becomes 4-bit goes to the GPU tensor by tensor, as one that stage 3 cuts does (transformers 5.23,
    # modeling_utils.py, _load_pretrained_model); else each rank has the whole model in RAM first.
    streamed = layout.stage == 3 or states.loaded
    loading = {"weights": ranks * (min(whole, LOAD_SHARD_BYTES) if streamed else whole)}
    stored = _nvme(ranks, layout, states)
    load, trains = sum(loading.values()), sum(training.values())
    phase, peak = ("load", load) if load >= trains else ("training", trains)
    return Host({"load": loading, "training": training}, pinned, stored, phase, peak, sum(stored.values()))


def _nvme(ranks: int, layout: Any, states: States) -> dict[str, int]:
    there = {}
    if layout.offload_optimizer == "nvme":
        there["optimizer states"] = ranks * (states.moments + 2 * FP32 * states.own)
    if layout.offload_param == "nvme":
        there["weights"] = ranks * states.weights
    return there
