"""The hardware profile of the machine at hand: the built-in one of its cards, and each fact in which it differs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import attrs

from dsgen.catalog.profile_index import built_in
from dsgen.catalog.sheets import AUTO, Sheet, read_sheet
from dsgen.catalog.structure import structure
from dsgen.detecting import DetectedNode
from dsgen.shapes.errors import mistake
from dsgen.shapes.layers import Layer, Origin, Override, Rank, fold
from dsgen.shapes.profiles import Hardware
from dsgen.shapes.value import Value

__all__ = ["COMMAND", "DetectedFact", "DetectedMachine", "detected", "sheet"]

COMMAND = "dsgen hardware detect"
_GIB, _GB = 2**30, 10**9
# Of what a machine has, as the profile says it: RAM as sold is some 2 % more than MemTotal of Linux, and links as sold
# are a few percent less than the line rate that a driver tells (26.6 for 25 GB/s of one NVLink 4).
_EQUAL_SHARE = 0.1
_RAM_SHARE = 0.03
_HUNDREDTH_BYTES = 0.01 * _GIB  # profiles tell usable memory in hundredths of a GiB
_LEAST_SHARE = 0.8  # of a card's usable memory: with less it is a part of one, or another card of the same name
_MOST_SHARE = 1.1
# A host joined by more than any PCIe slot (6.0 x16) is joined chip to chip, as Grace is, whatever the slot says.
_CHIP_TO_CHIP_BYTES_PER_SECOND = 128e9
# NCCL src/graph/tuning.cc, table hwLat, one ring hop with protocol LL128, as the built-in profiles have it.
_HOP = {"nvlink": "1.9 us", "xgmi": "1.9 us", "pcie": "2.5 us"}
_DRIVE_READ_GB = 7.0  # GB/s of one drive as the built-in profiles count them: a PCIe 4.0 x4 one, Samsung's PM1733
# How a processor is called -> its channels of DDR4-3200, 25.6 GB/s each (JEDEC JESD79-4); the first that matches. DDR5
# has up to twice as much. A server's channels do not follow from its name.
_CHANNELS = ((r"Threadripper PRO", 8), (r"Threadripper", 4), (r"Ryzen|Core\(TM\)", 2))
_CHANNEL_GB = 25.6


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DetectedFact(Value):
    """One fact of the machine that its cards' profile does not say, or says otherwise.

    Attributes:
        name: Of the fact: gpus_per_node.
        value: As YAML writes it.
        why: What it was made from; stands beside it.
        source: Who told.
        was: What the profile says.
    """

    name: str
    value: str
    why: str
    source: str
    was: str


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DetectedMachine(Value):
    """A machine as a profile: what it extends, and the facts in which it differs.

    Attributes:
        node: What it said of itself.
        extends: The built-in profile of its cards.
        facts: Those that differ.
        hardware: What the built-in profile says.
    """

    node: DetectedNode
    extends: str
    facts: tuple[DetectedFact, ...]
    hardware: Hardware = attrs.field(repr=False)

    def profile(self, name: str = "my-box") -> str:
        """The hardware profile, in YAML: what it extends, and each fact that differs with its source."""
        return _text(self, name)

    def write(self, path: str, *, force: bool = False) -> None:
        """Write the profile, whole or not at all; it is named after its file.

        Args:
            path: The file, which ends in .yaml.
            force: Write over a file that is there.

        Raises:
            DsgenError: It cannot be written, or a file is there.
        """
        from dsgen.documents.writing import write_new_yaml

        write_new_yaml(path, self.profile, "a profile", force=force)


def detected(node: DetectedNode, measured: tuple[DetectedFact, ...] = ()) -> DetectedMachine:
    """The profile of a node.

    Args:
        node: What the machine said of itself.
        measured: Facts that were measured, which win over what it said.

    Raises:
        DsgenError: No GPU, or a card that no built-in profile is of.
    """
    card = node.card
    if card is None:
        host = f"{node.host} has RAM of {(node.memory_bytes or 0) / _GIB:,.0f} GiB and {node.cores} cores"
        raise mistake(
            f"{host}, and no GPU: no driver of NVIDIA's or AMD's shows one",
            must=f"{AUTO} and {COMMAND} describe the machine that they run on",
            todo="Run it where the GPUs are, or name the machine: --hw a100-40g (dsgen profiles list hardware), or "
            "--hw cpu to train without a GPU.",
            code="missing",
        )
    base = built_in("hardware", card.profile) if card.profile else None
    if base is None:
        size = round(card.total_bytes / _GIB)
        raise mistake(
            f"no built-in profile is of {card.name} ({size} GiB), and {node.host} has {node.gpus}",
            todo=f"Plan for a card of that size: --gpu-memory {size}GiB --gpus {node.gpus}; or fill in its data sheet: "
            "dsgen profiles new hardware my-box -o my-box.yaml.",
            code="unknown-name",
        )
    hardware = _hardware(base)
    _check_card(node, hardware)
    new = {fact.name: fact for fact in (*_facts(node, hardware), *measured)}
    return DetectedMachine(node=node, extends=base.name, facts=tuple(new.values()), hardware=hardware)


def _hardware(base: Sheet) -> Hardware:
    """What a built-in profile says, with those that it extends."""
    chain: list[Sheet | None] = [base]
    while (last := chain[-1]) is not None and last.extends:
        chain.append(built_in("hardware", last.extends))
    overrides = [
        Override(path, value, Origin(sheet.file, line), Rank.HARDWARE, why)
        for sheet in reversed([one for one in chain if one is not None])
        for path, value, line, why in sheet.overrides
    ]
    folded = fold([Layer(base.name, Rank.HARDWARE, tuple(overrides))])
    return structure(Hardware, "hardware", folded.tree, folded.provenance)


def _check_card(node: DetectedNode, hardware: Hardware) -> None:
    """Refuse a part of a card, or one that was given another memory."""
    card = node.card
    if card is None:
        return
    share = card.usable_bytes / hardware.usable_memory_bytes
    if not _LEAST_SHARE < share < _MOST_SHARE:
        size = round(card.total_bytes / _GIB)
        raise mistake(
            f"{card.name} on {node.host} has {size} GiB, and its profile {hardware.gpu_memory_bytes / _GIB:.0f} GiB",
            must="a plan is for whole cards as sold: this is a part of one, or one with another memory",
            todo=f"Say its memory beside its profile: --hw {card.profile} --gpu-memory {size}GiB --gpus {node.gpus}.",
            code="contradiction",
        )


def _facts(node: DetectedNode, hardware: Hardware) -> Iterator[DetectedFact]:
    """What the machine says otherwise than the profile of its cards."""
    card = node.card
    if card is None:
        return
    told = f"{node.driver}, on {node.host}, {node.date}"
    host = f"Linux on {node.host}, {node.date}"

    def gpu(name: str, value: str, why: str, was: str) -> DetectedFact:
        return DetectedFact(name=name, value=value, why=why, source=f"detected: {told}", was=was)

    def linux(name: str, value: str, why: str, was: str) -> DetectedFact:
        return DetectedFact(name=name, value=value, why=why, source=f"detected: {host}", was=was)

    usable = card.usable_bytes
    if abs(usable - hardware.usable_memory_bytes) > _HUNDREDTH_BYTES:
        keeps = usable < card.total_bytes
        why = f"{_gib(card.total_bytes)} less what the driver keeps" if keeps else "all that the driver tells"
        yield gpu("usable_memory", _gib(usable), why, _gib(hardware.usable_memory_bytes))
    if node.gpus != hardware.gpus_per_node:
        why = f"of {node.gpus + node.hidden}, the others are hidden by a variable" if node.hidden else "all it has"
        yield gpu("gpus_per_node", str(node.gpus), why, str(hardware.gpus_per_node))
    yield from _links(node, hardware, gpu)
    yield from _host(node, hardware, linux)
    yield from _drives(node, hardware, linux, card.profile or "")


def _links(node: DetectedNode, hardware: Hardware, gpu: Any) -> Iterator[DetectedFact]:
    """What joins the cards, and what joins them to the host."""
    card, slot = node.card, hardware.host_link_bandwidth_bytes_per_second
    if card is None:
        return
    by_slot = card.pcie_bytes_per_second
    if by_slot is not None and slot < _CHIP_TO_CHIP_BYTES_PER_SECOND and _differs(by_slot, slot):
        yield gpu("host_link_bandwidth", _rate(by_slot), card.pcie, _rate(slot))
    if card.link is None:
        return
    if card.link != hardware.intra_node_link:
        why = {"pcie": "no links of another kind join all of them"}.get(card.link, "it joins all of them")
        if card.partly_linked:
            why = "other links join some of them, and a ring over all passes PCIe"
        yield gpu("intra_node_link", card.link, why, hardware.intra_node_link)
        yield gpu("intra_node_latency", _HOP[card.link], "a hop over it, NCCL src/graph/tuning.cc", "")
    rate = by_slot if card.link == "pcie" else card.link_bytes_per_second
    own = hardware.intra_node_bandwidth_bytes_per_second
    if rate is not None and (_differs(rate, own) or card.link != hardware.intra_node_link):
        why = card.pcie if card.link == "pcie" else "all links of a card"
        yield gpu("intra_node_bandwidth", _rate(rate), why, _rate(own))
    reads = card.peer_access
    if reads is not None and reads != hardware.peer_access:
        why = "the driver lets them read each other" if reads else "the driver does not let all read each other"
        yield gpu("peer_access", str(reads).lower(), why, str(hardware.peer_access).lower())


def _host(node: DetectedNode, hardware: Hardware, linux: Any) -> Iterator[DetectedFact]:
    ram, sold = node.memory_bytes, hardware.host_memory_bytes
    if ram is not None and (node.memory_limited or abs(ram / sold - 1) > _RAM_SHARE):
        why = "the limit of this container or job" if node.memory_limited else "MemTotal"
        yield linux("host_memory", f"{ram / _GIB:.1f} GiB", why, f"{sold / _GIB:,.0f} GiB")
    if node.cores and node.cores != hardware.cpu_cores:
        sockets = _times(node.sockets, "socket")
        some = f"of {node.all_cores}, " if node.cores != node.all_cores else ""
        why = f"{some}{sockets}{f', {node.processor}' if node.processor else ''}"
        yield linux("cpu_cores", str(node.cores), why, str(hardware.cpu_cores))
    if node.numa_domains and node.numa_domains != hardware.numa_domains:
        yield linux("numa_domains", str(node.numa_domains), "parts of its RAM with cores", str(hardware.numa_domains))
    channels = next((number for name, number in _CHANNELS if re.search(name, node.processor)), None)
    speed = hardware.host_memory_bandwidth_bytes_per_second
    if channels is not None and _differs(channels * _CHANNEL_GB * _GB, speed):
        yield DetectedFact(
            name="host_memory_bandwidth",
            value=_rate(channels * _CHANNEL_GB * _GB),
            why="DDR5 has up to twice as much; --measure tells",
            source=f"derived, {channels} channels DDR4-3200 of {_CHANNEL_GB} GB/s each: {node.processor} has no less",
            was=_rate(speed),
        )


def _drives(node: DetectedNode, hardware: Hardware, linux: Any, extends: str) -> Iterator[DetectedFact]:
    """Local drives by number and size; how fast they are is counted by the number, until it is measured."""
    held, count = sum(node.drives), len(node.drives)
    was = hardware.nvme_capacity_bytes
    if not _differs(held, was):
        return
    why = f"{_times(count, 'local NVMe drive')}" if count else "no local NVMe drive"
    yield linux("nvme_capacity", f"{held / 10**12:.3g} TB", why, f"{was / 10**12:.3g} TB")
    read, write = hardware.nvme_read_bandwidth_bytes_per_second, hardware.nvme_write_bandwidth_bytes_per_second
    drives = max(1, round(read / (_DRIVE_READ_GB * _GB)))
    for name, own in (("nvme_read_bandwidth", read), ("nvme_write_bandwidth", write)):
        if count == 0:
            yield linux(name, "0 GB/s", why, _rate(own))
        elif count != drives:
            source = f"derived, {_times(count, 'drive')} like those of {extends}, not measured"
            yield DetectedFact(
                name=name,
                value=_rate(own * count / drives),
                why=f"{count} of its {drives}",
                source=source,
                was=_rate(own),
            )


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _differs(told: float, known: float) -> bool:
    return abs(told - known) > _EQUAL_SHARE * max(told, known)


def _gib(size: float) -> str:
    return f"{int(size / _GIB * 100) / 100:.2f} GiB"


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / _GB:.4g} GB/s"


def _text(machine: DetectedMachine, name: str) -> str:
    node, card = machine.node, machine.node.card
    title = f"{node.gpus} x {card.name if card else ''}, {node.host}"
    lines = [
        f"# Written by {COMMAND} on {node.host}, {node.date}. What it does not say is as in {machine.extends}.",
        f"name: {json.dumps(name, ensure_ascii=False)}",
        "kind: hardware",
        f"title: {json.dumps(title, ensure_ascii=False)}",
        f"extends: {machine.extends}",
    ]
    if machine.facts:
        sources = (f"  {fact.name}: {json.dumps(fact.source, ensure_ascii=False)}" for fact in machine.facts)
        lines += ["source:", *sources]
        lines += ["hardware:", *(f"  {fact.name}: {fact.value}  # {fact.why}" for fact in machine.facts)]
    return "\n".join(lines) + "\n"


def sheet() -> Sheet:
    """The profile of the machine at hand, as if its file had been named.

    Raises:
        DsgenError: As `detected`, and `dsgen.detecting.node`.
    """
    from dsgen import detecting

    machine = detected(detecting.node(detecting.ask()))
    return read_sheet(machine.profile(AUTO), COMMAND, AUTO, "hardware")
