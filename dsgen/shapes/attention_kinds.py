"""The attention that nobody asks for by name: what runs where another one gets a mask."""

from __future__ import annotations

__all__ = ["MASKED"]

# torch's sdpa beside a mask that tells of padding: another kernel, which leaves out nothing of what is ahead, keys and
# values repeated for every query head, and the mask as numbers to add (transformers 5.23, integrations/
# sdpa_attention.py, use_gqa_in_sdpa; torch 2.13, sdp_utils.cpp, check_for_attn_mask of FlashAttention's kernel).
MASKED = "masked"
