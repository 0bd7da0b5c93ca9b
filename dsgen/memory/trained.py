"""The tensors that get a gradient, in the order of the model: what DeepSpeed flattens, partitions and reduces."""

from __future__ import annotations

import bisect
import functools
import itertools
import math

import attrs

from dsgen.parameters import Parameter, added, stretches
from dsgen.profiles import Model, Training

__all__ = [
    "AFTER",
    "BEFORE",
    "DIRECT",
    "GPTJ_ROTARY",
    "LEAVES",
    "PHI_ROTARY",
    "SHARDED",
    "Trained",
    "head_sharded",
    "sharded",
    "trained",
    "wide_adapters",
]

# AutoTP shards the linear layers inside the blocks; embeddings, norms and routers stay whole, and so do the biases of
# layers whose shares are added up.
SHARDED = ("attention", "mlp")
ADDED_UP = frozenset({"c_proj", "dense", "dense_4h_to_h", "down_proj", "fc2", "fc_out", "o_proj", "out_proj"})
# Model types whose output head it shards too: those with a plan of Hugging Face's that names the head, and GPT-NeoX. A
# head that is tied to the embedding is sharded where that plan names the embedding and DeepSpeed can take the loss from
# the shards, which it then does. Seen in the engine of 0.19.8 at degree 2 with every type it takes, tied and not.
HEAD_SHARDED = frozenset(
    {
        *("cohere", "gemma", "gemma2", "gemma3_text", "gpt_neox", "granite", "llama", "mistral", "phi"),
        *("qwen2", "qwen3", "smollm3", "starcoder2"),
    }
)
TABLE_SHARDED = frozenset(
    {"cohere", "gemma3_text", "granite", "llama", "mistral", "phi", "qwen2", "qwen3", "smollm3", "starcoder2"}
)
# Model types whose blocks multiply by their weights without torch's linear function: `x @ weight.T` in FalconLinear,
# `addmm` in Conv1D. Autograd keeps what was gathered for them until their backward. (So it does for experts.)
DIRECT = frozenset({"falcon", "gpt2"})
# Model types whose mixture DeepSpeed gathers whole at stage 3, its router among the experts, and whose gradients it
# takes when all of the mixture's are there (runtime/zero: z3 leaf modules).
LEAVES = frozenset({"mixtral", "qwen2_moe", "qwen3_moe"})
PHI_ROTARY = 32  # elements of a head that Phi rotates: partial_rotary_factor x head size of every Phi
GPTJ_ROTARY = 64  # elements of a head that GPT-J rotates (rotary_dim of its config)
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
    """

    numels: tuple[int, ...]
    blocks: tuple[int, ...]
    ends: tuple[int, ...]
    largest: int
    head: int
    tied: bool

    @property
    def elements(self) -> int:
        """All of them."""
        return self.ends[-1] if self.ends else 0

    def prefix(self, elements: int) -> int:
        """How many of the first tensors reach into the first `elements` elements."""
        return min(bisect.bisect_left(self.ends, elements) + 1, len(self.ends))


def head_sharded(model: Model) -> bool:
    """Whether tensor parallelism shards what makes the logits, and with it an embedding that is tied to it."""
    return model.architecture in (TABLE_SHARDED if model.tied_embeddings else HEAD_SHARDED)


def sharded(model: Model, item: Parameter, tp: int) -> int:
    """Elements of a model's tensor on one tensor-parallel rank."""
    name = item.name.rpartition(".")[0].rpartition(".")[2]
    if item.kind == "bias" and item.layer and name not in ADDED_UP:
        return math.ceil(item.numel / tp)
    head = item.kind == "head" or (item.kind == "embedding" and model.tied_embeddings)
    head = head or (item.kind == "bias" and not item.layer)  # the head's
    if (item.kind in SHARDED and item.layer) or (head and head_sharded(model)):
        return math.ceil(item.numel / tp)
    return item.numel


def wide_adapters(training: Training) -> bool:
    """Whether stage 3 has adapters in fp32 beside weights in 16 bits.

    peft makes them so, and those beside a base under zero.Init stay so; those of a base in 4 bits were cast before.
    Where a copy of the embedding is trained too, it is the first tensor, whose type all trained ones get (stage3.py,
    _create_param_groups_fp16_flat_cpu_memory: parameters wait on the CPU, or DeepSpeed refuses the two types).
    """
    return training.method == "lora" and not training.lora_train_embeddings


@functools.lru_cache(maxsize=1024)
def trained(
    model: Model, method: str, lora_rank: int, lora_targets: tuple[str, ...], tp: int, embeddings: bool = False
) -> Trained:
    """The tensors that one way of training gives a gradient to.

    Args:
        model: The architecture.
        method: full, lora or qlora.
        lora_rank: Rank of the adapters.
        lora_targets: Names of the matrices that get one.
        tp: AutoTP degree.
        embeddings: Copies of embedding and head are trained beside the adapters.

    Raises:
        DsgenError: The architecture is unknown, or a target names no matrix of it.
    """
    found = None if method == "full" else added(model, lora_rank, lora_targets, embeddings)
    numels: list[int] = []
    blocks: list[int] = []
    first, head, vocabulary = 0, 0, 0
    for stretch in stretches(model):
        row: list[int] = []
        for item in stretch.parameters:
            if found is None:
                numel = sharded(model, item, tp)
                row.append(numel)
                head = numel if item.kind == "head" and item.matrix else head
                vocabulary = max(vocabulary, numel if item.kind == "embedding" else 0)
            else:
                row += found.get(item.name, ())
                head = item.numel if item.kind == "head" and item.name in found else head
        for _ in range(stretch.repeats):
            numels += row
            blocks += [first if stretch.blocks else BEFORE if first == 0 else AFTER] * len(row)
            first += stretch.blocks
        if len(blocks) == len(stretch.parameters) and found is None:  # OPT lists the norm behind its blocks before them
            late = [item.name.rpartition(".")[0].endswith("final_layer_norm") for item in stretch.parameters]
            blocks = [AFTER if behind else block for behind, block in zip(late, blocks, strict=True)]
    tied = model.tied_embeddings and found is None
    return Trained(
        tuple(numels),
        tuple(blocks),
        tuple(itertools.accumulate(numels)),
        max(numels, default=0),
        vocabulary if tied else head,
        tied,
    )
