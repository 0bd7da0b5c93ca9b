"""How long an attention kernel takes: blocks of queries over the processors, each over the keys it sees."""

from __future__ import annotations

from typing import NamedTuple

from dsgen.kernels.products import SIZES, product_seconds
from dsgen.kernels.rates import Rates
from dsgen.kernels.traffic import traffic_seconds

__all__ = ["KERNELS", "attention_seconds", "available"]

FORWARD, BACKWARD = "forward", "backward"
KERNELS = ("flash2", "flash3", "memory-efficient", "math")
BLOCK = 128  # queries and keys of a tile
FILL = 64  # keys during which a block's pipeline fills and drains
FORWARD_FLOPS, BACKWARD_FLOPS = 4, 10  # per query, key and element of a head: two products, and five
MATH_PASSES = {FORWARD: 6, BACKWARD: 6}  # times the scores are read or written


class Shares(NamedTuple):
    """Share of the dense peak with heads of 128 and long sequences, and what heads of 64 reach of it."""

    forward: float
    backward: float
    narrow: float


SHARES = {
    ("sm80", "flash2"): Shares(0.68, 0.60, 0.88),
    ("sm90", "flash2"): Shares(0.40, 0.33, 0.88),
    ("sm90", "flash3"): Shares(0.65, 0.52, 0.80),
    ("sm80", "memory-efficient"): Shares(0.36, 0.30, 0.80),
}


def available(architecture: str, kernel: str) -> str:
    """The kernel that runs where one is asked for: FlashAttention 2 needs Ampere or later, FlashAttention 3 Hopper."""
    if kernel == "flash3" and architecture != "sm90":
        kernel = "flash2"
    if kernel == "flash2" and architecture in ("sm70", "sm75"):
        return "memory-efficient"
    return kernel


def attention_seconds(
    rates: Rates,
    kernel: str,
    phase: str,
    *,
    batch: int,
    heads: int,
    kv_heads: int,
    queries: int,
    keys: int,
    head_size: int,
    causal: bool,
    window: int = 0,
    dtype: str = "bf16",
) -> float:
    """One call of attention.

    Args:
        rates: The node.
        kernel: flash2, flash3, memory-efficient or math (the unfused one, PyTorch's math and eager code).
        phase: forward or backward.
        batch: Sequences.
        heads: Query heads.
        kv_heads: Heads of keys and values.
        queries: Tokens that ask, of a sequence.
        keys: Tokens that are asked.
        head_size: Width of a head.
        causal: A query sees no key behind it.
        window: Keys that a query sees at most; 0 for all.
        dtype: Of queries, keys and values.
    """
    kernel = available(rates.architecture, kernel)
    if kernel == "math":
        return _math_seconds(rates, phase, batch * heads, queries, keys, head_size, dtype)
    shares = SHARES.get((rates.architecture, kernel)) or SHARES[("sm80", kernel)]
    share = (shares.forward if phase == FORWARD else shares.backward) * (shares.narrow if head_size <= 64 else 1.0)
    pairs, longest = _visited(queries, keys, causal, window)
    work = max(pairs * batch * heads / rates.processors, longest)
    flops = (FORWARD_FLOPS if phase == FORWARD else BACKWARD_FLOPS) * head_size * work * rates.processors
    moved = SIZES[dtype] * batch * head_size * (2 * queries * heads + 2 * keys * kv_heads)
    moved *= 1 if phase == FORWARD else 3
    return max(flops / (rates.peak(dtype) * share), moved / rates.memory_bytes_per_second) + rates.kernel_seconds


def _visited(queries: int, keys: int, causal: bool, window: int) -> tuple[float, float]:
    """Pairs of a query and a key that the blocks of one head visit, and those of the longest block."""
    blocks = -(-queries // BLOCK)
    total = longest = 0.0
    seen = min(keys, window + BLOCK) if window else keys
    if not causal:
        return blocks * BLOCK * (seen + FILL), BLOCK * (seen + FILL)
    ahead = max(0, keys - queries)
    reach = [min(seen, ahead + (block + 1) * BLOCK, keys) for block in range(blocks)]
    total = BLOCK * (sum(reach) + blocks * FILL)
    longest = BLOCK * (max(reach) + FILL)
    return total, longest


def _math_seconds(rates: Rates, phase: str, heads: int, queries: int, keys: int, head_size: int, dtype: str) -> float:
    """Two products and the passes over all scores, no pair left out; backward four products."""
    scores = SIZES[dtype] * heads * queries * keys
    products = 2 * product_seconds(rates, queries, keys, head_size, dtype, batch=heads)
    if phase == BACKWARD:
        products *= 2
    return products + MATH_PASSES[phase] * traffic_seconds(rates, scores)
