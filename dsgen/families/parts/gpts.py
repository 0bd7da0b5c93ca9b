"""Parts of the forwards of GPT-2 and of models with LayerNorms after it: sizes on a tape.

Source: transformers 5.23, models/{gpt2,gpt_neox}/modeling_*.py.
"""

from __future__ import annotations

from dsgen.families.parts.rotary import masks_of, note_mask, note_positions, note_tables
from dsgen.families.tape import operators as op
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Before, Block
from dsgen.families.tape.norms import layer_norm
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = ["embed", "head", "learned", "megatron_mlp", "rotary"]


def embed(tape: Tape, on: Execution) -> tuple[Tensor, list[Tensor]]:
    """What is embedded; and what blocks only read: positions, and a mask where attention gets one."""
    width = on.model.embedding_size or on.hidden
    embedded = op.embedding(tape, on.rows, on.outer(on.model.vocab_size * width), width)
    on.ask(tape, embedded)
    ids = tape.make((on.seq_len, 0), 1, op.INDEX)
    if tape.works:
        note_positions(tape, on)
        if on.eager or on.masked or on.windowed:
            note_mask(tape, on)
    return embedded, [ids, *masks_of(tape, on)]


def learned(tape: Tape, on: Execution, *, drop: bool) -> Before:
    """Embedding and learned positions, and a dropout (`drop`) of their sum."""
    embedded, read = embed(tape, on)
    positions = op.embedding(tape, (on.seq_len, 0), on.weight(on.model.max_positions * on.hidden), on.hidden)
    hidden = op.dropout(tape, op.add(tape, embedded, positions), drop)
    return hidden, [], read, [embedded, positions]


def rotary(tape: Tape, on: Execution, size: int) -> Before:
    """Embedding, and rope tables for so many elements of a head."""
    embedded, read = embed(tape, on)
    tables = [tape.make((on.seq_len, 0), size, on.item) for _ in range(2)]
    if tape.works:
        note_tables(tape, on, size, on.item)
    return embedded, tables, read, [embedded]


@forward
def megatron_mlp(_: Names, tape: Tape, on: Execution, hidden: Tensor, *, bias: bool = True) -> Tensor:
    """Two matrices with a GELU between them, by Megatron's names."""
    states = on.linear(tape, hidden, on.ffn, "dense_h_to_4h", bias=bias)
    states = op.gelu(tape, states)
    return on.linear(tape, states, on.hidden, "dense_4h_to_h", bias=bias)


def head(tape: Tape, on: Execution, hidden: Tensor, *, final: Block = layer_norm, bias: bool = False) -> Tensor:
    """Final norm, output head and loss.

    Args:
        tape: The tape.
        on: The setting.
        hidden: What goes in, which is dropped with the model's own forward.
        final: What comes before the head.
        bias: The head has a bias.
    """
    states = final(tape, on, hidden)
    if on.chunked:
        return on.chunked_loss(tape, states)
    return on.scored(tape, states, lambda tape, one: on.logits(tape, one, bias=bias))
