"""What a checkpoint takes on disk, and the two scripts that turn one into another: the RAM and the disk of each.

Read in DeepSpeed 0.19.8: runtime/engine.py (_save_checkpoint, _save_zero_checkpoint), utils/zero_to_fp32.py and
checkpoint/ds_to_universal.py. Both scripts run behind training, on one machine. What a process of Python with torch
takes, some 0.2 GiB, comes on top.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dsgen.families.parameters import parameters
from dsgen.jobs.job import Job
from dsgen.memory.asked import asked_of, batchless, felt
from dsgen.memory.numbers import quantized
from dsgen.memory.older_releases import shards_fp32, shares_out_at_0
from dsgen.memory.quantized_base import Scales
from dsgen.memory.states import FP32, States, states
from dsgen.memory.swapped_parameters import LEAST_BYTES
from dsgen.memory.trained import wide_adapters
from dsgen.shapes.profiles import Model
from dsgen.strategies.strategies import Strategy

__all__ = [
    "TO_FP32",
    "UNIVERSAL",
    "Afterwards",
    "Conversion",
    "Unconverted",
    "afterwards",
    "conversions",
    "scales_of",
    "tied_elements",
    "unconverted",
    "written",
]

TO_FP32, UNIVERSAL = "zero_to_fp32", "ds_to_universal"
STATES = 3  # fp32 tensors of a trained element in a file of Adam's states: weight, exp_avg, exp_avg_sq
SHARD_BYTES = 5 * 10**9  # --max_shard_size of zero_to_fp32, "5GB"
EXTRACT_WORKERS, MERGE_WORKERS = 4, 2  # --num_extract_workers and --num_merge_workers of ds_to_universal
# Copies of a tensor in fp32 that a worker holds at most while it merges one: its shards, those of the state before it
# that Python has not collected yet (torch.load leaves them in a cycle), what both were put together to; below stage 3
# the one before once more, put together over ranks of tensor parallelism.
_MERGED_CUT, _MERGED = 4, 5
_ADAM = ("AdamW", "Adam")
_LION = "Lion"  # stepped on the CPU it has a second moment, of zeros (ops/lion/cpu_lion.py)
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


class Unconverted(NamedTuple):
    """A script that cannot turn a checkpoint into something else.

    Attributes:
        name: zero_to_fp32 or ds_to_universal.
        reason: Why it stops at it, and what does the same; behind a colon.
    """

    name: str
    reason: str


class Afterwards(NamedTuple):
    """What a checkpoint takes, and what comes of it behind training.

    Attributes:
        written: Part -> bytes on disk, as `written` has them.
        conversions: What each script takes that turns it into something else.
        unconverted: The scripts that stop at it.
    """

    written: dict[str, int]
    conversions: tuple[Conversion, ...]
    unconverted: tuple[Unconverted, ...]


def afterwards(job: Job, strategy: Strategy) -> Afterwards:
    """All that is known of a strategy's checkpoint."""
    return Afterwards(written(job, strategy), conversions(job, strategy), unconverted(job, strategy))


def conversions(job: Job, strategy: Strategy) -> tuple[Conversion, ...]:
    """What each script takes that turns a checkpoint of a strategy into something else; none where it does not.

    Of adapters the checkpoint has nothing else, as the Trainer saves it (exclude_frozen_parameters), and so has what
    they are turned into. AutoTP's shards and states in 16 bits were not counted. ds_to_universal needs several ranks
    for a reason.
    """
    stops = {one.name for one in unconverted(job, strategy)}
    if not strategy.stage or strategy.tp > 1 or job.narrow:
        return ()
    held = _held(job, strategy)
    made = []
    if TO_FP32 not in stops:
        made.append(_to_fp32(held, strategy.stage, shards_fp32(job.version)))
    if UNIVERSAL not in stops and held.ranks > 1:
        named = tied_elements(job.model), job.training.method != "full"
        made.append(_universal(held, strategy.stage, *named, _scales(job, held)))
    return tuple(made)


def unconverted(job: Job, strategy: Strategy) -> tuple[Unconverted, ...]:
    """The scripts that stop at a checkpoint of a strategy, as both of 0.19.8 do at real ones."""
    if not strategy.stage:
        if shares_out_at_0(job.version) and strategy.precision == "bf16":  # it has states of each rank: not looked at
            return ()
        what = "at stage 0 it has no shards, but one file with weights and states"
        return Unconverted(TO_FP32, what), Unconverted(UNIVERSAL, what)
    held = _held(job, strategy)
    if held.swaps and FP32 * held.own >= LEAST_BYTES:
        what = "it has the states of an optimizer on NVMe as bare files (offloaded_tensors), which neither script reads"
        return Unconverted(TO_FP32, what), Unconverted(UNIVERSAL, what)
    stops = []
    if strategy.tp > 1:
        what = "with AutoTP it has more files of states than data-parallel ranks"
        stops.append(Unconverted(TO_FP32, f"{what}; dsgen needs has the call that joins the weights"))
    optimizer = job.training.optimizer
    if optimizer not in _ADAM and not (optimizer == _LION and not held.on_gpu):
        what = f"it reads the two moments of Adam, and {optimizer} has other states"
        stops.append(Unconverted(UNIVERSAL, what))
    return tuple(stops)


def written(job: Job, strategy: Strategy) -> dict[str, int]:
    """Bytes on disk of what the Trainer and Accelerate save once: weights in 16 bits, and the checkpoint behind them.

    Below stage 3 the checkpoint has the weights again. Of adapters it has nothing else but, below stage 3, a tied
    embedding, and the scales of a base in 4 bits, which are no parameters: at stage 3 each rank's file has all. States
    on NVMe are copied file by file.
    """
    held = _held(job, strategy)
    whole = job.training.method == "full"
    weights = held.size * (held.numbers.total if whole else held.tensors.elements) * strategy.tp
    named = 0 if whole else held.size * tied_elements(job.model) * strategy.tp
    again = 0 if strategy.stage == _WHOLE else weights + named
    if strategy.stage == _WHOLE and wide_adapters(job.training):  # rank 0 gathers adapters as they are
        weights = FP32 * held.tensors.elements
    ranks = held.ranks * strategy.tp if strategy.stage else strategy.tp
    sizes = {
        "weights": weights + again,
        "scales of the base": scales_of(job, held) * (held.ranks if strategy.stage == _WHOLE else 1),
        "fp32 master weights": ranks * held.master,
        "optimizer states": ranks * (held.moments - held.early),
    }
    return {part: size for part, size in sizes.items() if size}


def tied_elements(model: Model) -> int:
    """Elements of an embedding that is the head too, else 0: a state dict has it under two names.

    exclude_frozen_parameters leaves out what it finds under the first, so below stage 3 a checkpoint of adapters has
    the embedding.
    """
    return max(item.numel for item in parameters(model) if item.kind == "embedding") if model.tied_embeddings else 0


def scales_of(job: Job, held: States) -> int:
    """Bytes of the scales of a base in 4 bits, which a checkpoint has beside adapters; else 0.

    A state dict has them without the weights they belong to: exclude_frozen_parameters leaves out parameters alone.
    """
    return _scales(job, held).size


def _scales(job: Job, held: States) -> Scales:
    packed = held.numbers.frozen_linear if quantized(job.model, job.training.method) else 0
    return Scales.of(job.training, packed)


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


def _universal(held: States, stage: int, tied: int, adapted: bool, scales: Scales) -> Conversion:
    """A checkpoint for any number of ranks: every rank's states in a file of each tensor, then these put together.

    Workers read a rank's file each, and copy what they write tensor by tensor; then they merge a tensor each. Below
    stage 3 all weights are read once more for those that no optimizer has, as the second name of a tied embedding and
    the scales of a base in 4 bits are, which come in fp32, and stay beside; at stage 3 the states of rank 0 do.
    """
    elements, own, cut = held.tensors.elements, held.own, stage == _WHOLE
    workers = min(EXTRACT_WORKERS, held.ranks)
    largest = sorted(held.tensors.numels)[-MERGE_WORKERS:]
    split = {
        "optimizer states": workers * STATES * FP32 * own,
        "copies of tensors": workers * FP32 * (-(-largest[-1] // held.ranks) if cut else min(largest[-1], own)),
    }
    merged = {"copies of tensors": (_MERGED_CUT if cut else _MERGED) * FP32 * sum(largest)}
    again = 0 if cut else FP32 * tied
    saved = (
        held.ranks * scales.size if cut else held.size * (elements + tied * adapted) + scales.size
    )  # what is beside states in the checkpoint
    read = {} if cut else {"weights": saved, "weights in fp32": again}
    parts = max(split, merged, read, key=lambda one: sum(one.values()))
    states_bytes = STATES * FP32 * elements
    beside = STATES * FP32 * own if cut else again + FP32 * scales.numel
    left = states_bytes + beside + saved
    disk = max(2 * states_bytes + beside, left)
    return Conversion(UNIVERSAL, {name: size for name, size in parts.items() if size}, disk, left, 1, left)
