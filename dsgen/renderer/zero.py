"""ZeRO, offload and tensor parallelism."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.buffers import block_elements
from dsgen.memory.numbers import count
from dsgen.planner import Plan
from dsgen.renderer.keys import Key
from dsgen.units import gib

__all__ = ["keys"]

AIO_BLOCK_SIZE = 1_048_576  # bytes of one read or write; DeepSpeed's default, and the best in its ds_nvme_tune examples
AIO_QUEUE_DEPTH = 16  # requests in flight; 8 is DeepSpeed's default, NVMe drives saturate at 16 and more
AIO_PARALLELISM = 2  # threads a request is split over: two keep one drive busy from one rank
PARAM_BUFFERS = 5  # offload_param.buffer_count, DeepSpeed's default
OPTIMIZER_BUFFERS = 4  # offload_optimizer.buffer_count, DeepSpeed's default: weight, gradient and two moments
SUB_GROUP = 1_000_000_000  # elements; DeepSpeed's default of sub_group_size
SUB_GROUP_NVME = 100_000_000  # elements: each group is swapped in whole, into buffer_count buffers of pinned memory
MAX_IN_CPU = 1_000_000_000  # elements of offloaded parameters kept in RAM beside NVMe; DeepSpeed's default

# Blocks whose experts are used by some ranks and not by others hang stage 3's prefetch unless the block is one leaf
# (DeepSpeed issues 4808, 7461). DeepSpeed's default list has mixtral, qwen2_moe and qwen3_moe; these it lacks.
LEAF_CLASSES = {
    "deepseek_v3": "transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3MoE",
    "gpt_oss": "transformers.models.gpt_oss.modeling_gpt_oss.GptOssMLP",
}


def keys(plan: Plan) -> Iterator[Key]:
    """The zero_optimization section, tensor_parallel, and aio where NVMe is used."""
    chosen = plan.chosen.strategy
    yield from _tensor_parallel(plan)
    if chosen.stage == 0:
        return
    zero, buffers = "zero_optimization", chosen.buffers
    yield Key(f"{zero}.stage", chosen.stage, f"{_stage(plan)}; {plan.reason}", "training.zero_stage")
    wire = 4 if chosen.precision == "fp32" else 2
    yield Key(f"{zero}.overlap_comm", buffers.overlap_comm, _overlap(plan))
    yield Key(
        f"{zero}.contiguous_gradients", True, "gradients are copied into one buffer as they come: no fragmentation"
    )
    size = gib(buffers.reduce_bucket * wire)
    twice = ", held twice with overlap_comm" if buffers.overlap_comm and chosen.stage < 3 else ""
    yield Key(
        f"{zero}.reduce_bucket_size",
        buffers.reduce_bucket,
        f"elements, not bytes: {size} GiB{twice}; {_bucket_reason(plan)}",
    )
    if chosen.stage < 3:
        yield Key(
            f"{zero}.allgather_bucket_size",
            buffers.allgather_bucket,
            "elements gathered at once after the step; as the reduce bucket",
        )
    else:
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
        return "so large that the network's latency is about 1 % of a transfer, within 2 % of the GPU"
    return "at least hidden_size squared, within 2 % of the GPU"


def _overlap(plan: Plan) -> str:
    chosen = plan.chosen.strategy
    alone = plan.job.world == chosen.tp
    if not chosen.buffers.overlap_comm:
        return "one replica: there is nothing to reduce" if alone else "as set"
    what = "gradients go to the CPU" if alone else "gradients are reduced"
    if chosen.stage == 3:
        return f"{what} while backward goes on"
    return f"{what} while backward goes on, for a second bucket of {gib(chosen.buffers.reduce_bucket * 2)} GiB"


def _tensor_parallel(plan: Plan) -> Iterator[Key]:
    chosen = plan.chosen.strategy
    if chosen.tp > 1:
        yield Key(
            "tensor_parallel.autotp_size",
            chosen.tp,
            f"{chosen.tp} GPUs of a node share each layer over {plan.job.hardware.intra_node_link}; "
            "each holds 1/"
            f"{chosen.tp} of the blocks' weights, gradients and states",
            "training.tp",
        )


def _stage_3(plan: Plan) -> Iterator[Key]:
    job, chosen = plan.job, plan.chosen.strategy
    zero, buffers = "zero_optimization", chosen.buffers
    wire = 4 if chosen.precision == "fp32" else 2
    block = block_elements(job.model) // chosen.tp
    yield Key(
        f"{zero}.stage3_prefetch_bucket_size", buffers.prefetch, f"elements fetched ahead; one block has {block:,}"
    )
    yield Key(
        f"{zero}.stage3_param_persistence_threshold",
        buffers.persistence,
        "tensors up to this many elements (norms, biases) stay whole: fetching them would cost only latency",
    )
    yield Key(
        f"{zero}.stage3_max_live_parameters",
        buffers.max_live,
        f"elements gathered at once: {gib(buffers.max_live * wire)} GiB; never less than a block and its prefetch",
    )
    yield Key(
        f"{zero}.stage3_max_reuse_distance",
        buffers.max_reuse,
        "a parameter needed again within this many elements stays gathered; as max_live_parameters",
    )
    own = count(
        job.model,
        job.training.method,
        job.training.lora_rank,
        job.training.lora_targets,
        chosen.tp,
        buffers.persistence,
    ).trained // (job.world // chosen.tp)
    if chosen.offload_optimizer == "nvme":
        yield Key(
            f"{zero}.sub_group_size",
            SUB_GROUP_NVME,
            f"elements swapped in for one update, of {own:,} a rank: keeps the pinned buffers small",
        )
    if job.training.save_16bit and job.training.method == "full":
        total = gib(2 * count(job.model, "full", 1, ("all-linear",), 1, 0).total)
        yield Key(
            f"{zero}.stage3_gather_16bit_weights_on_model_save",
            True,
            f"save_16bit_model gathers all {total} GiB on rank 0; without it a stage-3 save loads nowhere else",
            "training.save_16bit",
        )
    leaf = LEAF_CLASSES.get(job.model.architecture)
    if leaf:
        yield Key(
            f"{zero}.leaf_module.classes",
            [leaf],
            "the experts of a block are fetched together; else ranks that route differently wait for each other",
        )
    if job.training.optimizer == "Muon":
        yield Key(f"{zero}.reduce_scatter", False, "Muon needs whole gradients: stage 3 refuses it with reduce_scatter")


def _offload_optimizer(plan: Plan) -> Iterator[Key]:
    job, chosen = plan.job, plan.chosen.strategy
    device = chosen.offload_optimizer
    if device == "none":
        return
    base = "zero_optimization.offload_optimizer"
    where = plan.chosen.memory.host if device == "cpu" else plan.chosen.memory.nvme
    yield Key(
        f"{base}.device",
        device,
        f"states and update leave the GPU: {gib(where.peak_bytes)} GiB a node",
        "training.offload",
    )
    yield Key(f"{base}.pin_memory", True, "page-locked memory: copies run beside compute at the link's full rate")
    if device == "nvme":
        yield Key(f"{base}.nvme_path", job.training.nvme_path, "a folder on the node's own drive", "training.nvme_path")
        yield Key(f"{base}.buffer_count", OPTIMIZER_BUFFERS, "weight, gradient and two moments of one group")
        yield Key(f"{base}.pipeline_read", True, "the next group is read while this one is updated")
        yield Key(f"{base}.pipeline_write", True, "the last group is written while this one is updated")
    elif chosen.stage < 3 and job.world // chosen.tp > 1:
        yield Key(
            "zero_optimization.round_robin_gradients",
            True,
            "spreads gradients so that all ranks copy to the CPU at once, not one after the other",
        )


def _offload_param(plan: Plan) -> Iterator[Key]:
    job, chosen = plan.job, plan.chosen.strategy
    device = chosen.offload_param
    if device == "none":
        return
    base = "zero_optimization.offload_param"
    yield Key(f"{base}.device", device, "parameters wait off the GPU until their block needs them", "training.offload")
    yield Key(f"{base}.pin_memory", True, "page-locked memory: the next block arrives while this one computes")
    if device == "nvme":
        largest = count(job.model, "full", 1, ("all-linear",), chosen.tp, 0).largest
        yield Key(f"{base}.nvme_path", job.training.nvme_path, "a folder on the node's own drive", "training.nvme_path")
        yield Key(f"{base}.buffer_count", PARAM_BUFFERS, "tensors in flight between drive and GPU")
        yield Key(
            f"{base}.buffer_size",
            largest + largest % 2,
            f"elements; a buffer must hold the largest tensor whole ({largest:,})",
        )
        yield Key(f"{base}.max_in_cpu", MAX_IN_CPU, "elements kept in RAM instead of on the drive")


def _aio() -> Iterator[Key]:
    yield Key("aio.block_size", AIO_BLOCK_SIZE, "bytes of one request")
    yield Key("aio.queue_depth", AIO_QUEUE_DEPTH, "requests in flight; below 16 a drive idles")
    yield Key("aio.intra_op_parallelism", AIO_PARALLELISM, "threads one request is split over")
    yield Key("aio.single_submit", False, "requests are handed over in batches")
    yield Key("aio.overlap_events", True, "new requests are sent while old ones complete")
