"""Families of GPUs: by the compute capability of a profile, or by its rates where it names none."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dsgen.shapes.profiles import Hardware

__all__ = ["Architecture", "architecture", "multiprocessors"]


class Architecture(NamedTuple):
    """A family of GPUs.

    Attributes:
        name: The compute capability as NVIDIA's compiler writes it ("sm90"), "gfx90a", "gfx94", "gaudi" or "cpu".
        threads: Threads that can be resident on one multiprocessor (CUDA C++ Programming Guide, compute capabilities).
        lanes: fp32 operations of one multiprocessor a cycle, a fused multiply-add counted once (the same table).
        clock_hertz: Boost clock with which the datasheets' fp32 peaks are computed.
    """

    name: str
    threads: int = 0
    lanes: int = 0
    clock_hertz: float = 0.0


# Clocks: boost clocks of V100, T4, A100, A10, L40S and RTX 4090, H100 SXM, B200 and RTX PRO 6000 in their datasheets.
_VOLTA = Architecture("sm70", 2048, 64, 1.53e9)
_TURING = Architecture("sm75", 1024, 64, 1.59e9)
_AMPERE = Architecture("sm80", 2048, 64, 1.41e9)
_AMPERE_GRAPHICS = Architecture("sm86", 1536, 128, 1.70e9)
_ADA = Architecture("sm89", 1536, 128, 2.52e9)
_HOPPER = Architecture("sm90", 2048, 128, 1.98e9)
_BLACKWELL = Architecture("sm100", 2048, 128, 1.98e9)
_BLACKWELL_GRAPHICS = Architecture("sm120", 1536, 128, 2.45e9)

# Compute capability, as NVIDIA lists its GPUs (developer.nvidia.com/cuda-gpus) -> its family. B300's 10.3 differs from
# B200's in its tensor cores alone (CUDA C++ Programming Guide, compute capabilities).
_BY_CAPABILITY = {
    "7.0": _VOLTA,
    "7.5": _TURING,
    "8.0": _AMPERE,
    "8.6": _AMPERE_GRAPHICS,
    "8.9": _ADA,
    "9.0": _HOPPER,
    "10.0": _BLACKWELL,
    "10.3": _BLACKWELL,
    "12.0": _BLACKWELL_GRAPHICS,
}

# What tells the families apart in the facts of a profile that names none, such as one for a card without its own; each
# bound lies between the cards on its two sides.
_HBM = 700e9  # bytes/s: V100 has 900, RTX 2080 Ti has 616
_TENSOR_RATIO = 4  # TF32 by fp32: 8 for A100 and A30, 1 or 2 for the GPUs with graphics
_HOPPER_FROM = 1.9e12  # bytes/s: the slowest Hopper has 2.0, the fastest GPU with GDDR7 1.8
_BLACKWELL_FROM = 7e12  # bytes/s: B200 has 8, H200 4.8
_GDDR7_FROM = 1.5e12  # bytes/s: RTX PRO 6000 has 1.6, the fastest Ada 1.0; an RTX 5080, 0.96, is taken for an Ada


def architecture(hardware: "Hardware") -> Architecture:
    """The family of a profile's GPUs: of its compute capability, or what its rates tell where it names none."""
    if hardware.compute_capability is not None:
        return _BY_CAPABILITY[hardware.compute_capability]
    if hardware.vendor == "cpu":
        return Architecture("cpu")
    fp8, bf16 = hardware.fp8_flops_per_second > 0, hardware.bf16_flops_per_second > 0
    if hardware.vendor == "amd":
        return Architecture("gfx94" if fp8 else "gfx90a")
    if hardware.vendor == "intel":
        return Architecture("gaudi")
    speed = hardware.memory_bandwidth_bytes_per_second
    if fp8:
        if speed >= _HOPPER_FROM:
            return _BLACKWELL if speed >= _BLACKWELL_FROM else _HOPPER
        return _BLACKWELL_GRAPHICS if speed >= _GDDR7_FROM else _ADA
    if bf16:
        return _AMPERE if _tensor_ratio(hardware) >= _TENSOR_RATIO else _AMPERE_GRAPHICS
    return _VOLTA if speed >= _HBM else _TURING


def multiprocessors(hardware: "Hardware") -> int:
    """Streaming multiprocessors of one GPU, or its compute units.

    Where the profile does not count them they follow from the fp32 peak, within 25 % of the true number; 0 for what is
    not NVIDIA's.
    """
    if hardware.processors is not None:
        return hardware.processors
    family = architecture(hardware)
    if not family.threads:
        return 0
    return round(hardware.fp32_flops_per_second / (2 * family.lanes * family.clock_hertz))


def _tensor_ratio(hardware: "Hardware") -> float:
    return hardware.tf32_flops_per_second / hardware.fp32_flops_per_second
