"""Time of the collectives of one optimizer step, each over the slowest link it crosses."""

from __future__ import annotations

from dsgen.jobs.job import Job
from dsgen.memory.numbers import Numbers
from dsgen.strategies.strategies import Strategy

__all__ = ["collective_seconds", "data_parallel_seconds", "tensor_parallel_seconds"]

# Share of line rate that NCCL's large collectives reach: nccl-tests bus bandwidth over the datasheet's.
LINK_EFFICIENCY = {"nvlink": 0.80, "xgmi": 0.70, "pcie": 0.60, "ethernet": 0.75, "memory": 0.5, "none": 1.0}
RDMA_EFFICIENCY = 0.85
TCP_EFFICIENCY = 0.60  # the host copies every byte
OVERLAP = 0.70  # share of backward (and of forward, at stage 3) behind which communication can hide


def collective_seconds(job: Job, size_bytes: float, tp: int, calls: int) -> float:
    """One all-gather or one reduce-scatter among the replicas; an all-reduce is one of each.

    Tensor-parallel groups stay inside a node, so the replicas of every group span all nodes, and the tp groups of a
    node share its network.

    Args:
        job: The job; its links and its nodes.
        size_bytes: Bytes of the whole tensor on one tensor-parallel rank.
        tp: AutoTP degree: how many such collectives run at once.
        calls: Into how many calls the tensor is cut.
    """
    ranks = job.world // tp
    if ranks <= 1:
        return 0.0
    hardware, network = job.hardware, job.network
    inside = max(1, job.gpus_per_node // tp)
    intra = hardware.intra_node_bandwidth_bytes_per_second * LINK_EFFICIENCY[hardware.intra_node_link]
    seconds = 0.0
    if inside > 1:
        seconds = (
            size_bytes * (ranks - 1) / ranks / max(intra, 1.0) + calls * hardware.intra_node_latency_seconds * inside
        )
    if job.nodes > 1:
        rate = network.bandwidth_bytes_per_second * (RDMA_EFFICIENCY if network.rdma else TCP_EFFICIENCY)
        sent = size_bytes * tp * (job.nodes - 1) / job.nodes
        seconds = max(seconds, sent / rate + calls * network.latency_seconds * job.nodes)
    return seconds


def data_parallel_seconds(job: Job, strategy: Strategy, numbers: Numbers) -> tuple[float, float]:
    """What ZeRO moves between replicas.

    Returns:
        Seconds per micro-batch, and once per optimizer step.
    """
    tp = strategy.tp
    if job.world == tp:
        return 0.0, 0.0
    size = 4 if strategy.precision == "fp32" else 2
    gradients, weights = size * numbers.trained, size * numbers.total
    buckets = strategy.buffers
    reduce_calls = max(1, numbers.trained // max(buckets.reduce_bucket, 1))
    gather_calls = max(1, numbers.trained // max(buckets.allgather_bucket, 1))
    reduce = collective_seconds(job, gradients, tp, reduce_calls)
    if strategy.stage == 0:
        return 0.0, 2 * reduce
    if strategy.stage == 3:
        # Every pass gathers the weights: forward and backward, or forward, recomputation and backward.
        # A recomputed block stays gathered for its backward when two blocks are within the reuse distance
        # (partitioned_param_coordinator.py).
        kept_for_backward = buckets.max_reuse >= 2 * numbers.block
        passes = 3 if strategy.checkpointing and not kept_for_backward else 2
        fetches = max(1, numbers.total // max(buckets.prefetch, 1))
        kept = min(1.0, buckets.max_reuse / numbers.total)  # what stays gathered between the two passes
        return passes * (1 - kept / 2) * collective_seconds(job, weights, tp, fetches) + reduce, 0.0
    gather = collective_seconds(job, gradients, tp, gather_calls)
    return (reduce, gather) if strategy.stage == 2 else (0.0, reduce + gather)


def tensor_parallel_seconds(job: Job, strategy: Strategy, tokens: int) -> float:
    """AutoTP's all-reduces of one micro-batch: two per block forward, two backward, two more when recomputed."""
    if strategy.tp == 1:
        return 0.0
    size = 4 if strategy.precision == "fp32" else 2
    bytes_ = size * strategy.micro_batch * tokens * job.model.hidden_size
    count = job.model.layers * (6 if strategy.checkpointing else 4)
    hardware = job.hardware
    rate = hardware.intra_node_bandwidth_bytes_per_second * LINK_EFFICIENCY[hardware.intra_node_link]
    share = 2 * (strategy.tp - 1) / strategy.tp
    return count * (bytes_ * share / max(rate, 1.0) + 2 * hardware.intra_node_latency_seconds * strategy.tp)
