"""The tiny Llama that a proof trains: random weights, every size divisible by the tensor-parallel degree."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["build"]

_LAYERS = 2  # one would hide a fault between two layers: prefetch and gather need a next one
_HEADS = 8  # divisible by the usual tensor-parallel degrees 1, 2, 4, 8
_HEAD_DIM = 8  # the smallest that rotary embeddings and the CPU attention kernel accept without padding
_WIDE_HEAD_DIM = 64  # of a model whose feed-forward matrices are swapped
_WIDE_FFN = 4  # times the hidden size: matrices of 2**20 elements, of which half in bf16 is 1 MiB, the least that swaps
_VOCAB = 256
_TOKENS = 16  # per sample


def build(tp: int, wide: bool, sharing: int = 2) -> Any:
    """A `LlamaForCausalLM` with random weights.

    Args:
        tp: Tensor-parallel degree; the number of heads becomes a multiple of it.
        wide: 9 million parameters instead of 100 thousand: DeepSpeed leaves small tensors out of NVMe
            (runtime/swap_tensor, MIN_AIO_BYTES).
        sharing: Ranks that share a tensor; a wide one is as large for every pair of them.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    heads = math.lcm(_HEADS, max(tp, 1))
    hidden = heads * (_WIDE_HEAD_DIM if wide else _HEAD_DIM)
    config = LlamaConfig(
        vocab_size=math.lcm(_VOCAB, max(tp, 1)),
        hidden_size=hidden,
        intermediate_size=(_WIDE_FFN * tp * math.ceil(sharing / 2) if wide else 2) * hidden,
        num_hidden_layers=_LAYERS,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=4 * _TOKENS,
        tie_word_embeddings=False,
        use_cache=False,
        attn_implementation="eager",  # the same code on every device
    )
    return LlamaForCausalLM(config)
