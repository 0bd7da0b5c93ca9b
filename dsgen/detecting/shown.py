"""The cards that a program here may use, in one form for every vendor; or why there are cards that do not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsgen.detecting.answers import VISIBLE, Answers
from dsgen.detecting.cards import AMD_DEVICES
from dsgen.shapes.errors import DsgenError, mistake

__all__ = ["check_equal", "check_whole", "shown_cards"]

_NVIDIA, _AMD = "0x10de", "0x1002"  # PCI vendors
_GIGA = 10**9
# GB/s of one lane, one direction, by PCIe generation: GT/s by eight, less 8b/10b of the first two (PCI-SIG).
_LANE_GBYTES = {1: 0.25, 2: 0.5, 3: 1.0, 4: 2.0, 5: 4.0, 6: 8.0}
# GT/s of a link -> its PCIe generation.
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


def shown_cards(answers: Answers) -> tuple[list[dict[str, Any]], str, int]:
    """The cards a program may use, in one form for both vendors; who told of them; and how many there are in all.

    Raises:
        DsgenError: There are cards that no driver tells of.
    """
    nvml, kfd, environment = answers["nvml"], answers["kfd"], answers["environment"]
    if nvml["gpus"]:
        shown = _visible([*enumerate(nvml["gpus"])], environment, VISIBLE[:1])
        kept = {index for index, _ in shown}
        cards = [{**_of_nvidia(card, kept), "index": index} for index, card in shown]
        return cards, f"NVML, driver {nvml['driver']}", len(nvml["gpus"])
    if trouble := _nvidia_trouble(answers):
        raise trouble
    if kfd is not None and kfd["gpus"]:
        shown = _visible([*enumerate(kfd["gpus"])], environment, VISIBLE[2:])
        kept = {index for index, _ in shown}
        cards = [{**_of_amd(card, kept), "index": index} for index, card in shown]
        return cards, "AMD's kernel driver, /sys/class/kfd", len(kfd["gpus"])
    there = [
        AMD_DEVICES.get(int(one["device"], 0)) for one in answers["pci"] if one["vendor"] == _AMD and one["device"]
    ]
    if known := next(filter(None, there), None):
        raise mistake(
            f"{answers['host']} has a card {known[0]}, and /sys/class/kfd does not show it",
            must="AMD's kernel driver must be loaded",
            todo="Load it (modprobe amdgpu); in a container pass --device=/dev/kfd --device=/dev/dri.",
            code="missing",
        )
    return [], "", 0


def _nvidia_trouble(answers: Answers) -> DsgenError | None:
    """Why NVIDIA's cards do not show, where there are any."""
    nvml, host = answers["nvml"], answers["host"]
    on_the_bus = any(one["vendor"] == _NVIDIA for one in answers["pci"])
    if not (on_the_bus or nvml["kernel_module"]):
        return None
    if nvml["error"] == "no package":
        return mistake(
            f"{host} has an NVIDIA card, and this Python has no nvidia-ml-py to ask it",
            todo='pip install "dsgen[detect]"',
            code="missing-package",
        )
    if nvml["error"] == "no library" and not nvml["kernel_module"]:
        return mistake(
            f"{host} has an NVIDIA card on its PCI bus and no driver of NVIDIA's",
            todo="Install the driver; nvidia-smi must list the card.",
            code="missing",
        )
    if nvml["error"] == "no library":
        return mistake(
            f"{host} has NVIDIA's kernel module and not its library libnvidia-ml.so.1",
            todo="In a container start it with --gpus all (NVIDIA Container Toolkit); else install the driver whole.",
            code="missing",
        )
    if nvml["error"]:
        return mistake(
            f"NVIDIA's driver on {host} answers: {nvml['error']}",
            todo="nvidia-smi must work first; versions that differ need a restart of the machine.",
            code="missing",
        )
    return None


def _visible(
    cards: list[tuple[int, dict[str, Any]]], environment: Mapping[str, str], names: Sequence[str]
) -> list[tuple[int, dict[str, Any]]]:
    """The cards that CUDA_VISIBLE_DEVICES and its like leave: numbers or ids, up to the first that is none."""
    for name in names:
        if name not in environment:
            continue
        kept: list[tuple[int, dict[str, Any]]] = []
        for wanted in (word.strip() for word in environment[name].split(",")):
            match = [
                one for place, one in enumerate(cards)
                if wanted == str(place) or (wanted.startswith("GPU-") and str(one[1].get("uuid")).startswith(wanted))
            ]  # fmt: skip
            if len(match) != 1 or match[0] in kept:
                break
            kept += match
        if not kept and cards:
            raise mistake(
                f"{name}={environment[name]} hides all {len(cards)} GPUs",
                must="at least one must be seen",
                todo=f"Unset {name}.",
                code="contradiction",
            )
        cards = kept
    return sorted(cards, key=lambda one: one[0])


def _of_nvidia(card: Mapping[str, Any], kept: set[int]) -> dict[str, Any]:
    # Drivers before 510 left what they keep out of the total, and told it not (NVML's nvmlDeviceGetMemoryInfo_v2).
    reserved = card["reserved_bytes"] or 0
    generation, width = card["pcie_generation"], card["pcie_width"]
    lane = _LANE_GBYTES.get(generation or 0)
    rate = card["nvlink_mbytes_per_second"]
    return {
        "name": card["name"],
        "mig": card["mig"],
        "total": card["total_bytes"],
        "usable": card["total_bytes"] - reserved,
        "pcie": f"PCIe {generation}.0 x{width}" if lane and width else "",
        "pcie_rate": lane * width * _GIGA if lane and width else None,
        "link": "nvlink",
        "link_rate": card["nvlinks"] * rate * 10**6 if rate and card["nvlinks"] else None,
        "linked": [one for one in card["nvlink_to"] or () if one in kept],
        "reads": None if card["reads"] is None else [one for one in card["reads"] if one in kept],
    }


def _of_amd(card: Mapping[str, Any], kept: set[int]) -> dict[str, Any]:
    known = AMD_DEVICES.get(card["device"] or 0)
    speed, width = card["pcie_gigatransfers"], card["pcie_width"]
    by_pcie = bool(speed and width) and not card["xgmi_to_host"]
    generation = _GENERATIONS.get(speed or 0)
    lane = _LANE_GBYTES.get(generation or 0)
    return {
        "name": known[0] if known else f"AMD device {card['device']:#06x}",
        "mig": False,
        "total": card["total_bytes"],
        "usable": card["total_bytes"],
        "pcie": f"PCIe {generation}.0 x{width}" if by_pcie and lane else "",
        "pcie_rate": lane * width * _GIGA if by_pcie and lane else None,
        "link": "xgmi",
        "link_rate": None,
        "linked": [one for one in card["xgmi_to"] if one in kept],
        "reads": None,
    }


def check_whole(cards: Sequence[Mapping[str, Any]]) -> None:
    """Stop at a card that MIG splits.

    Raises:
        DsgenError: With what to do.
    """
    split = [place for place, card in enumerate(cards) if card["mig"]]
    if split:
        raise mistake(
            f"MIG splits {len(split)} of {len(cards)} GPUs ({cards[split[0]]['name']})",
            must="a plan is for whole cards: a slice joins no other, so DeepSpeed has nothing to share",
            todo="Join them (nvidia-smi -mig 0), or plan for one slice: --gpu-memory 10GiB --gpus 1.",
            code="contradiction",
        )


def check_equal(cards: Sequence[Mapping[str, Any]]) -> None:
    """Stop at cards of several kinds.

    Raises:
        DsgenError: With how many there are of each.
    """
    kinds: dict[tuple[str, int], int] = {}
    for card in cards:
        kind = (card["name"], round(card["total"] / 2**30))
        kinds[kind] = kinds.get(kind, 0) + 1
    if len(kinds) > 1:
        listed = ", ".join(f"{count} x {name} ({size} GiB)" for (name, size), count in kinds.items())
        raise mistake(
            f"the GPUs differ: {listed}",
            must="a plan is for equal cards: the least would hold up the rest",
            todo="Show those that train alone: CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1 dsgen ...",
            code="contradiction",
        )
