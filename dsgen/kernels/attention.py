"""How long an attention kernel takes: blocks of queries over the processors, each over the keys it sees."""

from typing import NamedTuple

from dsgen.kernels.products import SIZES, product_seconds
from dsgen.kernels.rates import Rates
from dsgen.kernels.traffic import traffic_seconds

__all__ = ["CUDNN_WIDEST", "KERNELS", "attention_seconds", "available", "beside_mask", "fused_kernel", "taken"]

FORWARD, BACKWARD = "forward", "backward"
KERNELS = ("flash1", "flash2", "flash3", "flash4", "cudnn", "memory-efficient", "math")
BLOCK = 128  # queries and keys of a tile
FILL = 192  # keys' worth of time that a block's pipeline takes to fill and drain; fitted with the shares below
FORWARD_FLOPS, BACKWARD_FLOPS = 4, 10  # per query, key and element of a head: two products, and five
NARROW = 64  # widest head of which the narrow share holds
# Widths that FlashAttention is compiled for: a head between two is computed as the wider, with zeros (1.0.9:
# csrc/flash_attn/fmha_api.cpp, run_fmha_fwd; 2: csrc/flash_attn/src/static_switch.h, HEADDIM_SWITCH, whose 160 and 224
# are gone since 2.8 and 2.6.2; 3: hopper/flash_api.cpp, round_up_headdim). What is read and written is not padded.
WIDTHS = {
    "flash1": (32, 64, 128),
    "flash2": (32, 64, 96, 128, 192, 256),
    "flash3": (64, 96, 128, 192, 256),
}
# torch's sdpa asks cuDNN first on Hopper and the big Blackwell where that is above 9.15.0 (sdp_utils.cpp,
# check_prefer_cudnn_attention), which its wheels bring from 2.11 on (huggingface/transformers pull request 48163);
# never for a head wider than 128 elements (check_cudnn_tensor_shapes).
CUDNN_SINCE = (2, 11)  # release of torch
CUDNN_ON = ("sm90", "sm100")
CUDNN_WIDEST = 128
# Times the scores are read or written beside the products: scale, softmax in fp32, and where a mask is given, its
# addition. Fitted on the rows `math` of benchmarks/data/kernels.json.
MATH_PASSES = {FORWARD: 4, BACKWARD: 6}
MASK_PASSES = {FORWARD: 4, BACKWARD: 0}


class Shares(NamedTuple):
    """Share of the dense peak that long sequences with heads of 128 reach, and which part of it heads of 64 reach."""

    forward: float
    backward: float
    narrow: float


# Fitted on benchmarks/data/kernels.json, rows of attention: the medians of their errors are 0 by phase and head.
SHARES = {
    ("sm80", "flash2"): Shares(0.68, 0.64, 0.88),  # Dao-AILab/flash-attention, A100 SXM, forward and backward together
    # FlashAttention 1 is the first release and Triton's kernel of it: causal rows of 2k to 16k, of those of release 2
    # by the same charts 0.43 with heads of 128 and 0.51 with 64 (A100), 0.42 and 0.53 (H100).
    ("sm80", "flash1"): Shares(0.29, 0.275, 1.04),
    ("sm90", "flash1"): Shares(0.158, 0.139, 1.11),
    ("sm90", "flash2"): Shares(0.377, 0.332, 0.88),  # the same, H100 SXM
    ("sm90", "flash3"): Shares(0.67, 0.49, 0.73),  # the same, and facebookexperimental/triton
    ("sm90", "cudnn"): Shares(0.63, 0.49, 0.80),  # forward the same; backward as FlashAttention 3
    ("sm100", "flash2"): Shares(0.19, 0.17, 0.88),  # Dao-AILab/flash-attention issue 1589, heads of 64
    ("sm100", "cudnn"): Shares(0.56, 0.42, 0.80),  # MooreThreads/SimuMax, B200, Transformer Engine
    ("sm100", "flash4"): Shares(0.70, 0.56, 0.80),  # Dao-AILab/flash-attention pull request 2280
    ("sm80", "memory-efficient"): Shares(0.36, 0.31, 0.80),  # xformers' CUTLASS kernel, A100 SXM
    ("sm75", "memory-efficient"): Shares(0.30, 0.26, 0.80),  # Dao-AILab/flash-attention pull request 2379, T4 forward
    ("sm90", "memory-efficient"): Shares(0.16, 0.14, 0.80),  # derived: A100's FLOP/s and 1.4 of it, it has no wgmma
    ("sm100", "memory-efficient"): Shares(0.10, 0.09, 0.80),  # derived likewise
}
# A family without rows: the kernel is the one compiled for Ampere, so its share is A100's.
STAND_IN = "sm80"


def available(architecture: str, kernel: str) -> str:
    """The kernel that runs where one is asked for.

    FlashAttention 2 needs Ampere or later, 3 Hopper, 4 and cuDNN's the big Blackwell or (cuDNN) Hopper; before Ampere
    PyTorch takes its memory-efficient kernel.
    """
    if kernel == "flash4" and architecture != "sm100":
        kernel = "flash3"
    if (kernel == "flash3" and architecture != "sm90") or (kernel == "cudnn" and architecture not in CUDNN_ON):
        kernel = "flash2"
    if kernel in ("flash1", "flash2") and architecture in ("sm70", "sm75"):
        return "memory-efficient"
    return kernel


def fused_kernel(attention: str, architecture: str, *, release: int = 2, torch: str | None = None) -> str:
    """The kernel of a program that asks for an attention which holds no scores.

    Args:
        attention: flash, FlashAttention's package; else what torch's sdpa takes.
        architecture: Of the GPU, as `dsgen.kernels.architectures` names it.
        release: Of FlashAttention, as far as the GPU has it; torch has 1 and 2 too.
        torch: Its release, such as 2.8; None for the newest.
    """
    asks = torch is None or tuple(int(part) for part in torch.split(".")[:2]) >= CUDNN_SINCE
    return "cudnn" if attention != "flash" and architecture in CUDNN_ON and asks else f"flash{release}"


def beside_mask(kernel: str) -> str:
    """The kernel that torch's sdpa takes in another one's place where it gets a mask, which FlashAttention's refuses
    (sdp_utils.cpp, check_for_attn_mask). It leaves out nothing of what is ahead."""
    return "memory-efficient" if kernel.startswith("flash") else kernel


def taken(kernel: str, head_size: int) -> str:
    """The kernel that torch takes for heads of a width, where it asks for a fused one."""
    return "flash2" if kernel == "cudnn" and head_size > CUDNN_WIDEST else kernel


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
    sees: int = 0,
    dtype: str = "bf16",
) -> float:
    """One call of attention.

    Args:
        rates: The node.
        kernel: One of `KERNELS`; math is the unfused one, PyTorch's and eager code. Where it cannot run, `available`
            says what does.
        phase: forward or backward.
        batch: Sequences.
        heads: Query heads.
        kv_heads: Heads of keys and values.
        queries: Tokens that ask, of a sequence.
        keys: Tokens that are asked.
        head_size: Width of a head.
        causal: A query sees no key behind it.
        window: Keys that a query sees at most; 0 for all.
        sees: Tokens of sequences that it is divided into, where samples are packed; 0 for the whole.
        dtype: Of queries, keys and values.
    """
    kernel = available(rates.architecture, kernel)
    samples = float(batch)
    if 0 < sees < queries:
        samples, queries, keys = batch * queries / sees, sees, sees
    if kernel == "math":
        passes = MATH_PASSES[phase] + (MASK_PASSES[phase] if causal else 0)
        return _math_seconds(rates, phase, passes, round(samples * heads), queries, keys, head_size, dtype)
    shares = SHARES.get((rates.architecture, kernel)) or SHARES[(STAND_IN, kernel)]
    share = (shares.forward if phase == FORWARD else shares.backward) * (shares.narrow if head_size <= NARROW else 1.0)
    share *= min(1.0, rates.sustained)  # a card that power holds back from its products is held back here too
    pairs, longest = _visited(queries, keys, causal, window)
    work = max(pairs * samples * heads / rates.processors, longest)
    width = _width(kernel, head_size)
    flops = (FORWARD_FLOPS if phase == FORWARD else BACKWARD_FLOPS) * width * work * rates.processors
    moved = SIZES[dtype] * samples * head_size * (2 * queries * heads + 2 * keys * kv_heads)
    moved *= 1 if phase == FORWARD else 3
    memory = rates.memory_bytes_per_second * rates.memory_efficiency
    return max(flops / (rates.peak(dtype) * share), moved / memory) + rates.kernel_seconds


def _width(kernel: str, head_size: int) -> int:
    """The width at which a kernel computes a head."""
    return next((width for width in WIDTHS.get(kernel, ()) if head_size <= width), head_size)


def _visited(queries: int, keys: int, causal: bool, window: int) -> tuple[float, float]:
    """Pairs of a query and a key that the blocks of one head visit, and those of the longest block."""
    blocks = -(-queries // BLOCK)
    most = min(keys, window + BLOCK) if window else keys
    if not causal:
        return blocks * BLOCK * (most + FILL), BLOCK * (most + FILL)
    ahead = max(0, keys - queries)
    # A block sees what lies ahead of the queries and the tiles up to its own: the sum of a capped arithmetic row.
    first = min(ahead + BLOCK, most)
    growing = min(blocks, max(0, (most - first) // BLOCK) + 1)
    seen = growing * first + BLOCK * growing * (growing - 1) // 2 + (blocks - growing) * most
    longest = first + BLOCK * (growing - 1) if growing == blocks else most
    return BLOCK * (seen + blocks * FILL), BLOCK * (longest + FILL)


def _math_seconds(
    rates: Rates, phase: str, passes: int, heads: int, queries: int, keys: int, head_size: int, dtype: str
) -> float:
    """Two products and the passes over all scores, no pair left out; backward four products."""
    scores = SIZES[dtype] * heads * queries * keys
    products = 2 * product_seconds(rates, queries, keys, head_size, dtype, batch=heads)
    return products * (1 if phase == FORWARD else 2) + passes * traffic_seconds(rates, scores)
