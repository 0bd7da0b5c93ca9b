"""What a proof changes in a config before it starts it, each change named: batch fields, paths, the network."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeGuard

import attrs

from dsgen.proving.readings import as_read
from dsgen.shapes.errors import mistake

__all__ = ["BATCH_KEYS", "REUSE", "Adaptation", "adapt", "rank_count", "resolve_batch", "tensor_parallel_degree"]

_DEFAULT_RANKS = 2  # the fewest that partition anything
_MICRO_BATCH = 4  # the largest micro-batch that a proof runs
_ACCUMULATION = 2  # the fewest micro-steps that accumulate anything; more only take time
_BUFFER_SIZE = 10_000_000  # elements; more than any tensor of the tiny models
# Of what is swapped to a drive, elements of all ranks: every wide model on one to four of them has two groups at least,
# and none so small that a load forgets it.
_SUB_GROUP, _LEAST_GROUP = 4_500_000, 1 << 18

REUSE = "stage3_max_reuse_distance"  # elements between two uses of a tensor, up to which it is kept
_TRAIN, _MICRO, _STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
BATCH_KEYS = (_TRAIN, _MICRO, _STEPS)
_LESS = "the proof tests the config, not the load"
_TEMPORARY = "a temporary folder, removed after the proof"
# Keys that make DeepSpeed write outside the proof's own folder.
_PATHS = (
    ("zero_optimization", "offload_param", "nvme_path"),
    ("zero_optimization", "offload_optimizer", "nvme_path"),
    ("tensorboard", "output_path"),
    ("csv_monitor", "output_path"),
    ("flops_profiler", "output_file"),
)


@attrs.frozen
class Adaptation:
    """One change that the proof made: the key, the value written, the value used, and why."""

    key: str
    written: object
    used: object
    why: str


def tensor_parallel_degree(config: Mapping[str, Any]) -> int:
    """The AutoTP degree that the config asks for; 1 where it asks for none or for nonsense."""
    section = as_read(config).get("tensor_parallel")
    degree = section.get("autotp_size") if isinstance(section, Mapping) else None
    return degree if _is_count(degree) else 1


def rank_count(config: Mapping[str, Any], ranks: int | None) -> int:
    """How many ranks prove a config: as asked, or the smallest multiple of the AutoTP degree that is at least 2.

    Raises:
        DsgenError: The number asked for is no count, or no multiple of the AutoTP degree.
    """
    degree = tensor_parallel_degree(config)
    if ranks is None:
        return max(degree, _DEFAULT_RANKS)
    if not _is_count(ranks):
        raise mistake(f"ranks is {ranks}", must="it must be a whole number of at least 1")
    if ranks % degree:
        raise mistake(
            f"ranks is {ranks} and tensor_parallel.autotp_size is {degree}",
            must="the ranks must be a multiple of the tensor-parallel degree",
            code="contradiction",
        )
    return ranks


def adapt(config: Mapping[str, Any], ranks: int, folder: str) -> tuple[dict[str, Any], tuple[Adaptation, ...]]:
    """The config that the ranks are given.

    Args:
        config: As written; not changed.
        ranks: The number of ranks.
        folder: An existing folder for everything that DeepSpeed writes.

    Returns:
        The config as used, and every difference to the one written.
    """
    used = {key: _apart(value) for key, value in config.items()}
    changes = [*_rescale(used, ranks), *_redirect(used, folder)]
    changes += _shrink(used, ranks // tensor_parallel_degree(used))
    wandb = used.get("wandb")
    if isinstance(wandb, dict) and wandb.get("enabled") is True:
        changes.append(Adaptation("wandb", "online", "offline", "a proof must not write to anyone's account"))
    checkpoint = used.get("checkpoint")
    universal = checkpoint.get("load_universal") if isinstance(checkpoint, dict) else False
    if isinstance(checkpoint, dict) and universal and universal != "auto":  # any text counts as true
        checkpoint["load_universal"] = False
        why = "the proof loads the checkpoint it has just saved, which is not converted"
        changes.append(Adaptation("checkpoint.load_universal", universal, False, why))
    return used, tuple(changes)


def _apart(value: Any) -> Any:
    """A copy in which no two sections are one object, as one dictionary named twice or a YAML alias is."""
    if isinstance(value, Mapping):
        return {key: _apart(inner) for key, inner in value.items()}
    return [_apart(inner) for inner in value] if isinstance(value, list) else copy.deepcopy(value)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def resolve_batch(config: Mapping[str, Any], ranks: int) -> tuple[int, int, int] | None:
    """Train batch, micro-batch and accumulation as DeepSpeed works them out (runtime/config.py).

    Returns:
        The three numbers in samples, samples per rank and micro-steps; None where DeepSpeed would refuse. AutoTP does
        not change them: DeepSpeed multiplies by all ranks.
    """
    written = [config.get(key) for key in BATCH_KEYS]
    if any(value is not None and not _is_count(value) for value in written):
        return None
    train, micro, steps = (value if _is_count(value) else 0 for value in written)  # 0: not written
    if not train and not micro:
        return None
    if train and micro:
        steps = steps or train // micro // ranks
    else:
        steps = steps or 1
        micro = micro or train // ranks // steps
        train = train or micro * steps * ranks
    return (train, micro, steps) if train == micro * steps * ranks else None


def _rescale(config: dict[str, Any], ranks: int) -> list[Adaptation]:
    """Make the batch fields those of a tiny run on these ranks; a contradiction stays, for DeepSpeed to say so."""
    written = {key: config[key] for key in BATCH_KEYS if config.get(key) is not None}
    if not all(_is_count(value) for value in written.values()):
        return []
    micro, steps = written.get(_MICRO), written.get(_STEPS)
    if _TRAIN in written and written[_TRAIN] % ((micro or 1) * (steps or 1)):
        return []
    used: dict[str, tuple[int, str]] = {}
    if micro is not None:
        used[_MICRO] = min(micro, _MICRO_BATCH), _LESS
    if steps is not None:
        used[_STEPS] = min(steps, _ACCUMULATION), _LESS
    if _TRAIN in written:
        tiny_micro, tiny_steps = (used[key][0] if key in used else 1 for key in (_MICRO, _STEPS))
        product = f"micro-batch {tiny_micro} x {ranks} ranks x {tiny_steps} micro-steps"
        used[_TRAIN] = tiny_micro * tiny_steps * ranks, product
    changes = [Adaptation(key, written[key], value, why) for key, (value, why) in used.items() if written[key] != value]
    config.update({change.key: change.used for change in changes})
    return changes


def _shrink(config: dict[str, Any], sharing: int) -> list[Adaptation]:
    """Make the tiny model, which so many ranks share, swap as the true one does: several groups, none of it in RAM."""
    zero = config.get("zero_optimization")
    if not isinstance(zero, dict):
        return []
    changes = []

    def use(section: dict[str, Any], path: str, value: int, why: str) -> None:
        key = path.rpartition(".")[2]
        if section.get(key) != value:
            changes.append(Adaptation(f"zero_optimization.{path}", section.get(key), value, why))
            section[key] = value

    optimizer, parameters = zero.get("offload_optimizer"), zero.get("offload_param")
    if isinstance(optimizer, dict) and optimizer.get("device") == "nvme":
        share = max(_SUB_GROUP // max(1, sharing), _LEAST_GROUP)
        use(zero, "sub_group_size", share, "the tiny model must have several groups to swap, as the true one has")
    if isinstance(parameters, dict) and parameters.get("device") == "nvme":
        use(zero, REUSE, 0, "the tiny model's tensors must leave their buffers between two uses, as a large model's do")
        use(parameters, "offload_param.max_in_cpu", 0, "the tiny model must go to the drive, as the true one does")
        use(parameters, "offload_param.buffer_size", _BUFFER_SIZE, "a buffer for the tiny model's own largest tensor")
    return changes


def _writes(section: Mapping[str, Any], key: str) -> bool:
    """Whether DeepSpeed would write where the key says; monitors fall back to the home folder."""
    if key == "nvme_path":
        return section.get("device") == "nvme" and section.get(key) is not None
    return section.get("enabled") is True and (key == "output_path" or bool(section.get(key)))


def _redirect(config: dict[str, Any], folder: str) -> list[Adaptation]:
    """Let DeepSpeed write into the proof's folder only."""
    changes = []
    for path in _PATHS:
        section: Any = config
        for name in path[:-1]:
            section = section.get(name) if isinstance(section, dict) else None
        if not isinstance(section, dict) or not _writes(section, path[-1]):
            continue
        target = f"{folder}/output" if path[-1] == "output_file" else folder
        changes.append(Adaptation(".".join(path), section.get(path[-1]), target, _TEMPORARY))
        section[path[-1]] = target
    return changes
