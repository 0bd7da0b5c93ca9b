"""What releases of DeepSpeed hold otherwise than the newest one, which all else here follows."""

from __future__ import annotations

import functools

from dsgen.deepspeed import surface

__all__ = [
    "checks_in_fp32",
    "clones_first",
    "counts_what_a_step_releases",
    "flattens_in_ram",
    "leaves_embeddings",
    "makes_buckets_early",
    "moves_first",
    "returns_wide",
    "shards_fp32",
    "shares_out_at_0",
]

# The first release whose stages 1 and 2 make the flat copy of the trained weights on the GPU, where it has room for it
# (runtime/zero/stage_1_and_2.py, flatten_on_gpu); those before move each group to RAM first (cpu_data).
_FLATTENS_ON_GPU = (0, 18, 7)
# The first whose stages 1 and 2 send weights that the CPU has stepped back in 16 bits, through a buffer in RAM (there,
# param_buffer_of_bit16_for_cpu_offload_groups); those before move a rank's fp32 ones to the GPU and cast them there.
# The first that did so is 0.14.1: what was before it copies fp32 to 16 bits at once, which torch casts in RAM
# (bit16_partitions[partition_id].data.copy_; the 0.14.0 and 0.14.1 of PyPI; torch's copy_kernel_cuda).
_RETURNS_NARROW = (0, 17, 0)
_RETURNS_WIDE = (0, 14, 1)
# The first whose stages 1 and 2 make their buckets when the first gradient comes, and not before backward, whose loss
# they then lie beside (there, backward_prologue; the 0.17.1 and 0.17.2 of PyPI).
_BUCKETS_AT_GRADIENT = (0, 17, 2)
# The first whose stages 1 and 2 look for infinities without copies of a gradient that goes to the CPU (there,
# _has_inf_or_nan; the 0.18.9 and 0.19.0 of PyPI).
_CHECKS_AS_IT_IS = (0, 19, 0)
# The first that keeps bf16 at stage 0 as it does fp16 (runtime/engine.py, DDP_BFLOAT16); before it is BF16_Optimizer,
# whose ranks share out master weights and states, and keep all gradients in fp32 (runtime/bf16_optimizer.py).
_WHOLE_AT_0 = (0, 17, 6)
# The first whose stage 3 makes master weights by converting and then cloning; before, it clones and then converts
# (runtime/zero/stage3.py, _create_fp32_partitions; the 0.18.2 and 0.18.3 of PyPI).
_CONVERTS_FIRST = (0, 18, 3)
# The first whose stages 1 and 2 copy a rank's part of the weights on the GPU before it leaves for the CPU; those before
# move it and copy it there (runtime/zero/stage_1_and_2.py, weights_partition; the 0.18.2 and 0.18.3 of PyPI).
_COPIES_FIRST = (0, 18, 3)
# The first whose stage 3 releases, when backward is over, what has ids for its input, whose own backward no hook ends
# (runtime/zero/partitioned_param_coordinator.py, release_backward_leftovers; the 0.19.2 and 0.19.3 of PyPI).
_RELEASES_EMBEDDINGS = (0, 19, 3)
# The first whose coordinator counts from 0 behind a step too (seen in the simulation of 0.14.5 and 0.15.4).
_COUNTS_ANEW = (0, 15, 0)
# The first whose zero_to_fp32 cuts weights into files by tensors that it has not put together yet (utils/
# zero_to_fp32.py, GatheredTensor); before, all were put together first (the 0.15.4 and 0.16.0 of PyPI).
_SHARDS_FP32 = (0, 16, 0)


def checks_in_fp32(version: str) -> bool:
    """Whether stages 1 and 2 of a release look for infinities in fp32 copies of a gradient that goes to the CPU.

    Args:
        version: As for `flattens_in_ram`.
    """
    return _of(version) < _CHECKS_AS_IT_IS


def clones_first(version: str) -> bool:
    """Whether stage 3 of a release clones the flat weights before it makes them fp32.

    Args:
        version: As for `flattens_in_ram`.
    """
    return _of(version) < _CONVERTS_FIRST


def counts_what_a_step_releases(version: str) -> bool:
    """Whether embeddings that a step releases are taken off what stage 3 counts as gathered in the next pass.

    Args:
        version: As for `flattens_in_ram`.
    """
    return _of(version) < _COUNTS_ANEW


def flattens_in_ram(version: str) -> bool:
    """Whether stages 1 and 2 of a release flatten the weights in RAM, whatever a GPU has free.

    Args:
        version: A release, or a line of them, which means its newest.
    """
    return _of(version) < _FLATTENS_ON_GPU


def leaves_embeddings(version: str) -> bool:
    """Whether stage 3 of a release leaves embeddings gathered until the next pass, and fetches as much more ahead.

    The next pass counts what is there from 0, and takes off what it releases. Beside adapters these releases checkpoint
    by the reentrant kind alone (dsgen.jobs.releases): simulated so with 0.18.9, both LoRA's and QLoRA's embedding stay.

    Args:
        version: As for `flattens_in_ram`.
    """
    return _of(version) < _RELEASES_EMBEDDINGS


def makes_buckets_early(version: str) -> bool:
    """Whether stages 1 and 2 of a release make the buckets of gradients before backward begins.

    Args:
        version: As for `flattens_in_ram`.
    """
    return _of(version) < _BUCKETS_AT_GRADIENT


def moves_first(version: str) -> bool:
    """Whether stages 1 and 2 of a release move a rank's part of the weights to the CPU without a copy on the GPU.

    Args:
        version: As for `flattens_in_ram`.
    """
    return _of(version) < _COPIES_FIRST


def returns_wide(version: str) -> bool:
    """Whether stages 1 and 2 of a release move the weights that the CPU has stepped to the GPU in fp32.

    Args:
        version: As for `flattens_in_ram`.
    """
    return _RETURNS_WIDE <= _of(version) < _RETURNS_NARROW


def shards_fp32(version: str) -> bool:
    """Whether zero_to_fp32 of a release puts weights together file by file at stage 3, and writes several files.

    Args:
        version: As for `flattens_in_ram`.
    """
    return _of(version) >= _SHARDS_FP32


def shares_out_at_0(version: str) -> bool:
    """Whether a release shares out master weights and states in bf16 at stage 0.

    Args:
        version: As for `flattens_in_ram`.
    """
    return _of(version) < _WHOLE_AT_0


@functools.lru_cache(maxsize=64)
def _of(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in surface.load(version).version.split(".")[:3])
