"""Forward of Llama and of the dense models written after it: sizes on a tape.

Source: transformers 5.23, models/{llama,mistral,qwen2,qwen3,phi3,gemma,gemma2,gemma3,smollm3}/modeling_*.py; of norms,
embeddings and heads those of cohere, glm4, granite, olmo2, stablelm and starcoder2 too. Names are those of the
classes: they decide how long a tensor lives.
"""

from __future__ import annotations

from typing import Any

from dsgen.memory.activations import operators as op
from dsgen.memory.activations.attending import attend
from dsgen.memory.activations.norms import head_norm, norm
from dsgen.memory.activations.setting import Setting
from dsgen.memory.activations.tape import Names, Tape, Tensor, forward

__all__ = [
    "attention",
    "before",
    "block",
    "head",
    "mlp",
    "rotate",
    "turned_pair",
]

GRANITES = frozenset({"granite", "granitemoe"})
SCALED = frozenset({"gemma3_text", "granite", "granitemoe"})  # the embedding is multiplied by a number
SANDWICHED = frozenset({"gemma2", "gemma3_text", "glm4"})  # a norm before and after each part of a block
LOCAL_AND_GLOBAL = frozenset({"gemma2", "gemma3_text", "gpt_oss"})  # blocks with a window and without: two masks
PAIRED = frozenset({"glm4", "phi3"})  # gate and up are one matrix
PARTS = {"glm4": 2, "glm4_moe": 2, "gpt_oss": 2, "stablelm": 4}  # the part of a head that the rope tables are for
QK_NORMS = frozenset({"qwen3", "qwen3_moe", "gemma3_text"})
AFTER_ONLY = frozenset({"olmo2"})  # a norm after each part of a block and none before


def rotate(tape: Tape, tensor: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """`(q * cos) + (rotate_half(q) * sin)`."""
    one = op.mul(tape, tensor, cosine)
    other = op.mul(tape, _rotate_half(tape, tensor), sine)
    return op.add(tape, one, other)


def _rotate_half(tape: Tape, tensor: Tensor) -> Tensor:
    first = op.part(tape, tensor, tensor.width // 2)
    second = op.part(tape, tensor, tensor.width // 2)
    return op.cat(tape, op.neg(tape, second), first)


@forward
def attention(my: Names, tape: Tape, on: Setting, hidden: Tensor, rope: bool = True) -> tuple[Tensor, Tensor | None]:
    """LlamaAttention, with the biases and norms of its descendants."""
    model = on.model
    kind, size = model.architecture, model.head_size
    bias = kind in ("qwen2", "qwen2_moe", "gpt_oss") or model.attention_bias
    if kind == "phi3":
        return _phi3_attention(tape, on, hidden)
    my.query = op.transposed(tape, on.linear(tape, hidden, on.heads * size, "q_proj", bias=bias))
    my.key = op.transposed(tape, on.linear(tape, hidden, on.kv_heads * size, "k_proj", bias=bias))
    my.value = on.linear(tape, hidden, on.kv_heads * size, "v_proj", bias=bias)
    if on.eager:
        my.value = op.transposed(tape, my.value)
    if kind in QK_NORMS:
        my.query = head_norm(tape, on, my.query, on.heads)
        my.key = head_norm(tape, on, my.key, on.kv_heads)
    halves = kind == "gpt_oss"
    table = on.table(size // 2 if halves else size)
    turn = rotate_halves if halves else rotate
    if rope:
        my.query, my.key = turn(tape, my.query, table, table), turn(tape, my.key, table, table)
    out, weights = attend(
        tape, on, my.query, my.key, my.value, heads_first=halves, cap=kind == "gemma2", sinks=halves, drop=model.dropout
    )
    out = on.linear(tape, out, on.hidden, "o_proj", bias=model.attention_bias or kind == "gpt_oss")
    return op.dropout(tape, out, model.dropout), weights


@forward
def _phi3_attention(my: Names, tape: Tape, on: Setting, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """Phi3Attention: one matrix; every head is put together from its rotated and its plain (here empty) part."""
    size = on.model.head_size
    fused = on.linear(tape, hidden, (on.heads + 2 * on.kv_heads) * size, "qkv_proj")
    my.query = op.transposed(tape, op.part(tape, fused, on.heads * size))
    my.key = op.transposed(tape, op.part(tape, fused, on.kv_heads * size))
    my.value = op.part(tape, fused, on.kv_heads * size)
    if on.eager:
        my.value = op.transposed(tape, my.value)
    table = on.table(size)
    rest, rest_key = op.part(tape, my.query, 0), op.part(tape, my.key, 0)
    query = op.cat(tape, rotate(tape, my.query, table, table), rest)
    my.key = op.cat(tape, rotate(tape, my.key, table, table), rest_key)
    my.query = query
    out, weights = attend(tape, on, my.query, my.key, my.value, heads_first=True)
    return on.linear(tape, out, on.hidden, "o_proj"), weights


def rotate_halves(tape: Tape, tensor: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """GptOss' rotation: both halves are turned by themselves and joined."""
    half = tensor.width // 2
    first, second = op.split(tape, tensor, half, half)
    return turned_pair(tape, first, second, cosine, sine)


def turned_pair(tape: Tape, first: Tensor, second: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """`cat((a * cos - b * sin, b * cos + a * sin))`."""
    left = op.sub(tape, op.mul(tape, first, cosine), op.mul(tape, second, sine))
    right = op.add(tape, op.mul(tape, second, cosine), op.mul(tape, first, sine))
    made = op.cat(tape, left, right)
    tape.hold(first, second)
    return made


@forward
def mlp(my: Names, tape: Tape, on: Setting, hidden: Tensor, width: int = 0) -> Tensor:
    """LlamaMLP: down(act(gate(x)) * up(x))."""
    width, bias = width or on.ffn, on.model.mlp_bias
    if on.model.architecture in PAIRED:
        my.gate, up = op.split(tape, on.linear(tape, hidden, 2 * width, "gate_up_proj"), width, width)
        product = op.mul(tape, up, op.silu(tape, my.gate))
        return on.linear(tape, product, on.hidden, "down_proj")
    gate = op.silu(tape, on.linear(tape, hidden, width, "gate_proj", bias=bias))
    up = on.linear(tape, hidden, width, "up_proj", bias=bias)
    return on.linear(tape, op.mul(tape, gate, up), on.hidden, "down_proj", bias=bias)


@forward
def block(my: Names, tape: Tape, on: Setting, hidden: Tensor, attending: Any = attention, feeding: Any = mlp) -> Tensor:
    """LlamaDecoderLayer; Gemma 2, 3 and GLM-4 have a norm after each part too, OLMo 2 there alone.

    Args:
        my: Its names.
        tape: The tape.
        on: The setting.
        hidden: What goes in.
        attending: The attention: gives its output and its weights.
        feeding: The feed-forward part.
    """
    kind = on.model.architecture
    before, after = kind not in AFTER_ONLY, kind in AFTER_ONLY or kind in SANDWICHED
    my.states = norm(tape, on, hidden) if before else hidden
    my.states, my.weights = attending(tape, on, my.states)
    if after:
        my.states = norm(tape, on, my.states)
    hidden = op.add(tape, hidden, my.states)
    my.states = norm(tape, on, hidden) if before else hidden
    my.states = feeding(tape, on, my.states)
    if after:
        my.states = norm(tape, on, my.states)
    return op.add(tape, hidden, my.states)


def before(tape: Tape, on: Setting) -> tuple[Tensor, list[Tensor], list[Tensor], list[Tensor]]:
    """Embedding, masks and rope tables.

    Returns:
        The hidden states; what blocks save of the rest; what they only read; what forward's variables refer to.
    """
    model = on.model
    hidden = op.embedding(tape, on.rows, on.outer(model.vocab_size * model.hidden_size), model.hidden_size)
    on.ask(tape, hidden)
    embedded = hidden
    if model.architecture in SCALED:
        hidden = op.scaled(tape, hidden)
    hidden = op.dropout(tape, hidden, model.dropout)
    ids = tape.make((on.seq_len, 0), 1, 8)
    masks = [tape.make(on.rows, on.seq_len, on.item)] if on.eager else []
    if masks and model.architecture in LOCAL_AND_GLOBAL:  # local and global blocks
        masks.append(tape.make(on.rows, on.seq_len, on.item))
    size = model.qk_rope_head_size or model.head_size
    size //= PARTS.get(model.architecture, 1)
    pairs = 2 if model.architecture == "gemma3_text" else 1
    item = op.FP32 if model.architecture == "olmo2" else on.item
    tables = [tape.make((on.seq_len, 0), size, item) for _ in range(2 * pairs)]
    if model.architecture == "deepseek_v2":  # one, of complex numbers, made of them
        complexes = tape.make((on.seq_len, 0), size, op.FP32)
        tape.hold(*tables)
        tables = [complexes]
    # Forward refers to what was embedded, after what is done to it; the graph to what checkpointing asks of it.
    referred = [embedded] if model.dropout else [hidden]
    if on.asks and model.architecture in GRANITES:
        referred = [embedded, hidden]
    if model.architecture == "qwen2_moe" and (on.eager or on.sdpa):  # a mask of local blocks, of which it has none
        mask = (on.rows, on.item) if on.eager else ((on.seq_len, 0), op.MASK)
        referred.append(tape.make(mask[0], on.seq_len, mask[1]))
    tape.hold(embedded)
    if model.architecture == "glm4":  # blocks make tables of their own of these
        return hidden, [], [ids, *masks, *tables], referred
    return hidden, tables, [ids, *masks], referred


def head(tape: Tape, on: Setting, hidden: Tensor) -> Tensor:
    """Final norm, output head and loss."""
    states = norm(tape, on, hidden)  # what goes in is dropped with the model's own forward
    if on.chunked:
        return on.chunked_loss(tape, states)
    logits = on.logits(tape, states)
    if on.model.architecture in GRANITES or on.model.architecture == "cohere":
        logits = op.scaled(tape, logits)
    if on.model.architecture == "gemma2":
        logits = op.scaled(tape, logits)
        logits = op.tanh(tape, logits)
        logits = op.scaled(tape, logits)
    loss = on.loss(tape, logits)
    tape.hold(states, logits)
    return loss
