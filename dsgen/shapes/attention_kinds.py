"""The attention that nobody asks for by name: what torch's sdpa runs beside a mask, and for grouped queries."""

from __future__ import annotations

__all__ = ["GROUPED", "MASKED"]

# torch's sdpa beside a mask that tells of padding: another kernel, which leaves out nothing of what is ahead, keys and
# values repeated for every query head, and the mask as numbers to add (transformers 5.23, integrations/
# sdpa_attention.py, use_gqa_in_sdpa; torch 2.13, sdp_utils.cpp, check_for_attn_mask of FlashAttention's kernel).
MASKED = "masked"
# torch's sdpa where no kernel of it takes fewer keys than queries: FlashAttention's does, since Ampere and in 16 bits,
# and the memory-efficient one does not (torch 2.13, sdp_utils.cpp, check_batch_size_and_num_heads_dense). transformers
# since 4.54 repeats no keys where there is no mask (sdpa_attention.py, use_gqa_in_sdpa), whatever the GPU: all scores
# are computed, in fp32 (attention.cpp, _scaled_dot_product_attention_math). On a T4 that is measured (transformers pull
# request 45776: MATH, 1.62 times as long a generation).
GROUPED = "grouped"
