"""How long one kernel, collective, copy or host operation takes on given hardware: pure arithmetic from facts."""

from __future__ import annotations

from dsgen.kernels.attention import attention_seconds, beside_mask, fused_kernel, taken
from dsgen.kernels.collectives import collective_lines, collective_seconds, contention, takes_turns
from dsgen.kernels.host_work import (
    copy_seconds,
    cpu_adam_seconds,
    dispatch_seconds,
    four_bit_seconds,
    gathered_seconds,
    hook_seconds,
    host_traffic_seconds,
    new_memory_seconds,
    nvme_seconds,
)
from dsgen.kernels.products import product_seconds
from dsgen.kernels.rates import Link, Rates, rates
from dsgen.kernels.traffic import traffic_seconds

__all__ = [
    "Link",
    "Rates",
    "attention_seconds",
    "beside_mask",
    "collective_lines",
    "collective_seconds",
    "contention",
    "copy_seconds",
    "cpu_adam_seconds",
    "dispatch_seconds",
    "four_bit_seconds",
    "fused_kernel",
    "gathered_seconds",
    "hook_seconds",
    "host_traffic_seconds",
    "new_memory_seconds",
    "nvme_seconds",
    "product_seconds",
    "rates",
    "taken",
    "takes_turns",
    "traffic_seconds",
]
