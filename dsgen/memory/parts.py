"""The named parts of a strategy's memory: each a fixed number of bytes and a number per sequence of the micro-batch."""

from __future__ import annotations

from typing import Any

import attrs

from dsgen.buffers import MOMENTS, Buffers
from dsgen.jobs import Job
from dsgen.memory.activations import per_token
from dsgen.memory.limits import RANK_PROCESS_BYTES, gpu_overhead
from dsgen.memory.numbers import count

__all__ = ["Parts", "parts"]

FP32 = 4  # bytes of a master weight, a moment, an fp32 gradient
NF4_BITS = 4.5  # bits an element of a QLoRA base: 4, and one fp32 scale per 64 (bitsandbytes, blocksize 64)
PARAM_NVME_BUFFERS = 5  # offload_param.buffer_count, its default: each holds a rank's share of the largest tensor
MAX_IN_CPU = 1_000_000_000  # elements of NVMe parameters kept in RAM (offload_param.max_in_cpu, its default)
DDP_BUCKET = 500_000_000  # elements the engine flattens for one all-reduce at stage 0 (engine.py, allreduce_bucket)
LOAD_SHARD_BYTES = 5 * 10**9  # a safetensors shard as Hugging Face writes them; each rank reads one at a time


@attrs.frozen
class Parts:
    """One strategy, its micro-batch left open.

    Attributes:
        phases: phase -> part -> (fixed bytes, bytes per sequence) on one GPU.
        host: phase -> part -> bytes in the RAM of one node.
        pinned: Bytes of the host parts that are page-locked, where torch may round up to a power of two.
        nvme: part -> bytes on the local drives of one node.
    """

    phases: dict[str, dict[str, tuple[int, int]]]
    host: dict[str, dict[str, int]]
    pinned: int
    nvme: dict[str, int]


def parts(job: Job, layout: Any, buffers: Buffers) -> Parts:
    """Every part of a layout's memory.

    Args:
        job: The job.
        layout: Anything with stage, offload_optimizer, offload_param, tp, checkpointing and precision.
        buffers: Element counts of the communication buffers.
    """
    training, model = job.training, job.model
    stage, precision = layout.stage, layout.precision
    size = FP32 if precision == "fp32" else 2
    replicas = job.world // layout.tp
    shards = replicas if stage else 1
    numbers = count(model, training.method, training.lora_rank, training.lora_targets, layout.tp, buffers.persistence)
    own = -(-numbers.trained // shards)  # this rank's share of what is trained
    frozen = (
        int(numbers.frozen_linear * (NF4_BITS / 8 if training.method == "qlora" else size))
        + numbers.frozen_other * size
    )
    weights = numbers.trained * size + frozen
    held = weights
    if stage == 3:
        persistent = min(numbers.persistent, numbers.total) * size
        held = persistent + (0 if layout.offload_param != "none" else -(-weights // replicas))
    master = 0 if size == FP32 and stage == 0 else FP32 * own
    moments = FP32 * MOMENTS[training.optimizer] * own
    on_gpu = layout.offload_optimizer == "none"

    persistent_parts: dict[str, tuple[int, int]] = {
        "weights": (held, 0),
        "fp32 master weights": (master if on_gpu else 0, 0),
        "optimizer states": (moments if on_gpu else 0, 0),
        "overhead": (gpu_overhead(job.hardware, job.world), 0),
    }
    grads = _gradients(stage, own, numbers.trained, size, on_gpu)
    bucket = _buckets(stage, numbers.trained, numbers.largest, size, buffers, on_gpu)
    gathered = 0
    if stage == 3:
        reused = buffers.max_live if buffers.max_reuse else 0
        gathered = size * min(numbers.total, max(reused, numbers.block + buffers.prefetch, numbers.largest))
    tokens = job.seq_len
    kept = per_token(
        model, precision, training.attention, layout.tp, training.chunked_loss, training.method != "full", tokens
    )
    stored = kept.ends + (kept.boundary if layout.checkpointing else kept.block) * model.layers
    recomputed = kept.block if layout.checkpointing else 0
    common = {**persistent_parts, "gradients": (grads, 0), "gathered parameters": (gathered, 0)}
    early = bucket if stage == 3 else 0  # stages 1 and 2 allocate their buckets when the first gradient arrives
    loss = {
        **common,
        "communication buckets": (early, 0),
        "activations": (0, tokens * stored),
        "logits and loss": (0, tokens * kept.logits),
    }
    backward = {
        **common,
        "communication buckets": (bucket, 0),
        "activations": (0, tokens * (stored + recomputed + kept.working)),
    }
    step = {
        **persistent_parts,
        "gradients": (grads if stage != 2 else size * own if on_gpu else 0, 0),
        "communication buckets": (bucket if stage == 3 else 0, 0),
        "fp32 gradients": (_step_temporaries(stage, own, size, buffers.sub_group) if on_gpu else 0, 0),
    }
    host, pinned = _host(job, layout, buffers, own, numbers.largest, weights, moments, size)
    return Parts(
        {"loss": loss, "backward": backward, "step": step},
        host,
        pinned,
        _nvme(job, layout, own, moments, weights // replicas),
    )


def _gradients(stage: int, own: int, trained: int, size: int, on_gpu: bool) -> int:
    """Gradients alive at the end of backward: whole below stage 2, the own share from it on, none when offloaded."""
    if stage < 2:
        return size * trained
    return size * own if on_gpu else 0


def _buckets(stage: int, trained: int, largest: int, size: int, buffers: Buffers, on_gpu: bool) -> int:
    """Flat buffers: stage 0 flattens what it reduces; stages 1 and 2 have one bucket, two with overlap; stage 3 one."""
    if stage == 0:
        return size * min(trained, DDP_BUCKET)
    copies = 2 if buffers.overlap_comm and stage < 3 else 1
    return size * (buffers.reduce_bucket * copies + (0 if on_gpu or stage == 3 else largest))


def _step_temporaries(stage: int, own: int, size: int, sub_group: int) -> int:
    """The fp32 copy of the gradient that the optimizer steps on, and the flat 16-bit one it is made from."""
    if size == FP32:
        return 0 if stage == 0 else FP32 * own
    if stage == 3:
        return FP32 * min(own, sub_group)
    return (FP32 + size) * own if stage == 2 else FP32 * own


def _host(
    job: Job, layout: Any, buffers: Buffers, own: int, largest: int, weights: int, moments: int, size: int
) -> tuple[dict[str, dict[str, int]], int]:
    """Parts in one node's RAM while loading and while training, and how much of the latter is page-locked."""
    ranks = job.gpus_per_node
    processes = ranks * RANK_PROCESS_BYTES
    loading = ranks * (min(weights, LOAD_SHARD_BYTES) if layout.stage == 3 else weights)
    training = {"processes": processes}
    pinned = 0
    if layout.offload_optimizer == "cpu":
        training["fp32 master weights"] = ranks * FP32 * own
        training["optimizer states"] = ranks * moments
        training["fp32 gradients"] = ranks * FP32 * own
        training["16-bit staging"] = ranks * size * (own + (largest if layout.stage < 3 else 0))
        pinned += ranks * ((2 * FP32 + size) * own + (size * largest if layout.stage < 3 else 0))
    elif layout.offload_optimizer == "nvme":
        group = min(
            own, buffers.sub_group + largest // max(1, job.world // layout.tp)
        )  # a group ends with a whole tensor
        training["NVMe buffers"] = ranks * buffers.swap_buffers * FP32 * group
        training["16-bit staging"] = ranks * size * own
        pinned += training["NVMe buffers"] + training["16-bit staging"]
    replicas = job.world // layout.tp
    if layout.offload_param == "cpu":
        training["parameters"] = ranks * (weights // replicas)
        pinned += training["parameters"]
    elif layout.offload_param == "nvme":
        waiting = ranks * PARAM_NVME_BUFFERS * size * -(-largest // replicas)
        training["NVMe buffers"] = training.get("NVMe buffers", 0) + waiting
        training["parameters"] = ranks * min(weights // replicas, size * MAX_IN_CPU)
        pinned += waiting
    return {"load": {"processes": processes, "checkpoint being read": loading}, "training": training}, pinned


def _nvme(job: Job, layout: Any, own: int, moments: int, share: int) -> dict[str, int]:
    ranks = job.gpus_per_node
    found = {}
    if layout.offload_optimizer == "nvme":
        found["optimizer states"] = ranks * (moments + 2 * FP32 * own)
    if layout.offload_param == "nvme":
        found["parameters"] = ranks * share
    return found
