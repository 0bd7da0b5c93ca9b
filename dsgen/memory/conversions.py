"""What a checkpoint takes on disk, and the two scripts that turn one into another: the RAM and the disk of each.

Read in DeepSpeed 0.19.8: runtime/engine.py (_save_checkpoint, _save_zero_checkpoint), utils/zero_to_fp32.py and
checkpoint/ds_to_universal.py. Both scripts run behind training, on one machine. What a process of Python with torch
takes, some 0.2 GiB, comes on top.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dsgen.jobs.job import Job
from dsgen.memory.asked import asked_of, batchless, felt
from dsgen.memory.older_releases import shards_fp32
from dsgen.memory.states import FP32, States, states
from dsgen.strategies.strategies import Strategy

__all__ = ["TO_FP32", "UNIVERSAL", "Conversion", "conversions", "written"]

TO_FP32, UNIVERSAL = "zero_to_fp32", "ds_to_universal"
STATES = 3  # fp32 tensors of a trained element in a file of Adam's states: weight, exp_avg, exp_avg_sq
SHARD_BYTES = 5 * 10**9  # --max_shard_size of zero_to_fp32, "5GB"
EXTRACT_WORKERS, MERGE_WORKERS = 4, 2  # --num_extract_workers and --num_merge_workers of ds_to_universal
# Copies of a tensor in fp32 that a worker holds at most while it merges one: its shards, those of the state before it
# that Python has not collected yet (torch.load leaves them in a cycle), what both were put together to; below stage 3
# the one before once more, put together over ranks of tensor parallelism.
_MERGED_CUT, _MERGED = 4, 5
_ADAM = ("AdamW", "Adam")
_WHOLE = 3  # the stage that cuts the weights too


class Conversion(NamedTuple):
    """What one of the scripts takes, as it runs without options.

    Attributes:
        name: zero_to_fp32 or ds_to_universal.
        parts: Part -> bytes in RAM where that is most.
        disk_bytes: At most while it runs, beside the checkpoint itself.
        left_bytes: What stays of it.
        files: Files with weights that it writes.
        one_bytes: What stays where they are one file.
    """

    name: str
    parts: dict[str, int]
    disk_bytes: int
    left_bytes: int
    files: int
    one_bytes: int

    @property
    def ram_bytes(self) -> int:
        """Bytes in RAM, all processes together."""
        return sum(self.parts.values())


def conversions(job: Job, strategy: Strategy) -> tuple[Conversion, ...]:
    """What each script takes that turns a checkpoint of a strategy into something else; none where it does not.

    Stage 0 has one file already, AutoTP's shards are not joined, of adapters nothing else is saved, and what is on NVMe
    or in 16 bits was not looked at. ds_to_universal reads Adam's two moments, and needs several ranks for a reason.
    """
    swaps = "nvme" in (strategy.offload_optimizer, strategy.offload_param)
    if not strategy.stage or strategy.tp > 1 or job.training.method != "full" or swaps or job.narrow:
        return ()
    held = _held(job, strategy)
    made = [_to_fp32(held, strategy.stage, shards_fp32(job.version))]
    if job.training.optimizer in _ADAM and held.ranks > 1:
        made.append(_universal(held, strategy.stage, job.model.tied_embeddings))
    return tuple(made)


def written(job: Job, strategy: Strategy) -> dict[str, int]:
    """Bytes on disk of what the Trainer and Accelerate save once: weights in 16 bits, and the checkpoint behind them.

    Below stage 3 the checkpoint has the weights again. Nothing where the optimizer is on NVMe: not looked at.
    """
    if strategy.offload_optimizer == "nvme":
        return {}
    held = _held(job, strategy)
    whole = job.training.method == "full"
    weights = held.size * (held.numbers.total if whole else held.tensors.elements) * strategy.tp
    again = 0 if strategy.stage == _WHOLE else weights  # frozen weights stay out of a checkpoint of adapters
    ranks = held.ranks * strategy.tp if strategy.stage else strategy.tp
    sizes = {
        "weights": weights + again,
        "fp32 master weights": ranks * held.master,
        "optimizer states": ranks * (held.moments - held.early),
    }
    return {part: size for part, size in sizes.items() if size}


def _held(job: Job, strategy: Strategy) -> States:
    return states(asked_of(job, strategy), batchless(strategy), felt(strategy.buffers, strategy.stage))


def _to_fp32(held: States, stage: int, shards: bool) -> Conversion:
    """One set of weights in fp32, in files of 5 GB; older releases have all of them in RAM at every stage.

    Below stage 3 the tensors of a file are views of all weights, put together, and torch.save writes what a view is of:
    each file has them all. At stage 3 a file is put together when its turn comes. The ranks' files are mapped into
    memory, which the kernel gives back as it likes.
    """
    whole = FP32 * held.tensors.elements
    filled = [*_files([FP32 * numel for numel in held.tensors.numels])] if shards else [whole]
    ram, left = (max(filled), whole) if stage == _WHOLE else (whole, len(filled) * whole)
    return Conversion(TO_FP32, {"weights in fp32": ram}, left, left, len(filled), whole)


def _files(sizes: Sequence[int]) -> Iterator[int]:
    """Bytes of each file that tensors are written to, in their order (huggingface_hub, serialization/_base.py)."""
    filled = 0
    for size in sizes:
        if size > SHARD_BYTES:  # it has a file of its own, and those around it go on in theirs
            yield size
            continue
        if filled + size > SHARD_BYTES:
            yield filled
            filled = 0
        filled += size
    if filled:
        yield filled


def _universal(held: States, stage: int, tied: bool) -> Conversion:
    """A checkpoint for any number of ranks: every rank's states in a file of each tensor, then these put together.

    Workers read a rank's file each, and copy what they write tensor by tensor; then they merge a tensor each. Below
    stage 3 all weights are read once more for those that no optimizer has, as the second name of a tied embedding is,
    and stay beside; at stage 3 the states of rank 0 do.
    """
    elements, own, cut = held.tensors.elements, held.own, stage == _WHOLE
    workers = min(EXTRACT_WORKERS, held.ranks)
    largest = sorted(held.tensors.numels)[-MERGE_WORKERS:]
    split = {
        "optimizer states": workers * STATES * FP32 * own,
        "copies of tensors": workers * FP32 * (-(-largest[-1] // held.ranks) if cut else min(largest[-1], own)),
    }
    merged = {"copies of tensors": (_MERGED_CUT if cut else _MERGED) * FP32 * sum(largest)}
    again = 0 if cut or not tied else FP32 * held.tensors.head
    read = {} if cut else {"weights": held.size * held.numbers.total, "weights in fp32": again}
    parts = max(split, merged, read, key=lambda one: sum(one.values()))
    states_bytes = STATES * FP32 * elements
    beside = STATES * FP32 * own if cut else again
    left = states_bytes + beside + (0 if cut else held.size * held.numbers.total)
    disk = max(2 * states_bytes + beside, left)
    return Conversion(UNIVERSAL, {name: size for name, size in parts.items() if size}, disk, left, 1, left)
