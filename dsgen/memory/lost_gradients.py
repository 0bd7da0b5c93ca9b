"""Gradients of an optimizer on NVMe that lie in memory where a drive may not read to.

Followed from DeepSpeed 0.14 to 0.19.8. At stage 3 a rank's parts of the parameters lie in sub-groups, one behind the
other (runtime/zero/stage3.py, set_grad_positions). Each gradient of 1 MiB and more is written to a file of its own and
read straight into the sub-group's buffer, which begins at a page, at its offset (runtime/swap_tensor:
get_swap_gradient_buffers, _swap_in_pinned_gradients). Smaller ones stay in memory and are copied. The file is open for
direct I/O, so the drive must take the address. Where it does not, the read fails, and nobody looks at its result
(csrc/aio/common/deepspeed_aio_common.cpp, _do_io_complete): the buffer keeps what was in it.
"""

import functools
from typing import NamedTuple

from dsgen.memory.modules import modules
from dsgen.memory.swapped_parameters import LEAST_BYTES
from dsgen.shapes.profiles import Model

__all__ = ["Lost", "Sharing", "lost"]

ADDRESS_BYTES = 512  # what a drive wants where it wants most: a sector (Linux, block/blk-settings.c, dma_alignment)
ALIGNED_BYTES = 1024  # of each thread; the rest of a gradient stays in memory (swap_tensor/utils.py, AIO_ALIGNED_BYTES)


class Sharing(NamedTuple):
    """What decides where gradients lie.

    Attributes:
        world: Ranks that share a tensor.
        sub_group: sub_group_size, elements of a rank.
        width: Bytes of an element of a gradient.
        block_bytes: aio.block_size; what is smaller is not swapped.
        threads: aio.intra_op_parallelism.
    """

    world: int
    sub_group: int
    width: int
    block_bytes: int
    threads: int


class Lost(NamedTuple):
    """What is not read back, where a drive wants memory at multiples of 512 bytes.

    Attributes:
        tensors: Parameters whose gradients are lost.
        of: All parameters.
        share: Elements of those among the elements of all.
    """

    tensors: int
    of: int
    share: float


@functools.lru_cache(maxsize=64)
def lost(model: Model, sharing: Sharing) -> Lost:
    """The gradients of a fully trained model that such a drive loses; its parameters are in one group.

    Raises:
        DsgenError: An architecture that is not known.
    """
    parts = modules(model, "full", 0, (), 1).parts
    sizes = {held.place: held.numel for _, part in parts for module in part for held in module.tensors}
    offsets = _offsets([-(-numel // sharing.world) for _, numel in sorted(sizes.items())], sharing.sub_group)
    gone = [size for offset, size in offsets if offset * sharing.width % ADDRESS_BYTES and _swapped(size, sharing)]
    return Lost(len(gone), len(offsets), sum(gone) / sum(size for _, size in offsets))


def _offsets(shares: list[int], sub_group: int) -> list[tuple[int, int]]:
    """Offset in its sub-group and elements of each share (stage3.py, _create_fp16_sub_groups)."""
    made, offset = [], 0
    for share in shares:
        made.append((offset, share))
        offset = offset + share if offset + share < sub_group else 0
    return made


def _swapped(share: int, sharing: Sharing) -> bool:
    """Whether a gradient goes to the drive, but for its end (optimizer_utils.py, _adjust_for_misaligned_lengths)."""
    nbytes, aligned = share * sharing.width, ALIGNED_BYTES * sharing.threads
    return nbytes // aligned * aligned >= max(LEAST_BYTES, sharing.block_bytes)
