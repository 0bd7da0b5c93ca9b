"""What the keys of a config mean for memory and time: precision, batch, offload, degree and buffers in force."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dsgen.deepspeed.keys import lookup
from dsgen.deepspeed.surface import Surface
from dsgen.jobs.releases import brings_foreach
from dsgen.linting.subjects import OPEN, Subject
from dsgen.shapes.profiles import Training
from dsgen.strategies.buffers import (
    DEFAULT_BUCKET,
    DEFAULT_LIVE,
    DEFAULT_PERSISTENCE,
    PERSISTENCE_PER_HIDDEN,
    SUB_GROUP,
    Buffers,
)
from dsgen.strategies.counted import LOOSE, NARROW, SECOND_COPY

__all__ = [
    "OPTIMIZERS",
    "batch",
    "beyond",
    "buffers",
    "degree",
    "foreach",
    "offloads",
    "optimizer",
    "precision",
    "uncounted",
]

DEFAULT_PREFETCH = 50_000_000  # elements; DeepSpeed's default of stage3_prefetch_bucket_size (zero/config.py)
PREFETCH_PER_SQUARE = 0.9  # Hugging Face fills stage3_prefetch_bucket_size with 0.9 x hidden_size^2
DEFAULT_SWAP_BUFFERS = 4  # DeepSpeed's default of offload_optimizer.buffer_count (zero/offload_config.py)
# DeepSpeed's type in small letters -> the wish; what it makes of 1-bit and 0/1 Adam or Lamb is not among them.
OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam", "lion": "Lion", "adagrad": "Adagrad", "sgd": "SGD", "muon": "Muon"}
# Keys that change what is held, and that the memory model does not count.
_UNCOUNTED = (
    "data_types.grad_accum_dtype",
    "communication_data_type",
    "torch_autocast.enabled",
    "compile.deepcompile",
    "sequence_parallel_size",
    "expert_parallel.enabled",
    "activation_checkpointing.cpu_checkpointing",
    "activation_checkpointing.partition_activations",
    *NARROW,
    LOOSE,
    "zero_optimization.mics_shard_size",
    "zero_optimization.offload_optimizer.ratio",
    "zero_optimization.offload_optimizer.super_offload",
    "zero_optimization.zenflow",
    SECOND_COPY,
    "zero_optimization.zero_quantized_gradients",
    "zero_optimization.zero_quantized_nontrainable_weights",
    "zero_optimization.zero_quantized_weights",
)
_ADAMS = ("AdamW", "Adam")
_MOST = 2**63  # nothing larger is a size


def optimizer(subject: Subject) -> str | None:
    """The optimizer that the config names, as a wish names it; None where it names none, or one we do not count."""
    return OPTIMIZERS.get(subject.optimizer)


def foreach(subject: Subject, training: Training) -> bool:
    """Whether AdamW is torch's foreach one, which steps through copies: the config's, or that of the program."""
    if subject.raw("optimizer") is None:
        return training.optimizer in _ADAMS and brings_foreach(subject.target.name == "hf-trainer", training)
    told = {name: subject.value(f"optimizer.params.{name}") for name in ("torch_adam", "fused", "foreach")}
    of_torch = subject.optimizer in ("adam", "adamw") and told["torch_adam"] is True
    return of_torch and told["fused"] is not True and told["foreach"] is not False


def precision(subject: Subject) -> str | None:
    """The dtype that is computed in; None where the program chooses, or torch.autocast does."""
    for dtype in ("bf16", "fp16"):
        on = subject.value(f"{dtype}.enabled")
        if on is OPEN:
            return "bf16"
        if on is True:
            return dtype
    return None if subject.target.name != "deepspeed" or subject.on("torch_autocast") else "fp32"


def weights(subject: Subject) -> str | None:
    """The dtype in which the weights lie: fp32 beside torch.autocast, too, which casts what a forward takes of them."""
    alone = subject.target.name == "deepspeed" and subject.on("torch_autocast")
    return precision(subject) or ("fp32" if alone else None)


def beyond(subject: Subject) -> tuple[str, ...]:
    """The keys whose effect on memory is not counted."""
    sequence = subject.value("sequence_parallel_size")
    names = ["expert_parallel"] if subject.on("expert_parallel") else []
    return (*names, *(["sequence_parallel_size"] if isinstance(sequence, int) and sequence > 1 else []))


def uncounted(config: Mapping[str, Any], known: Surface, counted: Collection[str] = ()) -> tuple[str, ...]:
    """The keys of a config that change what is held, and are not counted: those away from their default.

    Args:
        config: The config, or the keys that a person sets beside a plan.
        known: What the release reads.
        counted: Those among them that are counted here.
    """
    paths = []
    for path in _UNCOUNTED:
        there, value = lookup(config, path) if path not in counted else (False, None)
        if there and value not in (None, "auto") and value != known.default(path):
            paths.append(path)
    return tuple(paths)


def degree(subject: Subject) -> int:
    """The AutoTP degree."""
    return _whole(subject, "tensor_parallel.autotp_size") or 1


def batch(subject: Subject, world: int, micro: int | None = None) -> tuple[int | None, int | None]:
    """Micro-batch and accumulation steps as DeepSpeed derives them for some GPUs; None where the program says them.

    Args:
        subject: The config.
        world: GPUs in all.
        micro: The micro-batch instead of the one that the config says.
    """
    micro = micro or _whole(subject, "train_micro_batch_size_per_gpu")
    steps = _whole(subject, "gradient_accumulation_steps")
    total = _whole(subject, "train_batch_size")
    if micro and not steps:
        steps = max(1, total // (micro * world)) if total else None
    elif total and not micro:
        micro = max(1, total // (world * max(1, steps or 1)))
    return micro, steps


def offloads(subject: Subject, stage: int) -> tuple[str, str]:
    """Where optimizer and parameters really go at a stage: below 3, NVMe means CPU memory, and parameters stay."""
    place = subject.offload("optimizer") if stage else "none"
    return "cpu" if place == "nvme" and stage < 3 else place, subject.offload("param") if stage == 3 else "none"


def buffers(subject: Subject, stage: int) -> Buffers:
    """Sizes of what DeepSpeed communicates through: as written, as the program fills them in, or its defaults.

    Args:
        subject: The config; its model decides what Hugging Face fills in.
        stage: The ZeRO stage that runs: overlap_comm is on at 3 where nothing is said.
    """
    zero = "zero_optimization"
    width = subject.facts.model.hidden_size if subject.facts.model is not None else 0

    def size(name: str, default: int, filled: float) -> int:
        path = f"{zero}.{name}"
        if subject.is_open(path):
            return int(filled)
        value = subject.value(path)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else default

    overlap = subject.value(f"{zero}.overlap_comm")
    return Buffers(
        reduce_bucket=size("reduce_bucket_size", DEFAULT_BUCKET, width**2),
        prefetch=size("stage3_prefetch_bucket_size", DEFAULT_PREFETCH, PREFETCH_PER_SQUARE * width**2),
        persistence=size("stage3_param_persistence_threshold", DEFAULT_PERSISTENCE, PERSISTENCE_PER_HIDDEN * width),
        max_live=size("stage3_max_live_parameters", DEFAULT_LIVE, DEFAULT_LIVE),
        max_reuse=size("stage3_max_reuse_distance", DEFAULT_LIVE, DEFAULT_LIVE),
        sub_group=size("sub_group_size", SUB_GROUP, SUB_GROUP),
        swap_buffers=size("offload_optimizer.buffer_count", DEFAULT_SWAP_BUFFERS, DEFAULT_SWAP_BUFFERS),
        overlap_comm=overlap if isinstance(overlap, bool) else stage == 3,
        secondary=size("zero_hpz_partition_size", 0, 0),
        contiguous=subject.value(f"{zero}.contiguous_gradients") is not False,
        efficient_linear=subject.value(f"{zero}.memory_efficient_linear") is not False,
        locked=subject.value(f"{zero}.offload_optimizer.pin_memory") is not False,
        locked_shares=subject.value(f"{zero}.offload_param.pin_memory") is not False,
        pipelined=any(subject.value(f"{zero}.offload_optimizer.pipeline_{way}") is True for way in ("read", "write")),
    )


def _whole(subject: Subject, path: str) -> int | None:
    value = subject.value(path)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST else None
