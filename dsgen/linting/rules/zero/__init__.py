"""Rules about ZeRO: stage, offload, buckets, ZeRO++ and ZenFlow."""

from __future__ import annotations

from dsgen.linting.rules.rule import Rules

__all__ = ["RULES"]

RULES = Rules(
    __name__,
    "stage_missing",
    "zero_as_boolean",
    "offload_without_device",
    "offload_param_below_stage_3",
    "offload_optimizer_at_stage_0",
    "nvme_below_stage_3",
    "nvme_path_missing",
    "nvme_needs_libaio",
    "offload_ratio_below_stage_3",
    "offload_ratio_needs_cpu_adam",
    "super_offload_needs_cuda",
    "hpz_does_not_divide_gpus",
    "quantizers_need_a_gpu",
    "quantized_gradients_refused",
    "hpz_with_nvme",
    "prescale_with_reduce_scatter",
    "allgather_bucket_odd",
    "gradient_sum_refused",
    "grad_norm_switched_off",
    "legacy_stage_1",
    "unmanaged_accumulation_refused",
    "zenflow_without_offload",
    "zenflow_select_interval",
    "zenflow_offload_without_overlap",
    "zenflow_accumulation",
    "zenflow_optimizer_argument",
    "zenflow_needs_adam",
    "zenflow_needs_reduce_scatter",
    "elastic_checkpoint_at_stage_3",
    "weights_not_gathered_on_save",
    "optimizer_on_nvme_not_resumed",
    "stage_0_in_bf16_not_resumed",
    "gradual_stages_on_cpu",
    "part_of_optimizer_on_gpu",
    "nvme_loses_gradients",
    "nvme_buffers_too_few",
    "nvme_io_refused",
    "parameters_on_nvme_not_resumed",
)
