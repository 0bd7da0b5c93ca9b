"""How long a matrix product takes: tiles over the processors in waves, or the memory it reads and writes."""

from __future__ import annotations

import functools

from dsgen.kernels.rates import Rates

__all__ = ["product_seconds"]

# Tiles of the output that cuBLAS has kernels for: rows, columns, and the share of a card's sustained rate that their
# ratio of arithmetic to shared memory allows. A library picks the fastest, and so does the law.
# Fitted with FILL and the shares of cards on the products of benchmarks/data/kernels.json, see docs/kernels.md.
Tiles = tuple[tuple[int, int, float], ...]
TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 1.0), (128, 64, 0.6), (64, 128, 0.6), (64, 64, 0.36))
# The same of kernels without tensor cores: fp32. Narrow ones are what adapters take; CUTLASS's SIMT kernels have these
# shapes, whose shares are derived: arithmetic of a thread's registers against what it loads.
SIMT_TILES = ((128, 128, 1.0), (128, 64, 0.95), (64, 128, 0.95), (64, 64, 0.85), (128, 32, 0.8), (32, 128, 0.8),
              (32, 32, 0.5))  # fmt: skip
# Elements of the reduced side during which a tile's pipeline fills and drains, at the rate of 16-bit tensor cores; it
# waits for memory, so that it is as much time, and fewer elements, where products are slower.
FILL = 120
SPLITS = (1, 2, 4, 8, 16)  # parts into which the reduced side is cut where the tiles leave processors idle
SHORTEST_SPLIT = 256  # elements of the reduced side that a part has at least
MEMORY_SHARE = 0.85  # of peak bandwidth, for operands that are streamed once: skinny products on A100, H100
SIZES = {"bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4}  # bytes of an element
# Share of the fp32 peak at which cards before Ampere emulate bf16: V100 9.4 to 10.3 of 15.7 and T4 2.0 to 2.5 of 8.1
# TFLOP/s (zzc0721/torch-performance-test-data and chsasank/device-benchmarks).
EMULATED_BF16 = {"sm70": 0.63, "sm75": 0.28}


def product_seconds(rates: Rates, m: int, n: int, k: int, dtype: str, *, batch: int = 1) -> float:
    """One product of m x k by k x n, `batch` times.

    Args:
        rates: The node.
        m: Rows.
        n: Columns.
        k: The reduced side.
        dtype: bf16, fp16, tf32 or fp32.
        batch: How many such products one kernel makes.
    """
    speed = rates.peak(dtype) * _share(rates, dtype)
    moved = SIZES[dtype] * batch * (m * k + n * k + m * n)
    memory = rates.memory_bytes_per_second * MEMORY_SHARE
    fill = FILL * min(1.0, rates.peak(dtype) / max(rates.peak("fp16"), rates.peak("bf16")))
    tiles = SIMT_TILES if dtype == "fp32" else TILES
    waves = _wave_flops(m, n, k, batch, max(1, rates.processors), fill, tiles) / speed
    return max(waves, moved / memory) + rates.kernel_seconds


def _share(rates: Rates, dtype: str) -> float:
    """Share of the peak of a dtype that large products keep up."""
    if dtype == "bf16" and not rates.bf16_flops_per_second:
        return EMULATED_BF16.get(rates.architecture, rates.fp32_efficiency)
    if dtype == "fp32" or (dtype == "tf32" and not rates.tf32_flops_per_second):
        return rates.fp32_efficiency
    return rates.product_efficiency


@functools.lru_cache(maxsize=8192)
def _wave_flops(m: int, n: int, k: int, batch: int, processors: int, fill: float, shapes: Tiles) -> float:
    """FLOPs of the best tiling as if every processor were busy in every wave."""
    best = float("inf")
    for rows, columns, share in shapes:
        tiles = batch * -(-m // rows) * -(-n // columns)
        for parts in SPLITS:
            if parts > 1 and (tiles * parts > processors or k < parts * SHORTEST_SPLIT):
                break
            waves = -(-tiles * parts // processors)
            best = min(best, waves * processors * 2 * rows * columns * (k / parts + fill) / share)
    return best
