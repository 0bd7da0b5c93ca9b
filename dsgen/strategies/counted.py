"""Keys beside a strategy that change what memory holds: which of them are counted, and which are bounded."""

from __future__ import annotations

__all__ = ["BOUNDED", "LOOSE", "NARROW", "SECOND_COPY"]

# Keys that keep in 16 bits what is else in fp32: counted where DeepSpeed takes them.
NARROW = (
    "bf16.bf16_master_weights_and_grads",
    "bf16.bf16_optimizer_states",
    "fp16.fp16_master_weights_and_grads",
)
SECOND_COPY = "zero_optimization.zero_hpz_partition_size"  # counted where it was compared with the simulation
LOOSE = "zero_optimization.contiguous_gradients"  # as well
# Keys whose memory is bounded, and in the interval around a peak (dsgen.memory.widened) -> field of Unsure.
BOUNDED = {
    "communication_data_type": "reduced",
    "data_types.grad_accum_dtype": "gradients",
    "zero_optimization.offload_optimizer.ratio": "kept",
    "zero_optimization.zero_quantized_gradients": "sent",
    "zero_optimization.zero_quantized_nontrainable_weights": "fetched",
    "zero_optimization.zero_quantized_weights": "fetched",
}
