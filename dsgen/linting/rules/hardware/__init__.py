"""Rules about what is slow or does not fit on named hardware, network and model."""

from __future__ import annotations

from dsgen.linting.rules.rule import Rules

__all__ = ["RULES"]

RULES = Rules(
    __name__,
    "does_not_fit",
    "host_memory_too_small",
    "nvme_not_there",
    "dtype_not_in_hardware",
    "fp16_where_bf16_is",
    "fp32_on_tensor_cores",
    "no_overlap_on_a_slow_link",
    "bucket_takes_memory",
    "nothing_is_partitioned",
    "offload_not_needed",
    "stage_3_on_a_slow_network",
    "hpz_leaves_the_node",
    "tensor_parallel_leaves_the_node",
    "nodes_not_full",
    "offload_not_pinned",
    "aio_not_tuned",
    "nvme_parameters_stop",
)
