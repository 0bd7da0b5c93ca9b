"""The settings of PyTorch's allocators that change what they reserve, as PYTORCH_CUDA_ALLOC_CONF writes them.

Source: c10/core/AllocatorConfig.cpp and c10/cuda/CUDAAllocatorConfig.cpp of PyTorch 2.13 for names, units and bounds.
"""

from __future__ import annotations

__all__ = ["AllocatorSettings", "parse"]

MIB = 2**20
_LEAST_SPLIT_MIB = 20  # max_split_size_mb is at least large_segment_size, 20 MiB (parseMaxSplitSize)


class AllocatorSettings:
    """What a process set.

    Attributes:
        expandable: Segments grow (expandable_segments).
        max_split_bytes: Blocks of this size and more are not split; None for no bound.
        garbage_threshold: Share of the memory above which idle segments are given back, 0 for never. PyTorch looks at
            it only where the program has called `torch.cuda.set_per_process_memory_fraction`; that is taken as done.
        divisions: Requests are rounded up to this part of a power of two; 0 for no such rounding.
        pinned_cached_bytes: Larger page-locked tensors are neither rounded up nor kept when they are freed; None for
            no bound.
    """

    __slots__ = ("divisions", "expandable", "garbage_threshold", "max_split_bytes", "pinned_cached_bytes")

    def __init__(
        self,
        expandable: bool = False,
        max_split_bytes: int | None = None,
        garbage_threshold: float = 0.0,
        divisions: int = 0,
        pinned_cached_bytes: int | None = None,
    ) -> None:
        self.expandable, self.max_split_bytes = expandable, max_split_bytes
        self.garbage_threshold, self.divisions = garbage_threshold, divisions
        self.pinned_cached_bytes = pinned_cached_bytes


def parse(text: str) -> AllocatorSettings:
    """The settings that a value of PYTORCH_CUDA_ALLOC_CONF means; an empty one is PyTorch's defaults.

    Raises:
        ValueError: A name that is not followed here, or a value that PyTorch does not take.
    """
    settings = AllocatorSettings()
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (part.strip() for part in item.partition(":"))
        if name == "expandable_segments" and value in ("True", "False"):
            settings.expandable = value == "True"
        elif name == "max_split_size_mb" and value.isdigit() and int(value) >= _LEAST_SPLIT_MIB:
            settings.max_split_bytes = int(value) * MIB
        elif name == "garbage_collection_threshold" and _is_share(value):
            settings.garbage_threshold = float(value)
        elif name == "roundup_power2_divisions" and value.isdigit() and int(value).bit_count() == 1:
            settings.divisions = int(value)
        elif name == "pinned_max_cached_size_mb" and value.isdigit():
            settings.pinned_cached_bytes = int(value) * MIB
        else:
            raise ValueError(
                f"{item!r} is no setting of torch's allocators that a simulation follows; it follows "
                "expandable_segments:True or False, max_split_size_mb from 20, garbage_collection_threshold between 0 "
                "and 1, roundup_power2_divisions with one power of two, and pinned_max_cached_size_mb"
            )
    return settings


def _is_share(value: str) -> bool:
    try:
        return 0 < float(value) < 1
    except ValueError:
        return False
