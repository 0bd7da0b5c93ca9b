"""Which functions make up the forward of every model type."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from dsgen.families import family_of, smollm3
from dsgen.memory.activations import llama
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Tape, Tensor
from dsgen.shapes.profiles import Model

__all__ = ["FamilyOfForwards", "eager", "family"]


def eager(model: Model, attention: str) -> bool:
    """Whether attention makes the matrix of scores: it is asked to, or its class has nothing else."""
    return attention == "eager" or attention not in family_of(model).kernels


class FamilyOfForwards(NamedTuple):
    """The forward of a model type.

    Attributes:
        before: From token ids to the first block: hidden states, what blocks save beside, what they only read, and
            what forward's variables refer to until its end.
        dense: A block with a plain feed-forward part.
        sparse: A block with experts.
        head: From the last block to the loss.
        every: Every so many-th block is `other`; 0 where none is.
        other: A block that differs from `dense` in what it computes, not in its weights.
        carries_weights: Forward refers to a block's attention weights, if it made them, until the next block has ended.
    """

    before: Callable[[Tape, Setting], tuple[Tensor, list[Tensor], list[Tensor], list[Tensor]]]
    dense: Callable[[Tape, Setting, Tensor], Tensor]
    sparse: Callable[[Tape, Setting, Tensor], Tensor]
    head: Callable[[Tape, Setting, Any], Tensor]
    carries_weights: bool = False
    every: int = 0
    other: Callable[[Tape, Setting, Tensor], Tensor] | None = None

    def order(self, dense: int, sparse: int) -> list[tuple[str, int]]:
        """Names of the kinds of blocks, as they follow each other, and how many of each."""
        if not self.every:
            return [("dense", dense), ("sparse", sparse)]
        return [("dense", self.every - 1), ("other", 1)] * (dense // self.every) + [("dense", dense % self.every)]

    def body(self, name: str) -> Any:
        """The block of a kind."""
        return getattr(self, name)


def _sparse_block(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    from dsgen.memory.activations.mixtures import mixture

    return llama.block(tape, on, hidden, feeding=mixture)


def _latent(*, sparse: bool) -> Callable[[Tape, Setting, Tensor], Tensor]:
    from dsgen.memory.activations.deepseek import latent_attention
    from dsgen.memory.activations.mixtures import mixture

    feeding = {"feeding": mixture} if sparse else {}
    return lambda tape, on, hidden: llama.block(tape, on, hidden, attending=latent_attention, **feeding)


_APART = frozenset(
    {"bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "opt", "phi"}
)  # LayerNorms, and no gated feed-forward part
# A block of their own between Llama's embedding and head.
_IN_LLAMAS_FRAME = frozenset({"cohere", "glm4", "granite", "granitemoe", "olmo2", "stablelm", "starcoder2"})
_MODULES = {  # where a block is that is not in gpts.py
    "cohere": "cohere",
    "falcon": "falcon",
    "glm4": "glm",
    "glm4_moe": "glm",
    "gpt_bigcode": "bigcode",
    "granite": "granite",
    "granitemoe": "granite",
    "olmo2": "olmo",
    "olmoe": "olmo",
    "phi": "partial",
    "stablelm": "partial",
    "starcoder2": "starcoder",
}
CARRYING = frozenset({"bloom", "falcon", "gptj"})
_LLAMA = FamilyOfForwards(llama.before, llama.block, _sparse_block, llama.head)


@functools.cache
def family(architecture: str) -> FamilyOfForwards:
    """The forward of a model type; one that differs from Llama's is imported when it is asked for."""
    if architecture in ("deepseek_v2", "deepseek_v3"):
        return FamilyOfForwards(llama.before, _latent(sparse=False), _latent(sparse=True), llama.head)
    if architecture in ("glm4_moe", "olmoe"):
        attending = getattr(_module(_MODULES[architecture]), f"{architecture}_attention")
        mixture = _module("mixtures").mixture
        dense = functools.partial(llama.block, attending=attending)
        return FamilyOfForwards(llama.before, dense, functools.partial(dense, feeding=mixture), llama.head)
    if architecture == "smollm3":
        plain = functools.partial(llama.block, attending=functools.partial(llama.attention, rope=False))
        return _LLAMA._replace(every=smollm3.INTERVAL, other=plain)
    if architecture not in _APART and architecture not in _IN_LLAMAS_FRAME:
        return _LLAMA
    frame = llama if architecture in _IN_LLAMAS_FRAME else _module("gpts")
    block = getattr(_module(_MODULES.get(architecture, "gpts")), f"{architecture}_block")
    return FamilyOfForwards(frame.before, block, block, frame.head, architecture in CARRYING)


def _module(name: str) -> Any:
    return importlib.import_module(f"dsgen.memory.activations.{name}")
