"""What the ranks of one node hold in its RAM and on its drives, while a model loads and while it trains."""

from __future__ import annotations

from typing import Any, NamedTuple

from dsgen.buffers import Buffers
from dsgen.jobs import Job
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
    """

    phases: dict[str, dict[str, int]]
    pinned: int
    nvme: dict[str, int]


def host(job: Job, layout: Any, buffers: Buffers, found: States, accumulates: bool) -> Host:
    """The host of a layout; all ranks of a node are alike."""
    ranks, size, own = job.gpus_per_node, found.size, found.own
    training: dict[str, int] = {}
    pinned = 0
    largest = found.tensors.largest
    if layout.offload_optimizer == "cpu":
        training["fp32 master weights"] = ranks * found.master
        training["optimizer states"] = ranks * found.moments
        training["gradients"] = ranks * found.wide * own
        if layout.stage == 3:
            training["gradients"] += ranks * size * own
        else:
            training["offload buffers"] = ranks * size * (own + largest)
            if accumulates and layout.stage == 2 and found.wide == FP32:
                training["gradients"] += ranks * size * found.kept
        pinned += sum(training.values()) - training["optimizer states"]
    elif layout.offload_optimizer == "nvme":
        group = min(own, buffers.sub_group + largest // found.ranks)  # a group ends with a whole tensor
        training["offload buffers"] = ranks * buffers.swap_buffers * FP32 * group
        training["gradients"] = ranks * size * own
        pinned += sum(training.values())
    if layout.offload_param == "cpu":
        training["weights"] = ranks * found.weights
        pinned += training["weights"]
    elif layout.offload_param == "nvme":
        waiting = ranks * PARAM_NVME_BUFFERS * size * -(-largest // found.ranks)
        training["offload buffers"] = training.get("offload buffers", 0) + waiting
        training["weights"] = ranks * min(found.weights, size * MAX_IN_CPU)
        pinned += waiting
    whole = size * found.numbers.total
    # A base that becomes 4-bit goes to the GPU tensor by tensor, as one that stage 3 cuts does (transformers 5.23,
    # modeling_utils.py, _load_pretrained_model); else each rank has the whole model in RAM first.
    streamed = layout.stage == 3 or found.loaded
    loading = {"weights": ranks * (min(whole, LOAD_SHARD_BYTES) if streamed else whole)}
    return Host({"load": loading, "training": training}, pinned, _nvme(job, layout, found))


def _nvme(job: Job, layout: Any, found: States) -> dict[str, int]:
    ranks = job.gpus_per_node
    there = {}
    if layout.offload_optimizer == "nvme":
        there["optimizer states"] = ranks * (found.moments + 2 * FP32 * found.own)
    if layout.offload_param == "nvme":
        there["weights"] = ranks * found.weights
    return there
