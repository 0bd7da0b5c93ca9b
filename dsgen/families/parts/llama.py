"""Parts of Llama's forward, which later models are made after, each with what differs in theirs: sizes on a tape.

Source: transformers 5.23, models/llama/modeling_llama.py. Names are those of the class: they decide how long a tensor
lives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from dsgen.families.parts.rotary import masks_of, note_mask, note_positions, note_tables, rotate
from dsgen.families.tape import liger
from dsgen.families.tape import operators as op
from dsgen.families.tape.attending import attend
from dsgen.families.tape.execution import Execution
from dsgen.families.tape.forwards import Before, Block, Forward
from dsgen.families.tape.norms import Norm, head_norm, norm, rms_norm
from dsgen.families.tape.tape import Names, Tape, Tensor, forward

__all__ = [
    "AROUND",
    "BEFORE",
    "BEHIND",
    "Attending",
    "attention",
    "before",
    "block",
    "head",
    "llama_forward",
    "mlp",
    "paired_mlp",
    "project",
]

BEFORE, AROUND, BEHIND = "before", "around", "behind"  # where a block's norms are, of its two parts
Attending = Callable[
    [Tape, Execution, Tensor], tuple[Tensor, Tensor | None]
]  # the output, and the weights if there are


def project(my: Names, tape: Tape, on: Execution, hidden: Tensor, *, bias: bool, by_head: bool = False) -> None:
    """Give a forward its query, key and value, of all heads; `by_head` says that what is next has them head by head."""
    size = on.model.head_size
    if on.joins:
        widths = on.heads * size, on.kv_heads * size, on.kv_heads * size
        parts = op.split(tape, on.together(tape, hidden, widths, bias=bias), *widths)
        my.query, my.key, my.value = parts if on.kv_heads == on.heads else (_spread(tape, on, one) for one in parts)
        return
    turned = _viewed if on.model.liger_kernels and not by_head else op.transposed
    my.query = turned(tape, on.linear(tape, hidden, on.heads * size, "q_proj", bias=bias))
    my.key = turned(tape, on.linear(tape, hidden, on.kv_heads * size, "k_proj", bias=bias))
    my.value = on.linear(tape, hidden, on.kv_heads * size, "v_proj", bias=bias)
    if on.eager:
        my.value = op.transposed(tape, my.value)


def _viewed(tape: Tape, tensor: Tensor) -> Tensor:
    """`view(...).transpose(1, 2)` before Liger's RoPE, whose gradients lie as the tensor does."""
    tape.dispatches(views=4)  # with those of backward
    made, rows, width = op.view(tensor), tensor.rows, tensor.width
    return tape.node(made, (tensor,), None, lambda gradient: [op.view(gradient, rows, width)])  # type: ignore[no-any-return]


def _spread(tape: Tape, on: Execution, tensor: Tensor) -> Tensor:
    """Queries, keys or values laid out anew, for every query head; backward sums them."""
    made = tape.make(tensor.rows, on.heads * on.model.head_size, tensor.item)
    return tape.node(made, (tensor,), None, lambda _: [tape.like(tensor)])  # type: ignore[no-any-return]


@forward
def attention(
    my: Names,
    tape: Tape,
    on: Execution,
    hidden: Tensor,
    *,
    biased: bool = False,
    head_norms: bool = False,
    rope: bool = True,
    cap: bool = False,
    by_head: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """LlamaAttention.

    Args:
        my: Its names.
        tape: The tape.
        on: The setting.
        hidden: What goes in.
        biased: Query, key and value have biases, whatever the config says.
        head_norms: There is a norm over every head of queries and keys.
        rope: Queries and keys are rotated.
        cap: Scores pass a tanh.
        by_head: Norms over heads get them head by head, as they lie behind the transposition.
    """
    model = on.model
    project(my, tape, on, hidden, bias=biased or model.attention_bias, by_head=by_head)
    if head_norms:
        my.query = head_norm(tape, on, my.query, on.heads)
        my.key = head_norm(tape, on, my.key, on.kv_heads)
    if rope and model.liger_kernels:
        table = on.table(model.head_size)
        my.query, my.key = liger.rotated(tape, my.query, my.key, table, table, on.eager, by_head)
    elif rope:
        table = on.table(model.head_size)
        tape.dispatches(views=2)
        my.query, my.key = rotate(tape, my.query, table, table), rotate(tape, my.key, table, table)
    kv_heads = on.heads if on.joins else on.kv_heads
    out, weights = attend(tape, on, my.query, my.key, my.value, kv_heads=kv_heads, cap=cap, drop=model.dropout)
    out = on.linear(tape, out, on.hidden, "o_proj", bias=model.attention_bias)
    return op.dropout(tape, out, model.dropout), weights


@forward
def mlp(_: Names, tape: Tape, on: Execution, hidden: Tensor, width: int = 0) -> Tensor:
    """LlamaMLP: down(act(gate(x)) * up(x))."""
    width, bias = width or on.ffn, on.model.mlp_bias
    if on.model.liger_kernels:
        gate = on.linear(tape, hidden, width, "gate_proj", bias=bias)
        product = liger.gated(tape, gate, on.linear(tape, hidden, width, "up_proj", bias=bias))
        return on.linear(tape, product, on.hidden, "down_proj", bias=bias)
    gate = op.silu(tape, on.linear(tape, hidden, width, "gate_proj", bias=bias))
    up = on.linear(tape, hidden, width, "up_proj", bias=bias)
    return on.linear(tape, op.mul(tape, gate, up), on.hidden, "down_proj", bias=bias)


@forward
def paired_mlp(my: Names, tape: Tape, on: Execution, hidden: Tensor) -> Tensor:
    """Phi3MLP and Glm4MLP: gate and up are one matrix."""
    my.gate, up = op.split(tape, on.linear(tape, hidden, 2 * on.ffn, "gate_up_proj"), on.ffn, on.ffn)
    product = op.mul(tape, up, op.silu(tape, my.gate))
    return on.linear(tape, product, on.hidden, "down_proj")


@forward
def block(
    my: Names,
    tape: Tape,
    on: Execution,
    hidden: Tensor,
    *,
    attending: Attending = attention,
    feeding: Block = mlp,
    norms: str = BEFORE,
) -> Tensor:
    """LlamaDecoderLayer.

    Args:
        my: Its names.
        tape: The tape.
        on: The setting.
        hidden: What goes in.
        attending: The attention.
        feeding: The feed-forward part.
        norms: BEFORE each of the two, AROUND or BEHIND it.
    """
    my.states = hidden if norms == BEHIND else norm(tape, on, hidden)
    my.states, my.weights = attending(tape, on, my.states)
    if norms != BEFORE:
        my.states = norm(tape, on, my.states)
    hidden = op.add(tape, hidden, my.states)
    my.states = hidden if norms == BEHIND else norm(tape, on, hidden)
    my.states = feeding(tape, on, my.states)
    if norms != BEFORE:
        my.states = norm(tape, on, my.states)
    return op.add(tape, hidden, my.states)


def before(
    tape: Tape,
    on: Execution,
    *,
    multiplied: bool = False,
    remembered: bool = False,
    masks: int = 1,
    part: int = 1,
    pairs: int = 1,
    item: int | None = None,
) -> Before:
    """Embedding, masks and rope tables.

    Args:
        tape: The tape.
        on: The setting.
        multiplied: The embedding is multiplied by a number.
        remembered: The graph refers to what was embedded too, where checkpointing asks for its gradient.
        masks: Of an attention that gets one: one for blocks with a window, one for those without.
        part: Tables are for this part of a head: half of it, a quarter ...
        pairs: Of tables: for blocks with a window and without.
        item: Bytes of a number of a table, where they are not those of a hidden state.
    """
    model = on.model
    hidden = op.embedding(tape, on.rows, on.outer(model.vocab_size * model.hidden_size), model.hidden_size)
    on.ask(tape, hidden)
    embedded = hidden
    if multiplied:
        hidden = op.scaled(tape, hidden)
    hidden = op.dropout(tape, hidden, model.dropout)
    ids = tape.make((on.seq_len, 0), 1, op.INDEX)
    read = masks_of(tape, on, masks)
    size = (model.qk_rope_head_size or model.head_size) // part
    tables = [tape.make((on.seq_len, 0), size, item or on.item) for _ in range(2 * pairs)]
    if tape.works:
        note_positions(tape, on, masks)
        for _ in read:
            note_mask(tape, on)
        for _ in range(pairs):
            note_tables(tape, on, size, item or on.item)
    # Forward refers to what was embedded, after what is done to it; the graph to what checkpointing asks of it.
    referred = [embedded] if model.dropout else [hidden]
    if on.asks and remembered:
        referred = [embedded, hidden]
    tape.hold(embedded)
    return hidden, tables, [ids, *read], referred


def head(
    tape: Tape, on: Execution, hidden: Tensor, *, shaped: Callable[[Tape, Tensor], Tensor] | None = None
) -> Tensor:
    """Final norm, output head and loss; `shaped` is what is done to the logits before."""
    states = norm(tape, on, hidden)  # what goes in is dropped with the model's own forward
    if on.chunked:
        return on.chunked_loss(tape, states)

    def made(tape: Tape, one: Tensor) -> Tensor:
        logits = on.logits(tape, one)
        return shaped(tape, logits) if shaped else logits

    return on.scored(tape, states, made)


def llama_forward(
    *,
    attending: Attending = attention,
    feeding: Block = mlp,
    mixture: Block | None = None,
    norms: str = BEFORE,
    norm: Norm = rms_norm,
    liger_norm: Norm | None = None,
    liger_head_norm: Norm | None = None,
    before: Callable[[Tape, Execution], Before] = before,
    head: Block = head,
) -> Forward:
    """Llama's forward, with what differs in a family's own.

    Args:
        attending: The attention.
        feeding: The feed-forward part.
        mixture: That of blocks with experts.
        norms: BEFORE each of the two, AROUND or BEHIND it.
        norm: All of its norms.
        liger_norm, liger_head_norm: The same of Liger, and its own over heads, where they are known for the family.
        before: From token ids to the first block.
        head: From the last block to the loss.
    """
    dense = functools.partial(block, attending=attending, feeding=feeding, norms=norms)
    sparse = functools.partial(dense, feeding=mixture) if mixture else dense
    return Forward(before, dense, sparse, head, norm, liger_norm, liger_head_norm)
