"""Rules about what is slow or does not fit on named hardware, network and model."""

from __future__ import annotations

from dsgen.linting.rules.hardware import (
    aio_not_tuned,
    bucket_takes_memory,
    does_not_fit,
    dtype_not_in_hardware,
    fp16_where_bf16_is,
    fp32_on_tensor_cores,
    host_memory_too_small,
    hpz_leaves_the_node,
    no_overlap_on_a_slow_link,
    nodes_not_full,
    nothing_is_partitioned,
    nvme_not_there,
    offload_not_needed,
    offload_not_pinned,
    stage_3_on_a_slow_network,
    tensor_parallel_leaves_the_node,
)
from dsgen.linting.rules.rule import Rule

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    does_not_fit.RULE,
    host_memory_too_small.RULE,
    nvme_not_there.RULE,
    dtype_not_in_hardware.RULE,
    fp16_where_bf16_is.RULE,
    fp32_on_tensor_cores.RULE,
    no_overlap_on_a_slow_link.RULE,
    bucket_takes_memory.RULE,
    nothing_is_partitioned.RULE,
    offload_not_needed.RULE,
    stage_3_on_a_slow_network.RULE,
    hpz_leaves_the_node.RULE,
    tensor_parallel_leaves_the_node.RULE,
    nodes_not_full.RULE,
    offload_not_pinned.RULE,
    aio_not_tuned.RULE,
)
