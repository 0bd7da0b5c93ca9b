"""What releases of DeepSpeed hold otherwise than the newest one, which all else here follows."""

from __future__ import annotations

import functools

from dsgen.deepspeed import surface

__all__ = ["flattens_in_ram", "returns_wide", "shares_out_at_0"]

# The first release whose stages 1 and 2 make the flat copy of the trained weights on the GPU, where it has room for it
# (runtime/zero/stage_1_and_2.py, flatten_on_gpu); those before move each group to RAM first (cpu_data).
_FLATTENS_ON_GPU = (0, 18, 7)
# The first whose stages 1 and 2 send weights that the CPU has stepped back in 16 bits, through a buffer in RAM (there,
# param_buffer_of_bit16_for_cpu_offload_groups); those before move a rank's fp32 ones to the GPU and cast them there.
_RETURNS_NARROW = (0, 17, 0)
# The first that keeps bf16 at stage 0 as it does fp16 (runtime/engine.py, DDP_BFLOAT16); before it is BF16_Optimizer,
# whose ranks share out master weights and states, and keep all gradients in fp32 (runtime/bf16_optimizer.py).
_WHOLE_AT_0 = (0, 17, 6)


@functools.lru_cache(maxsize=64)
def flattens_in_ram(version: str) -> bool:
    """Whether stages 1 and 2 of a release flatten the weights in RAM, whatever a GPU has free.

    Args:
        version: A release, or a line of them, which means its newest.
    """
    return _parts(surface.load(version).version) < _FLATTENS_ON_GPU


@functools.lru_cache(maxsize=64)
def returns_wide(version: str) -> bool:
    """Whether stages 1 and 2 of a release move the weights that the CPU has stepped to the GPU in fp32.

    Args:
        version: As for `flattens_in_ram`.
    """
    return _parts(surface.load(version).version) < _RETURNS_NARROW


@functools.lru_cache(maxsize=64)
def shares_out_at_0(version: str) -> bool:
    """Whether a release shares out master weights and states in bf16 at stage 0.

    Args:
        version: As for `flattens_in_ram`.
    """
    return _parts(surface.load(version).version) < _WHOLE_AT_0


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3])
