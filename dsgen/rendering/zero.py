"""ZeRO, offload and tensor parallelism."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.families.parameters import block_elements
from dsgen.jobs.releases import unknown_leaf
from dsgen.memory.numbers import count
from dsgen.planning.launchers import starting_words, threads_matter
from dsgen.planning.planner import Plan
from dsgen.rendering.planned_keys import PlannedKey
from dsgen.shapes.units import gib

__all__ = ["keys"]

AIO_BLOCK_SIZE = 1_048_576  # bytes of one read or write; DeepSpeed's default, and the best in its ds_nvme_tune examples
AIO_QUEUE_DEPTH = 16  # requests in flight; 8 is DeepSpeed's default, NVMe drives saturate at 16 and more
AIO_PARALLELISM = 2  # threads a request is split over: two keep one drive busy from one rank
PARAM_BUFFERS = 5  # offload_param.buffer_count, DeepSpeed's default
MAX_IN_CPU = 1_000_000_000  # elements of offloaded parameters kept in RAM beside NVMe; DeepSpeed's default


def keys(plan: Plan) -> Iterator[PlannedKey]:
    """The zero_optimization section, tensor_parallel, and aio where NVMe is used."""
    chosen = plan.chosen.strategy
    yield from _tensor_parallel(plan)
    if chosen.stage == 0:
        return
    zero, buffers = "zero_optimization", chosen.buffers
    yield PlannedKey(f"{zero}.stage", chosen.stage, f"{_stage(plan)}; {plan.reason}", "training.zero_stage")
    wire = 4 if chosen.precision == "fp32" else 2
    yield PlannedKey(f"{zero}.overlap_comm", buffers.overlap_comm, _overlap(plan))
    yield PlannedKey(
        f"{zero}.contiguous_gradients",
        True,
        "gradients of tensors within the bucket are copied into one buffer as they come: no fragmentation",
    )
    size = gib(buffers.reduce_bucket * wire)
    twice = ", held twice with overlap_comm" if buffers.overlap_comm and chosen.stage < 3 else ""
    yield PlannedKey(
        f"{zero}.reduce_bucket_size",
        buffers.reduce_bucket,
        f"elements, not bytes: {size} GiB{twice}; {_bucket_reason(plan)}",
    )
    if chosen.stage == 3:
        yield from _stage_3(plan)
    yield from _offload_optimizer(plan)
    yield from _offload_param(plan)
    if "nvme" in (chosen.offload_optimizer, chosen.offload_param):
        yield from _aio()


def _stage(plan: Plan) -> str:
    return {
        1: "optimizer states are shared among the replicas",
        2: "optimizer states and gradients are shared among the replicas",
        3: "states, gradients and parameters are shared among the replicas; parameters are gathered block by block",
    }[plan.chosen.strategy.stage]


def _bucket_reason(plan: Plan) -> str:
    if plan.job.nodes > 1:
        return "so large that the network's latency is about 1 % of a transfer, as far as 2 % of the GPU allow"
    return "holds the largest matrix of a block, as far as 2 % of the GPU allow"


def _overlap(plan: Plan) -> str:
    chosen = plan.chosen.strategy
    alone = plan.job.world == chosen.tp
    if not chosen.buffers.overlap_comm:
        return "one replica: there is nothing to reduce" if alone else "as set"
    if alone and chosen.offload_optimizer == "none":
        return "parameters come from the host on a stream of their own, beside the kernels"
    what = "gradients go to the CPU" if alone else "gradients are reduced"
    if chosen.stage == 3:
        return f"{what} while backward goes on, and parameters are gathered on a stream of their own"
    return f"{what} while backward goes on, for a second bucket of {gib(chosen.buffers.reduce_bucket * 2)} GiB"


def _tensor_parallel(plan: Plan) -> Iterator[PlannedKey]:
    chosen = plan.chosen.strategy
    if chosen.tp > 1:
        yield PlannedKey(
            "tensor_parallel.autotp_size",
            chosen.tp,
            f"{chosen.tp} GPUs of a node share each layer over {plan.job.hardware.intra_node_link}; "
            "each holds 1/"
            f"{chosen.tp} of the blocks' weights, gradients and states",
            "training.tp",
        )


def _stage_3(plan: Plan) -> Iterator[PlannedKey]:
    job, chosen = plan.job, plan.chosen.strategy
    zero, buffers = "zero_optimization", chosen.buffers
    wire = 4 if chosen.precision == "fp32" else 2
    block = block_elements(job.model) // chosen.tp
    yield PlannedKey(
        f"{zero}.stage3_prefetch_bucket_size", buffers.prefetch, f"elements fetched ahead; one block has {block:,}"
    )
    yield PlannedKey(
        f"{zero}.stage3_param_persistence_threshold",
        buffers.persistence,
        "tensors up to this many elements (norms, biases) stay whole: fetching them would cost only latency",
    )
    yield PlannedKey(
        f"{zero}.stage3_max_live_parameters",
        buffers.max_live,
        f"elements ({gib(buffers.max_live * wire)} GiB) up to which parameters are fetched ahead of their use",
    )
    yield PlannedKey(
        f"{zero}.stage3_max_reuse_distance",
        buffers.max_reuse,
        "a parameter needed again within this many elements stays gathered"
        if buffers.max_reuse
        else "0: a parameter kept for reuse would hold an NVMe swap buffer",
    )
    if chosen.offload_optimizer == "nvme":
        yield PlannedKey(
            f"{zero}.sub_group_size",
            buffers.sub_group,
            "elements swapped in for one update; smaller groups need smaller page-locked buffers",
        )
    if job.training.save_16bit and job.training.method == "full":
        yield _gather(plan)
    leaf = unknown_leaf(job.model, job.version)
    if leaf:
        yield PlannedKey(
            f"{zero}.leaf_module.classes",
            [leaf],
            "before transformers 5 each expert is a module, and ranks that route differently would wait for each other",
        )
    if job.training.optimizer == "Muon":
        yield PlannedKey(
            f"{zero}.reduce_scatter", False, "Muon needs whole gradients: stage 3 refuses it with reduce_scatter"
        )


def _gather(plan: Plan) -> PlannedKey:
    """Whether save_16bit_model gathers the whole model, which takes room in the RAM of rank 0's node."""
    path = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
    host = plan.chosen.memory.host
    total = 2 * count(plan.job.model, "full", 1, ("all-linear",), 1, False, 0).total
    if host.high_bytes + total <= host.limit_bytes:
        why = f"save_16bit_model gathers all {gib(total)} GiB on rank 0; without it that call writes nothing"
        return PlannedKey(path, True, why, "training.save_16bit")
    why = f"all {gib(total)} GiB have no room in rank 0's RAM; zero_to_fp32.py converts a checkpoint"
    return PlannedKey(path, False, why)


def _offload_optimizer(plan: Plan) -> Iterator[PlannedKey]:
    job, chosen = plan.job, plan.chosen.strategy
    device = chosen.offload_optimizer
    if device == "none":
        return
    base = "zero_optimization.offload_optimizer"
    why = f"states and update leave the GPU: {_states(plan)} GiB a node"
    if threads_matter(job, chosen):
        why += f"; {starting_words(job)}"
    yield PlannedKey(f"{base}.device", device, why, "training.offload")
    yield PlannedKey(
        f"{base}.pin_memory", True, "page-locked memory: copies run beside compute at the link's full rate"
    )
    if device == "nvme":
        yield PlannedKey(
            f"{base}.nvme_path", job.training.nvme_path, "a folder on the node's own drive", "training.nvme_path"
        )
        yield PlannedKey(
            f"{base}.buffer_count",
            chosen.buffers.swap_buffers,
            "weight, gradient and moments of the group being updated"
            + (", the one being read and the one being written" if chosen.buffers.pipelined else ""),
        )
        if chosen.buffers.pipelined:
            yield PlannedKey(f"{base}.pipeline_read", True, "the next group is read while this one is updated")
            yield PlannedKey(f"{base}.pipeline_write", True, "the last group is written while this one is updated")
        else:
            why = "a pipeline keeps all moments in RAM through its first step, which has no room for them"
            yield PlannedKey(f"{base}.pipeline_read", False, why)
            yield PlannedKey(f"{base}.pipeline_write", False, why)
    elif chosen.stage < 3 and job.world // chosen.tp > 1:
        yield PlannedKey(
            "zero_optimization.round_robin_gradients",
            True,
            "spreads gradients so that all ranks copy to the CPU at once, not one after the other",
        )


def _states(plan: Plan) -> str:
    """What the offloaded optimizer takes on one node, without processes and loading."""
    memory = plan.chosen.memory
    there = memory.nvme.parts if plan.chosen.strategy.offload_optimizer == "nvme" else memory.phases[-1].host
    names = ("optimizer states", "fp32 master weights", "gradients", "offload buffers")
    return gib(sum(there.get(name, 0) for name in names))


def _offload_param(plan: Plan) -> Iterator[PlannedKey]:
    job, chosen = plan.job, plan.chosen.strategy
    device = chosen.offload_param
    if device == "none":
        return
    base = "zero_optimization.offload_param"
    yield PlannedKey(
        f"{base}.device", device, "parameters wait off the GPU until their block needs them", "training.offload"
    )
    yield PlannedKey(f"{base}.pin_memory", True, "page-locked memory: the next block arrives while this one computes")
    if device == "nvme":
        whole = count(job.model, "full", 1, ("all-linear",), chosen.tp, False, 0).largest
        largest = -(-whole // (job.world // chosen.tp))
        yield PlannedKey(
            f"{base}.nvme_path", job.training.nvme_path, "a folder on the node's own drive", "training.nvme_path"
        )
        yield PlannedKey(f"{base}.buffer_count", PARAM_BUFFERS, "tensors in flight between drive and GPU")
        yield PlannedKey(
            f"{base}.buffer_size",
            largest + largest % 2,
            f"elements; a buffer holds a rank's share of the largest tensor ({largest:,})",
        )
        yield PlannedKey(f"{base}.max_in_cpu", MAX_IN_CPU, "elements kept in RAM instead of on the drive")


def _aio() -> Iterator[PlannedKey]:
    yield PlannedKey("aio.block_size", AIO_BLOCK_SIZE, "bytes of one request")
    yield PlannedKey("aio.queue_depth", AIO_QUEUE_DEPTH, "requests in flight; below 16 a drive idles")
    yield PlannedKey("aio.intra_op_parallelism", AIO_PARALLELISM, "threads one request is split over")
    yield PlannedKey("aio.single_submit", False, "requests are handed over in batches")
    yield PlannedKey("aio.overlap_events", True, "new requests are sent while old ones complete")
