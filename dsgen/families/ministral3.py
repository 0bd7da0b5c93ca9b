"""Ministral 3: Mistral with heads of a size of their own, whose queries are scaled by their position."""

from __future__ import annotations

import attrs

from dsgen.families.config_keys import keys
from dsgen.families.mistral import MISTRAL
from dsgen.families.parts.llama import llama_forward, project
from dsgen.families.parts.rotary import rotate
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import attend
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["MINISTRAL3"]


@forward
def _attention(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """Ministral3Attention: queries are multiplied by a number of their position, which every block makes."""
    project(my, tape, on, hidden, bias=False)
    table = on.table(on.model.head_size)
    my.query, my.key = rotate(tape, my.query, table, table), rotate(tape, my.key, table, table)
    scale = op.cast(tape, tape.make((on.seq_len, 0), 1, op.FP32), on.item)
    my.query = op.mul(tape, my.query, scale)
    out, weights = attend(tape, on, my.query, my.key, my.value)
    return on.linear(tape, out, on.hidden, "o_proj"), weights


MINISTRAL3 = attrs.evolve(
    MISTRAL,
    model_type="ministral3",
    huggingface="Ministral3ForCausalLM",
    keys=keys(34, 4096, 32, 8, 128, 14336, 131072, 262144, tied=False, sliding_window=0),
    forward=llama_forward(attending=_attention),
)
