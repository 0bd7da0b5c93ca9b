"""Gemma, Gemma 2 and the language model of Gemma 3: norms that add 1 to their weight, a large tied vocabulary."""

from __future__ import annotations

import functools

import attrs

from dsgen.families import rows
from dsgen.families.config_keys import keys
from dsgen.families.family import AutoTP, Family
from dsgen.families.orders import ATTENTION, EMBEDDING, FIRST, GATED, HEAD_NORMS, OUT, SECOND, Order
from dsgen.families.parts import llama
from dsgen.families.tape import liger
from dsgen.families.tape import operators as op
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Before
from dsgen.families.tape.norms import gemma_norm
from dsgen.families.tape.tape import Tape, Tensor

__all__ = ["GEMMA", "GEMMA2", "GEMMA3_TEXT"]

_SANDWICH = f"{SECOND} pre_feedforward_layernorm {GATED} post_feedforward_layernorm"
_WHOLE_EVERY = 6  # so many-th block of Gemma 3 has no window (Gemma3TextConfig, sliding_window_pattern)
_DENSE = (*rows.attention(bias="attention_bias"), *rows.gated_mlp())


def _capped(tape: Tape, logits: Tensor) -> Tensor:
    """Logits through a tanh."""
    return op.scaled(tape, op.tanh(tape, op.scaled(tape, logits)))


def _both_tables(tape: Tape, on: Execution) -> Before:
    """The embedding, with rope tables for each kind of block that there is."""
    kinds = 2 if on.model.layers >= _WHOLE_EVERY else 1
    return llama.before(tape, on, multiplied=True, masks=2, pairs=kinds)


GEMMA = Family(
    model_type="gemma",
    huggingface="GemmaForCausalLM",
    keys=keys(28, 3072, 16, 16, 256, 24576, 256000, 8192, tied=True, attention_bias=False),
    layout=rows.llama_frame(dense=(*_DENSE, *rows.TWO_NORMS)),
    forward=llama.llama_forward(norm=gemma_norm, liger_norm=liger.norm),
    autotp=AutoTP(head=True),
)
GEMMA2 = attrs.evolve(
    GEMMA,
    model_type="gemma2",
    huggingface="Gemma2ForCausalLM",
    keys=keys(26, 2304, 8, 4, 256, 9216, 256000, 8192, tied=True, attention_bias=False, sliding_window=4096),
    layout=rows.llama_frame(dense=(*_DENSE, *rows.FOUR_NORMS)),
    forward=llama.llama_forward(
        attending=functools.partial(llama.attention, cap=True),
        norms=llama.AROUND,
        norm=gemma_norm,
        liger_norm=liger.norm_apart,
        before=functools.partial(llama.before, masks=2),
        head=functools.partial(llama.head, shaped=_capped),
    ),
    order=Order(dense=f"{FIRST} {ATTENTION} {OUT} {_SANDWICH}"),
    kernels=("flash",),
    windowed=lambda block: block % 2 == 0,
)
GEMMA3_TEXT = attrs.evolve(
    GEMMA,
    model_type="gemma3_text",
    huggingface="Gemma3ForCausalLM",
    keys=keys(26, 2304, 8, 4, 256, 9216, 262208, 131072, tied=True, attention_bias=False, sliding_window=4096),
    layout=rows.llama_frame(
        dense=(*rows.attention(bias="attention_bias", qk_norm=True), *rows.gated_mlp(), *rows.FOUR_NORMS)
    ),
    forward=llama.llama_forward(
        attending=functools.partial(llama.attention, head_norms=True, by_head=True),
        norms=llama.AROUND,
        norm=gemma_norm,
        liger_norm=liger.norm_apart,
        liger_head_norm=liger.norm_by_head,
        before=_both_tables,
    ),
    # Positions of windowed and of whole attention are made apart.
    order=Order(dense=f"{FIRST} {ATTENTION} {HEAD_NORMS} {OUT} {_SANDWICH}", ahead=f"{EMBEDDING} rotary_emb"),
    windowed=lambda block: (block + 1) % _WHOLE_EVERY != 0,
    autotp=AutoTP(head=True, tied_head=True),
    liger_since=(0, 5, 7),
    overflows=True,  # on a T4 or V100, with gradients (https://unsloth.ai/blog/gemma3, 14 March 2025)
)
