"""The rows of benchmarks/data/kernels.json: what others measured of single kernels, collectives, copies and hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["RAW", "rows"]

RAW = ("matmul", "attention", "memory_bound", "collectives", "host")  # measurements/<name>.json
Record = Mapping[str, Any]

# The sources' name of a card -> the profile that is it.
CARDS = {
    "A100-PCIe-80GB": "a100-80g-pcie", "A100-SXM": "a100-80g", "A100-SXM-80GB": "a100-80g", "A100-80GB": "a100-80g",
    "A100-80GB (variant not stated)": "a100-80g", "A100-40GB": "a100-40g", "A100-SXM-40GB": "a100-40g",
    "H100-SXM-80GB": "h100-80g", "H100-PCIe-80GB": "h100-80g-pcie", "H200-SXM": "h200-141g", "B200-SXM": "b200-180g",
    "L40S": "l40s-48g", "L4": "l4-24g", "A10": "a10-24g", "A40": "a40-48g", "T4": "t4-16g", "V100": "v100-32g",
    "V100-PCIe-16GB": "v100-16g", "RTX 3090": "rtx3090-24g", "RTX 4090": "rtx4090-24g", "RTX 5090": "rtx5090-32g",
    "H20": "h20-96g", "MI210": "mi210-64g", "MI300X": "mi300x-192g",
}  # fmt: skip
DTYPES = {"bf16": "bf16", "fp16": "fp16", "fp16_in_mixed_math": "fp16", "bf16/fp16": "bf16", "fp16/bf16": "bf16"}
IMPLEMENTATIONS = {
    "flash_attn_2": "flash2", "flash_attn_3": "flash3", "xformers_cutlass": "memory-efficient",
    "pytorch_math": "math", "flash_attn_4": "flash4", "cudnn": "cudnn",
    "pytorch_sdpa default (FlashAttention-2)": "flash2",
}  # fmt: skip
TRANSFORMER_ENGINE = "flash_attn via Transformer Engine (SDP)"  # FlashAttention 2 before Hopper, cuDNN from it on
PHASES = {"fwd": "forward", "bwd": "backward", "fwd+bwd": "both"}
# What joins the nodes, as the sources describe it -> the profile that is it.
NETWORKS = {
    "EFA v1, 4x100 Gb/s per node (p4de)": "efa-400g", "EFA v2, 32x100 Gb/s per node (p5)": "efa-3200g",
    "EFA v3, 16x200 Gb/s per node (p5en)": "efa-3200g", "EFA v3, p5en": "efa-3200g",
    "EFA v4, 8x400 Gb/s per node": "efa-3200g", "GCP RoCE, one 400 Gb/s NIC per node": "roce-400g",
    "8x HDR 200 Gb/s per node (DGX A100)": "ib-hdr-1600g",
    "8x 400 Gb/s RoCE per node (by the settings)": "roce-3200g",
}  # fmt: skip
OTHER_LINKS = (
    "NVLink bridge",
    "patched",
    "MSCCL",
    "NVLink pairs",
    "4 superchips",
    "4 GPUs direct",
)  # no profile's node
LONG = 1e-4  # seconds from which a time taken from Python is the device's
STREAM_BYTES = 10**9  # for rows that give a rate alone
RATED, RATING = "3.25 GB/s read spec each", 3.25e9  # the only drives whose rating their source states, and reads alone
FUSED = {"stream_scale": "stream", "stream_triad": "stream", "copy": "stream", "device_copy (read+write)": "stream"}
NORMS = {"layernorm_forward": "norm", "softmax_forward": "norm", "gelu_forward": "stream"}


def rows(raw: Mapping[str, list[Record]]) -> Iterator[dict[str, Any]]:
    """Every row that a law can say, in the order of the raw records."""
    makers = {"matmul": _product, "attention": _attention, "memory_bound": _traffic, "collectives": _collective,
              "host": _host}  # fmt: skip
    for name in RAW:
        for record in raw[name]:
            said = makers[name](record)
            if said is not None:
                yield {"id": record["id"], "source": record["source"], **said}


def _product(record: Record) -> dict[str, Any] | None:
    """A product of one shape; those that add into an fp32 buffer are Megatron's, and DeepSpeed makes none."""
    card, dtype = CARDS.get(record.get("gpu", "")), DTYPES.get(record.get("dtype", ""))
    kind = record.get("kind")
    if card is None or dtype is None or kind not in ("matmul", "group_matmul", "batched_matmul"):
        return None
    if record.get("accumulate") or "m" not in record or "flops_per_s" not in record:
        return None
    batch = record.get("groups") or record.get("batch") or 1
    m, n, k = record["m"], record["n"], record["k"]
    seconds = 2 * batch * m * n * k / record["flops_per_s"]
    sort = "grouped product" if kind == "group_matmul" else "product"
    return _row(sort, card, seconds, dtype=dtype, m=m, n=n, k=k, batch=batch)


def _attention(record: Record) -> dict[str, Any] | None:
    card, phase, said = CARDS.get(record.get("gpu", "")), PHASES.get(record.get("phase", "")), record.get("impl", "")
    kernel = IMPLEMENTATIONS.get(said)
    if said == TRANSFORMER_ENGINE:
        kernel = "cudnn" if card == "b200-180g" else "flash2"
    needed = ("seq_len", "head_dim", "heads", "batch", "flops_per_s")
    if card is None or phase is None or kernel is None or any(not record.get(name) for name in needed):
        return None
    batch, heads, seq, size = record["batch"], record["heads"], record["seq_len"], record["head_dim"]
    if record.get("v_head_dim", size) != size:
        return None
    flops = {"forward": 4, "backward": 10, "both": 14}[phase] * batch * heads * seq**2 * size
    seconds = flops / (2 if record["causal"] else 1) / record["flops_per_s"]
    facts = {"kernel": kernel, "phase": phase, "batch": batch, "heads": heads, "seq": seq, "head_size": size}
    kv_heads = record.get("kv_heads") or heads
    return _row("attention", card, seconds, **facts, kv_heads=kv_heads, causal=record["causal"])


def _traffic(record: Record) -> dict[str, Any] | None:
    card, kernel = CARDS.get(record.get("gpu", "")), record["kernel"]
    if card is None:
        return None
    if kernel in FUSED and record.get("occupancy", 1.0) == 1.0:
        seconds = STREAM_BYTES / record["bytes_per_s"]
        return _row("traffic", card, seconds, sort=FUSED[kernel], bytes=STREAM_BYTES, kernels=1)
    if kernel == "small_scale_kernel" and record.get("launch_mode") == "back-to-back stream launches":
        if record["volume_bytes"] > 2**20:  # from here on the cache decides, not the launch
            return None
        return _row("small kernel", card, record["time_s"], sort="stream", bytes=record["volume_bytes"], kernels=1)
    if kernel in NORMS and record["time_s"] >= LONG:
        moved = round(record["time_s"] * record["bytes_per_s"])
        return _row("traffic", card, record["time_s"], sort=NORMS[kernel], bytes=moved, kernels=1)
    return _liger(record, card)


def _liger(record: Record, card: str) -> dict[str, Any] | None:
    """Norms and softmax, fused or as the chain of operators of Hugging Face's RMSNorm."""
    kernel, moved, provider = record["kernel"], record.get("minimum_traffic_bytes"), record.get("provider")
    if moved is None or record.get("phase") != "forward" or moved < 2**26:  # smaller ones lie in the cache
        return None
    if kernel == "rms_norm" and provider == "huggingface" and record["config"].get("dtype") == "bfloat16":
        # to fp32, square, mean, add and root, times, to bf16, times the weight: 30 bytes of an element of 2
        return _row("eager chain", card, record["time_s"], sort="mixed", bytes=15 * moved // 2, kernels=8)
    if (kernel, provider) in (("layer_norm", "huggingface"), ("softmax", "torch"), ("rms_norm", "liger"),
                              ("layer_norm", "liger"), ("softmax", "liger")):  # fmt: skip
        sort = "norm" if provider == "liger" else "reduction"
        return _row("traffic", card, record["time_s"], sort=sort, bytes=moved, kernels=1)
    return None


def _collective(record: Record) -> dict[str, Any] | None:
    card, kind = CARDS.get(record.get("gpu", "")), record.get("op")
    links = f"{record.get('intra_link', '')} {record.get('inter_fabric', '')} {record.get('algorithm', '')}"
    if card is None or record.get("kind") or kind not in ("all_reduce", "all_gather", "reduce_scatter"):
        return None
    if any(word in links for word in OTHER_LINKS) or "tree" in links.lower():
        return None
    nodes, inside, size = record.get("nodes"), record.get("gpus_per_node"), record.get("size_bytes")
    if not nodes or not inside or not size or (card == "mi300x-192g" and inside != 8):
        return None
    network = NETWORKS.get(record.get("inter_fabric", "")) if nodes > 1 else "single-node"
    ranks, bus = nodes * inside, record.get("bus_bytes_per_s")
    wire = (2 if kind == "all_reduce" else 1) * (ranks - 1) / ranks
    seconds = record.get("time_s") or (size * wire / bus if bus else None)
    if network is None or not seconds:
        return None
    if record.get("algorithm") == "Ring" and kind == "all_reduce" and inside > 4 and nodes == 1:
        return None  # with NVLink SHARP switched off, which no one does
    facts = {"kind": kind, "bytes": size, "ranks": ranks, "ranks_per_node": inside, "network": network}
    return _row("collective", card, seconds, **facts)


def _host(record: Record) -> dict[str, Any] | None:
    topic = record["topic"]
    if topic == "host_device_copy" and record.get("memory") == "pinned" and record["gpu"] in CARDS:
        both = "both directions" in record["direction"]
        direction = "to_device" if record["direction"].startswith("host_to_device") else "to_host"
        seconds = STREAM_BYTES / record["bytes_per_s"]
        return _row("copy", CARDS[record["gpu"]], seconds, bytes=STREAM_BYTES, direction=direction, both=both)
    if topic == "cpu_adam" and record.get("impl") == "DeepSpeed CPUAdam" and record.get("gpu") == "GH200":
        facts = {"elements": record["params"], "ranks": 1, "launcher": "deepspeed"}
        return _row("adam", "gh200-96g", record["time_s"], **facts)
    if topic == "optimizer_step" and "CPUAdam" in record["impl"]:
        elements = round(record["params_per_s"] * record["time_s"])
        return _row("adam", "a100-80g", record["time_s"], elements=elements, ranks=8, launcher="torchrun")
    if topic == "nvme" and record["direction"] == "read" and RATED in record.get("drive", ""):
        facts = {"bytes": STREAM_BYTES, "direction": "read", "drives": record["drives"], "rating": RATING}
        return _row("nvme", "", STREAM_BYTES / record["bytes_per_s"], **facts)
    return None


def _row(law: str, card: str, seconds: float, **facts: Any) -> dict[str, Any]:
    return {"law": law, "card": card, **facts, "seconds": float(f"{seconds:.5g}")}
