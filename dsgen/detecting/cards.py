"""The names that drivers give to cards, and the built-in hardware profile of each."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["AMD_DEVICES", "NVIDIA_NAMES", "AmdDevice", "profile_of"]

# Name by NVML without "NVIDIA " -> profile. Names: the list of supported GPUs in the README of NVIDIA's
# open-gpu-kernel-modules; those of Volta and Turing as nvidia-smi prints them in public logs.
NVIDIA_NAMES: Mapping[str, str] = {
    "A10": "a10-24g",
    "A10G": "a10g-24g",
    "A100-SXM4-40GB": "a100-40g",
    "A100-SXM4-80GB": "a100-80g",
    "A100-PCIE-40GB": "a100-40g-pcie",
    "A100 80GB PCIe": "a100-80g-pcie",
    "A30": "a30-24g",
    "A40": "a40-48g",
    "A800-SXM4-40GB": "a800-40g",
    "A800-SXM4-80GB": "a800-80g",
    "B200": "b200-180g",
    "B300 SXM6 AC": "b300-288g",
    "GB200": "gb200-186g",
    "GB300": "gb300-288g",
    "GH200 480GB": "gh200-96g",
    "GH200 144G HBM3e": "gh200-144g",
    "GeForce RTX 2080 Ti": "rtx2080ti-11g",
    "GeForce RTX 3060": "rtx3060-12g",
    "GeForce RTX 3080": "rtx3080-10g",
    "GeForce RTX 3090": "rtx3090-24g",
    "GeForce RTX 4060 Ti": "rtx4060ti-16g",
    "GeForce RTX 4070 Ti SUPER": "rtx4070tisuper-16g",
    "GeForce RTX 4080": "rtx4080-16g",
    "GeForce RTX 4090": "rtx4090-24g",
    "GeForce RTX 5070 Ti": "rtx5070ti-16g",
    "GeForce RTX 5080": "rtx5080-16g",
    "GeForce RTX 5090": "rtx5090-32g",
    "H100 80GB HBM3": "h100-80g",
    "H100 PCIe": "h100-80g-pcie",
    "H100 NVL": "h100-94g-nvl",
    "H20": "h20-96g",
    "H200": "h200-141g",
    "H800": "h800-80g",
    "L4": "l4-24g",
    "L20": "l20-48g",
    "L40S": "l40s-48g",
    "RTX 4000 Ada Generation": "rtx4000ada-20g",
    "RTX 6000 Ada Generation": "rtx6000ada-48g",
    "RTX A4000": "rtxa4000-16g",
    "RTX A5000": "rtxa5000-24g",
    "RTX A6000": "rtxa6000-48g",
    "RTX PRO 6000 Blackwell Server Edition": "rtxpro6000-96g",
    "RTX PRO 6000 Blackwell Workstation Edition": "rtxpro6000-96g",
    "Tesla T4": "t4-16g",
    "Tesla V100-PCIE-16GB": "v100-16g-pcie",
    "Tesla V100-PCIE-32GB": "v100-32g-pcie",
    "Tesla V100-SXM2-16GB": "v100-16g",
    "Tesla V100-SXM2-32GB": "v100-32g",
    "Tesla V100-SXM3-32GB": "v100-32g",
}

AmdDevice = tuple[str, str | None]
"""What AMD sells a device as, and its profile."""

# PCI device of an AMD card -> its name and profile. Numbers: pci.ids of the PCI ID Repository; 0x74a1 and 0x74b5 as
# rocminfo prints them (github.com/ROCm/legacy-rocm-build issue 4414, github.com/ROCm/amdsmi issue 130).
AMD_DEVICES: Mapping[int, AmdDevice] = {
    0x7408: ("AMD Instinct MI250X", "mi250x-128g"),
    0x740C: ("AMD Instinct MI250", "mi250-128g"),
    0x740F: ("AMD Instinct MI210", "mi210-64g"),
    0x74A0: ("AMD Instinct MI300A", "mi300a-128g"),
    0x74A1: ("AMD Instinct MI300X", "mi300x-192g"),
    0x74A2: ("AMD Instinct MI308X", None),
    0x74A5: ("AMD Instinct MI325X", "mi325x-256g"),
    0x74B5: ("AMD Instinct MI300X VF", "mi300x-192g"),
    0x74B9: ("AMD Instinct MI325X VF", "mi325x-256g"),
    0x75A0: ("AMD Instinct MI350X", None),
    0x75A3: ("AMD Instinct MI355X", "mi355x-288g"),
}

_FOLDED = {name.casefold(): profile for name, profile in NVIDIA_NAMES.items()}


def profile_of(name: str) -> str | None:
    """The profile of a card by its driver's name; drivers before 470 left "NVIDIA " away."""
    for known, profile in AMD_DEVICES.values():
        if name == known:
            return profile
    return _FOLDED.get(name.casefold().removeprefix("nvidia "))
