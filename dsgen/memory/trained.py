"""The tensors that get a gradient, in the order of the model: what DeepSpeed flattens, partitions and reduces."""

from __future__ import annotations

import bisect
import functools
import itertools
import math

import attrs

from dsgen.families.parameters import Parameter, added, stretches
from dsgen.shapes.profiles import Model, Training

__all__ = [
    "AFTER",
    "BEFORE",
    "Trained",
    "narrow_adapters",
    "trained",
    "wide_adapters",
]

BEFORE, AFTER = -1, 1_000_000  # block numbers of what lies before the first block and behind the last one


@attrs.frozen(eq=False, repr=False)
class Trained:
    """Tensors with a gradient on one tensor-parallel rank.

    Attributes:
        numels: Elements of each tensor, in the order of the model.
        blocks: Block of each tensor, counted from 0; BEFORE and AFTER for what is around the blocks.
        ends: Elements up to and with each tensor.
        largest: Elements of the largest tensor.
        head: Elements of the matrix that makes the logits, where it gets a gradient.
        tied: Whether that matrix is the embedding.
        table: Index of the embedding where it is the first tensor of the model.
        shapes: Where Muon is the optimizer, of each tensor that it steps itself; () of the others.
        split: How many of the first tensors are a group of Muon's own, cut apart; 0 where the order is the model's.
    """

    numels: tuple[int, ...]
    blocks: tuple[int, ...]
    ends: tuple[int, ...]
    largest: int
    head: int
    tied: bool
    table: int = 0
    shapes: tuple[tuple[int, ...], ...] = ()
    split: int = 0

    @property
    def groups(self) -> tuple[tuple[int, int], ...]:
        """The groups of the optimizer, which ZeRO cuts apart: where each begins, in tensors and in elements."""
        if self.split in (0, len(self.numels)):
            return ((0, 0),)
        return (0, 0), (self.split, self.ends[self.split - 1])

    @property
    def elements(self) -> int:
        """All of them."""
        return self.ends[-1] if self.ends else 0

    def prefix(self, elements: int) -> int:
        """How many of the first tensors reach into the first `elements` elements."""
        return min(bisect.bisect_left(self.ends, elements) + 1, len(self.ends))


def wide_adapters(training: Training) -> bool:
    """Whether stage 3 has adapters in fp32 beside weights in 16 bits.

    peft makes them so where nobody says autocast_adapter_dtype=False, and those beside a base under zero.Init stay so;
    those of a base in 4 bits were cast before, and without zero.Init DeepSpeed casts all of them (runtime/engine.py,
    _configure_distributed_model).
    Where a copy of the embedding is trained too, it is the first tensor, whose type all trained ones get (stage3.py,
    _create_param_groups_fp16_flat_cpu_memory: parameters wait on the CPU, or DeepSpeed refuses the two types).
    """
    return training.method == "lora" and not (training.lora_train_embeddings or narrow_adapters(training))


def narrow_adapters(training: Training) -> bool:
    """Whether adapters are in 16 bits at stage 3 whatever made the model: peft was told so, or DeepSpeed cast them."""
    return not (training.lora_fp32 and training.zero_init)


@functools.lru_cache(maxsize=1024)
def trained(
    model: Model,
    method: str,
    lora_rank: int,
    lora_targets: tuple[str, ...],
    tp: int,
    embeddings: bool = False,
    muon: int | None = None,
) -> Trained:
    """The tensors that one way of training gives a gradient to.

    Args:
        model: The architecture.
        method: full, lora or qlora.
        lora_rank: Rank of the adapters.
        lora_targets: Names of the matrices that get one.
        tp: AutoTP degree.
        embeddings: Copies of embedding and head are trained beside the adapters.
        muon: The ZeRO stage, where Muon is the optimizer. At 1 and 2 those that it steps itself come before all
            others, the largest first (original_muon.py, MuonWithAuxAdam); at 3 no tensor tells its shape by then.

    Raises:
        DsgenError: The architecture is unknown, or a target names no matrix of it.
    """
    beside = None if method == "full" else added(model, lora_rank, lora_targets, embeddings)
    numels: list[int] = []
    blocks: list[int] = []
    shapes: list[tuple[int, ...]] = []
    first, head, vocabulary = 0, 0, 0
    for stretch in stretches(model):
        row: list[int] = []
        shaped: list[tuple[int, ...]] = []
        for item in stretch.parameters:
            before = len(row)
            if beside is None:
                numel = item.sharded(tp)
                row.append(numel)
                head = numel if item.kind == "head" and item.matrix else head
                vocabulary = max(vocabulary, numel if item.kind == "embedding" else 0)
            else:
                row += beside.get(item.name, ())
                head = item.numel if item.kind == "head" and item.name in beside else head
            if muon is not None:
                rank = 0 if beside is None else lora_rank
                shaped += [_shape(item, numel, place, tp, rank) for place, numel in enumerate(row[before:])]
        for _ in range(stretch.repeats):
            numels += row
            shapes += shaped
            blocks += [first if stretch.blocks else BEFORE if first == 0 else AFTER] * len(row)
            first += stretch.blocks
        if (
            len(blocks) == len(stretch.parameters) and beside is None
        ):  # OPT lists the norm behind its blocks before them
            late = [item.name.rpartition(".")[0].endswith("final_layer_norm") for item in stretch.parameters]
            blocks = [AFTER if behind else block for behind, block in zip(late, blocks, strict=True)]
    tied = model.tied_embeddings and beside is None
    order = sorted(range(len(numels)), key=lambda index: shapes[index], reverse=True) if muon in (1, 2) else ()
    if order:
        shapes = [shapes[index] for index in order]
        numels, blocks = [numels[index] for index in order], [blocks[index] for index in order]
    return Trained(
        tuple(numels),
        tuple(blocks),
        tuple(itertools.accumulate(numels)),
        max(numels, default=0),
        vocabulary if tied else head,
        tied,
        order.index(0) if order else 0,
        tuple(shapes),
        sum(map(bool, shapes)) if order else 0,
    )


def _stepped(item: Parameter) -> bool:
    """Whether Muon steps a matrix of this name; the others get Adam (deepspeed/__init__.py, set_optimizer_flags)."""
    return not any(word in item.name for word in ("embed", "lm_head"))


def _shape(item: Parameter, numel: int, place: int, tp: int, lora_rank: int) -> tuple[int, ...]:
    """The shape of what Muon steps, and nothing where it does not.

    Args:
        item: The tensor, or the one beside which an adapter is.
        numel: Its elements on one tensor-parallel rank, or the adapter's.
        place: Where it is among the adapters of the tensor: the first, which is applied first, has few rows.
        tp: AutoTP degree.
        lora_rank: Rank of the adapters; 0 without.
    """
    if len(item.shape) < 2 or not _stepped(item):
        return ()
    *many, rows, columns = item.shape
    if lora_rank and numel != item.numel:
        rank = lora_rank * math.prod(many)
        return (numel // rank, rank) if place % 2 else (rank, numel // rank)
    if numel != item.numel:
        rows, columns = (rows, columns // tp) if item.added_up else (rows // tp, columns)
    return (*many, rows, columns)
