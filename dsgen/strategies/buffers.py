"""Sizes of what DeepSpeed communicates through, in elements: from the model, the link and the memory at hand."""

import functools
from typing import Any, NamedTuple

from dsgen.families.parameters import block_elements, largest_matrix, parameter_count
from dsgen.jobs.job import Job
from dsgen.shapes.profiles import Model

__all__ = ["EIGHT_BITS", "MOMENTS", "SIXTEEN_BIT", "Buffers", "choose", "moments_away"]

# Our choices: latency's share of one bucket's transfer, so that at most 1 % is wasted on it; and what one bucket may
# take of the GPU, so that two of them with overlap_comm cost less than 4 %.
LATENCY_SHARE = 0.01
MEMORY_SHARE = 0.02
SIXTEEN_BIT = 2  # bytes an element takes on the wire in bf16 or fp16
DEFAULT_BUCKET = 500_000_000  # elements; DeepSpeed's own default, 1 GB in bf16 (zero/config.py)
DEFAULT_LIVE = 1_000_000_000  # elements; DeepSpeed's default of stage3_max_live_parameters (zero/config.py)
DEFAULT_PERSISTENCE = 100_000  # elements; DeepSpeed's default of stage3_param_persistence_threshold (zero/config.py)
PERSISTENCE_PER_HIDDEN = 10  # Hugging Face fills the threshold with 10 x hidden_size (integrations/deepspeed.py)
# States an element, in fp32 but for those of EIGHT_BITS.
MOMENTS = {"AdamW": 2, "Adam": 2, "Lion": 1, "Adagrad": 1, "SGD": 0, "Muon": 1, "AdamW8bit": 2}
_ADDED_AWAY = {"Lion": 1}  # of zeros, which nothing reads: DeepSpeedCPULion makes exp_avg_sq (ops/lion/cpu_lion.py)
EIGHT_BITS = "AdamW8bit"  # bitsandbytes' AdamW with states in 8 bits, which the program makes
PIPELINED = 3  # groups in RAM at once: the one being updated, the one read ahead, the one written behind
SUB_GROUP = 1_000_000_000  # elements stage 3 updates at once; DeepSpeed's default of sub_group_size
# Our choices: elements of a group that is swapped in whole, into page-locked buffers of which each takes 0.4 GB of RAM;
# and what gathered parameters may keep of the GPU for reuse, which costs at most as much of it.
SUB_GROUP_NVME = 100_000_000
LIVE_MEMORY_SHARE = 0.10
STATE_BYTES = 4  # of an element of a state, which is fp32 off the GPU
# Our choice: share of a node's RAM that the moments of an optimizer on NVMe may take in the first step. Gradients,
# groups, weights and what torch keeps page-locked take as much again, and no strategy is to give way to a pipeline.
PIPELINED_SHARE = 0.25


class Buffers(NamedTuple):
    """Element counts, not bytes; how many tensors NVMe swapping holds; whether communication runs beside backward.

    `secondary` is the ranks that share hpZ's second copy of the parameters; below 2 there is none. `contiguous`
    is whether gradients are copied into a bucket when they are made, and do not wait where they are. `efficient_linear`
    is zero.Init's own linear layer, without which autograd keeps every gathered weight until backward. `locked` is
    whether gradients and weights of an optimizer on the CPU lie in page-locked memory, and `locked_shares` whether the
    shares of parameters do before they are one tensor there, which always does; a plan's do. `pipelined` is whether an
    optimizer on NVMe reads the next group and writes the last one while it steps one.
    """

    reduce_bucket: int
    prefetch: int
    persistence: int
    max_live: int
    max_reuse: int
    sub_group: int
    swap_buffers: int
    overlap_comm: bool
    secondary: int = 0
    contiguous: bool = True
    efficient_linear: bool = True
    locked: bool = True
    locked_shares: bool = True
    pipelined: bool = True


def choose(job: Job, stage: int, tp: int, optimizer: str = "none", parameters_at: str = "none") -> Buffers:
    """The buffers of a stage; what a person set above the plan is taken as it is.

    Args:
        job: The job.
        stage: ZeRO stage.
        tp: AutoTP degree; a rank's tensors are that much smaller.
        optimizer: Where the optimizer is: none, cpu or nvme. Gradients that leave for it may do so beside backward.
        parameters_at: Where parameters wait: none, cpu or nvme. With overlap_comm they come on a stream of their own.
    """
    zero = job.deepspeed.get("zero_optimization")
    pinned: dict[str, Any] = zero if isinstance(zero, dict) else {}
    bucket, prefetch, persistence, live = _sizes(job.model, job.hardware.usable_memory_bytes, _for_latency(job), tp)

    def size(name: str, own: int) -> int:
        value = pinned.get(f"stage3_{name}", pinned.get(name)) if pinned else None
        return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else own

    overlap = pinned.get("overlap_comm")
    away, waiting = (_section(pinned, f"offload_{what}") for what in ("optimizer", "param"))
    asked = away.get("buffer_count")
    states = 2 + moments_away(job.training.optimizer)  # weight, gradient and moments of one group
    pipelined = optimizer != "nvme" or _pipelined(job, away)
    return Buffers(
        reduce_bucket=size("reduce_bucket_size", bucket),
        prefetch=size("prefetch_bucket_size", prefetch),
        persistence=size("param_persistence_threshold", persistence),
        max_live=size("max_live_parameters", live),
        # A parameter kept for reuse holds an NVMe swap buffer, and five of them are soon gone (DeepSpeed issue 3062).
        max_reuse=size("max_reuse_distance", live) if parameters_at != "nvme" or _reuse(pinned) else 0,
        sub_group=size("sub_group_size", nice(SUB_GROUP_NVME if optimizer == "nvme" else SUB_GROUP)),
        swap_buffers=asked if isinstance(asked, int) else states * (PIPELINED if pipelined else 1),
        overlap_comm=overlap
        if isinstance(overlap, bool)
        else stage > 0 and (job.world // tp > 1 or optimizer != "none" or parameters_at != "none"),
        secondary=size("zero_hpz_partition_size", 0),
        contiguous=pinned.get("contiguous_gradients") is not False,
        locked=away.get("pin_memory") is not False,
        locked_shares=waiting.get("pin_memory") is not False,
        pipelined=pipelined,
    )


@functools.lru_cache(maxsize=4096)
def _sizes(model: Model, memory: int, for_latency: int, tp: int) -> tuple[int, int, int, int]:
    """Elements of a bucket, fetched ahead, never partitioned, and kept live, as a person can read them.

    Args:
        model: The model.
        memory: Bytes of one GPU.
        for_latency: Elements whose transfer takes long beside the link's latency.
        tp: AutoTP degree.
    """
    cap = even(min(DEFAULT_BUCKET, int(memory * MEMORY_SHARE) // SIXTEEN_BIT))
    # A tensor over the bucket is reduced alone, outside it.
    bucket = min(cap, max(largest_matrix(model), for_latency))
    block = block_elements(model) // tp
    prefetch = min(cap, block)
    persistence = max(DEFAULT_PERSISTENCE, PERSISTENCE_PER_HIDDEN * model.hidden_size)
    live = max(min(DEFAULT_LIVE, int(memory * LIVE_MEMORY_SHARE) // SIXTEEN_BIT), block + prefetch)
    return nice(bucket), nice(prefetch), nice(persistence), nice(live)


def moments_away(optimizer: str) -> int:
    """States an element of an optimizer that steps on the CPU."""
    return MOMENTS[optimizer] + _ADDED_AWAY.get(optimizer, 0)


def _pipelined(job: Job, away: dict[str, Any]) -> bool:
    """Whether an optimizer on NVMe is pipelined, as DeepSpeed reads its keys; else where RAM has room.

    Moments are made in RAM by the first step. Of a pipeline they stay there until the second one reads them
    (pipelined_optimizer_swapper.py, _complete_swap_out), without it none outlives its group.
    """
    said = [away[name] for name in ("pipeline_read", "pipeline_write") if isinstance(away.get(name), bool)]
    if said:
        return any(said)
    moments = moments_away(job.training.optimizer) * STATE_BYTES * parameter_count(job.model) // job.nodes
    return moments <= PIPELINED_SHARE * job.hardware.host_memory_bytes


def _section(pinned: dict[str, Any], name: str) -> dict[str, Any]:
    section = pinned.get(name)
    return section if isinstance(section, dict) else {}


def _reuse(pinned: dict[str, Any]) -> bool:
    return "stage3_max_reuse_distance" in pinned or "max_reuse_distance" in pinned


def _for_latency(job: Job) -> int:
    """Elements whose transfer takes so long that the link's latency is LATENCY_SHARE of it."""
    between = job.nodes > 1
    latency = job.network.latency_seconds if between else job.hardware.intra_node_latency_seconds
    bandwidth = (
        job.network.bandwidth_bytes_per_second if between else job.hardware.intra_node_bandwidth_bytes_per_second
    )
    hops = job.nodes if between else job.gpus_per_node
    return int(latency * hops / LATENCY_SHARE * bandwidth) // SIXTEEN_BIT


def nice(elements: int) -> int:
    """A size a person can read: two digits, rounded down, even (DeepSpeed refuses odd all-gather buckets)."""
    if elements < 100:
        return max(2, elements // 2 * 2)
    scale = 10 ** (len(str(elements)) - 2)
    return even(elements // scale * scale)


def even(elements: int) -> int:
    """The next even number below or at a size; at least 2."""
    return max(2, elements // 2 * 2)
