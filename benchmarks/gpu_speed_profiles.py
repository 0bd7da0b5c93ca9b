"""Which hardware profile a card is, by the name that its driver gives it."""

from __future__ import annotations

from dsgen.shapes.errors import mistake

__all__ = ["NAMES", "profile_of"]

# Words that the driver's name of a card has, all of them -> profile; the first that fits.
NAMES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("GH200", "144"), "gh200-144g"),
    (("GH200",), "gh200-96g"),  # "GH200 480GB" counts the memory of its CPU
    (("GB200",), "gb200-186g"),
    (("GB300",), "gb300-288g"),
    (("H200",), "h200-141g"),
    (("H100", "NVL"), "h100-94g-nvl"),
    (("H100", "PCIe"), "h100-80g-pcie"),
    (("H100",), "h100-80g"),
    (("H800",), "h800-80g"),
    (("H20",), "h20-96g"),
    (("A100", "PCI", "80GB"), "a100-80g-pcie"),
    (("A100", "PCI"), "a100-40g-pcie"),
    (("A100", "80GB"), "a100-80g"),
    (("A100",), "a100-40g"),
    (("A800", "80GB"), "a800-80g"),
    (("A800",), "a800-40g"),
    (("B200",), "b200-180g"),
    (("B300",), "b300-288g"),
    (("RTX 6000 Ada",), "rtx6000ada-48g"),
    (("RTX A6000",), "rtxa6000-48g"),
    (("RTX PRO 6000",), "rtxpro6000-96g"),
    (("RTX 3090",), "rtx3090-24g"),
    (("RTX 4090",), "rtx4090-24g"),
    (("RTX 5090",), "rtx5090-32g"),
    (("A10G",), "a10g-24g"),
    (("A10",), "a10-24g"),
    (("A30",), "a30-24g"),
    (("A40",), "a40-48g"),
    (("L40S",), "l40s-48g"),
    (("L4",), "l4-24g"),
    (("T4",), "t4-16g"),
    (("V100", "32GB"), "v100-32g"),
    (("V100",), "v100-16g"),
    (("cpu",), "cpu"),
)


def profile_of(name: str) -> str:
    """The profile of a card.

    Args:
        name: As the driver says it: "NVIDIA H100 80GB HBM3".

    Raises:
        DsgenError: No profile is known to be of it.
    """
    for words, profile in NAMES:
        if all(word in name for word in words) and not (words == ("L4",) and "L40" in name):
            return profile
    raise mistake(
        f"the card is {name!r}",
        must="no profile is known to be of it",
        todo="Name one with --hw; dsgen profiles list hardware shows them.",
        code="unknown-name",
    )
