"""What a forward pass keeps, in bytes per token: the first form, until its last reader has moved to `activations`.

Checked against the real classes under DeepSpeed with every storage counted: Llama, 8 blocks, hidden 4096, 2048 tokens,
bf16: 3.276 GiB kept after forward, 3.25 here.
"""

from __future__ import annotations

import functools

import attrs

from dsgen.profiles import Model

__all__ = ["Shares", "per_token"]

FP32 = 4  # bytes
INDEX = 8  # bytes of an int64 token id, label or routing index
LOGIT_COPIES_FP32 = 3  # the fp32 copy of the logits, log_softmax's output, and its gradient (torch cross_entropy)
LAYER_NORM = frozenset({"bloom", "falcon", "gpt2", "gpt_neo", "gpt_neox", "gptj", "opt"})  # the rest uses RMSNorm
TANH_GELU_STEPS = 7  # tensors that Hugging Face's NewGELUActivation keeps: it is written out in Python
TANH_GELU = frozenset({"gpt2", "gptj"})
DROPOUT = frozenset({"gpt2", "opt"})  # config.json sets 0.1: a mask byte per element after attention and feed-forward
CHUNK_SHARE = 16  # a chunked loss holds about 1/16 of the logits at once (Liger: chunks of hidden/vocab of the tokens)


@attrs.frozen
class Shares:
    """Bytes per token on one GPU.

    Attributes:
        block: What one transformer block keeps.
        boundary: The input of a block: all that checkpointing keeps of it.
        ends: Embedding output, final norm and token ids.
        logits: Head output and what the loss makes of it, at its peak in backward.
        working: The largest gradient alive while one block's backward runs.
    """

    block: int
    boundary: int
    ends: int
    logits: int
    working: int


@functools.lru_cache(maxsize=4096)
def per_token(
    model: Model, precision: str, attention: str, tp: int, chunked_loss: bool, lora: bool, seq_len: int
) -> Shares:
    """Bytes per token that a model keeps.

    Args:
        model: The architecture.
        precision: bf16, fp16 or fp32.
        attention: flash, sdpa or eager; eager keeps the score matrix, so its cost per token grows with seq_len.
        tp: AutoTP degree; heads and feed-forward shrink with it, the residual stream does not.
        chunked_loss: The loss never holds all logits.
        lora: Frozen matrices keep no input, but the adapters beside them do.
        seq_len: Tokens per sequence.
    """
    size = FP32 if precision == "fp32" else 2
    hidden = size * model.hidden_size
    heads = size * model.attention_heads * model.head_size // tp
    kv = size * model.kv_heads * model.head_size // tp
    attended = _attended(model, attention, tp, seq_len, size)
    norms = 2 * _norm(model, size)
    block = norms + hidden + heads + 2 * kv + heads + attended + _feed_forward(model, size, tp)
    if model.architecture in DROPOUT:
        block += 2 * model.hidden_size
    if lora:
        block += 2 * hidden  # dropout-free LoRA keeps the adapter's input where the frozen matrix kept the same tensor
    widest = max(model.ffn_size // tp, model.expert_ffn_size * max(model.experts_per_token, 1), model.hidden_size)
    logits = model.vocab_size * (size + FP32 * LOGIT_COPIES_FP32)
    return Shares(
        block=block,
        boundary=hidden,
        ends=_norm(model, size) + 2 * hidden + 3 * INDEX,
        logits=logits // CHUNK_SHARE if chunked_loss else logits,
        working=2 * size * widest + hidden,
    )


def _norm(model: Model, size: int) -> int:
    """One norm: RMSNorm works in fp32 (its input, in fp32, and the normalised tensor), LayerNorm keeps its input."""
    hidden = model.hidden_size
    if model.architecture in LAYER_NORM or size == FP32:
        return 2 * size * hidden
    return (FP32 + 2 * size) * hidden


def _attended(model: Model, attention: str, tp: int, seq_len: int, size: int) -> int:
    """What the attention kernel keeps besides q, k, v and its output."""
    heads = model.attention_heads // tp
    if attention == "flash":
        return FP32 * heads  # the log-sum-exp of each row
    if attention == "sdpa":  # repeats keys and values to the query heads, then a fused kernel
        return FP32 * heads + (2 * size * (heads - model.kv_heads // tp) * model.head_size)
    return heads * seq_len * (FP32 + 2 * size)  # eager: fp32 softmax, its 16-bit copy, dropout


def _feed_forward(model: Model, size: int, tp: int) -> int:
    """Input, gate, up, activation and product of the feed-forward part; a mixture keeps them per routed expert."""
    hidden = size * model.hidden_size
    if model.experts:
        width = model.expert_ffn_size * (model.experts_per_token + model.shared_experts)
        routed = model.experts_per_token * (2 * hidden + INDEX)  # each token's copy in, and out, per expert
        return routed + 4 * size * width + FP32 * model.experts * 2
    width = model.ffn_size // tp
    if model.gated_ffn:
        return hidden + 4 * size * width
    steps = TANH_GELU_STEPS if model.architecture in TANH_GELU else 2
    return hidden + steps * size * width
