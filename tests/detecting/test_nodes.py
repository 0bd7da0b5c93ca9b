"""Recorded answers of real machines to the nodes that they are, and what is refused of them."""

from __future__ import annotations

from typing import Any

import pytest
from machines import MACHINES, answers, machine

from dsgen.detecting import ask, node
from dsgen.detecting.cards import AMD_DEVICES, NVIDIA_NAMES, profile_of
from dsgen.shapes.errors import DsgenError

REFUSED = {"a100-mig", "mixed"}


@pytest.mark.parametrize("name", MACHINES)
def test_every_recording_names_its_sources(name: str) -> None:
    assert answers(name)["sources"]


@pytest.mark.parametrize("name", sorted(set(MACHINES) - REFUSED))
def test_every_machine_is_read(name: str) -> None:
    said = machine(name)

    assert said.gpus >= 1
    assert said.card is not None
    assert said.host == answers(name)["host"]


@pytest.mark.parametrize(
    ("name", "link", "gigabytes"),
    [("dgx-a100-40g", "nvlink", 300), ("h100-8", "nvlink", 478.1), ("mi300x-8", "xgmi", None),
     ("a40-pairs", "pcie", None), ("rtx3090-x4-slot", "pcie", None), ("t4-cloud", None, None)],
)  # fmt: skip
def test_what_joins_the_cards(name: str, link: str | None, gigabytes: float | None) -> None:
    card = machine(name).card

    assert card is not None
    assert card.link == link
    rate = card.link_bytes_per_second
    assert (rate and round(rate / 1e9, 1)) == gigabytes


def test_bridges_between_pairs_join_two_and_not_four() -> None:
    four = machine("a40-pairs").card
    two = machine("a40-pairs", environment={"CUDA_VISIBLE_DEVICES": "2,3"}).card
    apart = machine("a40-pairs", environment={"CUDA_VISIBLE_DEVICES": "0,2"}).card

    assert four is not None and four.link == "pcie" and four.partly_linked
    assert two is not None and two.link == "nvlink" and not two.partly_linked
    assert two.link_bytes_per_second == pytest.approx(56.2e9, rel=0.01)  # the bridge's 112.5 GB/s, both directions
    assert apart is not None and apart.link == "pcie" and not apart.partly_linked


def test_of_slots_that_differ_the_narrowest_counts() -> None:
    card = machine("rtx3090-x4-slot").card

    assert card is not None
    assert (card.pcie, card.pcie_bytes_per_second) == ("PCIe 3.0 x4", 4e9)


def test_a_driver_that_tells_no_reserve_has_left_it_out_of_the_total() -> None:
    card = machine("a40-pairs").card

    assert card is not None
    assert (card.usable_bytes, card.total_bytes) == (45634 * 2**20, 45634 * 2**20)


def test_a_job_sees_its_share_of_the_node() -> None:
    job = machine("h100-job")

    assert (job.gpus, job.hidden, job.cores, job.all_cores) == (2, 6, 28, 112)
    assert (job.memory_bytes, job.memory_limited) == (500 * 2**30, True)
    assert not machine("h100-8").memory_limited


@pytest.mark.parametrize(
    ("said", "seen"),
    [("0", 1), ("0,1,2", 3), ("0,1,99,3", 2), ("0,0", 1), ("GPU-00000002", 1), ("GPU-0000000", None), ("", None),
     ("-1", None)],
)  # fmt: skip
def test_cuda_visible_devices_is_read_as_cuda_reads_it(said: str, seen: int | None) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": said}
    if seen is not None:
        assert machine("h100-8", environment=environment).gpus == seen
    else:
        with pytest.raises(DsgenError, match="hides all 8 GPUs"):
            machine("h100-8", environment=environment)


def test_amd_has_variables_of_its_own() -> None:
    assert machine("mi300x-8", environment={"HIP_VISIBLE_DEVICES": "0,1"}).gpus == 2
    assert machine("mi300x-8", environment={"CUDA_VISIBLE_DEVICES": "0"}).gpus == 8


def test_network_volumes_of_a_cloud_are_no_local_drives() -> None:
    assert machine("t4-cloud").drives == (125_000_000_000,)


def test_interfaces_that_are_up_are_counted_by_kind() -> None:
    kinds = {(one.kind, one.count, one.gbits) for one in machine("h100-8").interfaces}

    assert kinds == {("infiniband", 8, 400.0), ("roce", 1, 100.0)}
    assert machine("t4-cloud").interfaces == ()  # its speed is not told


def test_mig_is_refused_with_both_ways_out() -> None:
    with pytest.raises(DsgenError) as caught:
        machine("a100-mig")

    assert "MIG splits 1 of 1 GPUs" in caught.value.what
    assert "nvidia-smi -mig 0" in str(caught.value.todo)
    assert "--gpu-memory" in str(caught.value.todo)


def test_cards_that_differ_are_refused_until_equal_ones_are_shown() -> None:
    with pytest.raises(DsgenError, match=r"2 x NVIDIA GeForce RTX 4090.*1 x NVIDIA RTX A6000"):
        machine("mixed")

    equal = machine("mixed", environment={"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0,1"})
    assert (equal.gpus, equal.hidden) == (2, 1)


NO_NVML = {"kernel_module": "", "error": "no library", "driver": "", "gpus": []}
NVIDIA_CARD = [{"address": "0000:01:00.0", "vendor": "0x10de", "device": "0x2684"}]
MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01"


@pytest.mark.parametrize(
    ("nvml", "pci", "words", "todo"),
    [
        ({"error": "no package", "kernel_module": MODULE}, [], "no nvidia-ml-py", "dsgen[detect]"),
        ({"error": "no package"}, NVIDIA_CARD, "no nvidia-ml-py", "dsgen[detect]"),
        ({}, NVIDIA_CARD, "no driver of NVIDIA's", "Install the driver"),
        ({"kernel_module": MODULE}, [], "not its library libnvidia-ml.so.1", "--gpus all"),
        ({"error": "RM has detected an NVML/RM version mismatch.", "kernel_module": MODULE}, [], "mismatch", "restart"),
    ],
)
def test_why_nvidia_s_cards_do_not_show(nvml: dict[str, Any], pci: list[Any], words: str, todo: str) -> None:
    with pytest.raises(DsgenError) as caught:
        machine("rtx4090-desktop", nvml={**NO_NVML, **nvml}, pci=pci)

    assert words in caught.value.what
    assert todo in str(caught.value.todo)


def test_a_card_of_amd_without_its_driver_is_named() -> None:
    with pytest.raises(DsgenError, match="AMD Instinct MI300X, and /sys/class/kfd does not show it"):
        machine("mi300x-8", kfd=None)


def test_a_processor_s_own_graphics_are_no_gpu() -> None:
    graphics = [{"address": "0000:0e:00.0", "vendor": "0x1002", "device": "0x164e"}]

    assert machine("rtx4090-desktop", nvml=NO_NVML, pci=graphics).gpus == 0


def test_drivers_before_470_left_the_maker_away() -> None:
    assert profile_of("A40") == profile_of("NVIDIA A40") == "a40-48g"
    assert profile_of("GeForce RTX 2080 Ti") == profile_of("NVIDIA GeForce RTX 2080 Ti") == "rtx2080ti-11g"


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("NVIDIA GeForce RTX 3060", "rtx3060-12g"),
        ("NVIDIA GeForce RTX 3060 Ti", None),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3080", "rtx3080-10g"),
        ("NVIDIA GeForce RTX 3080 Ti", None),
        ("NVIDIA GeForce RTX 4060 Ti", "rtx4060ti-16g"),
        ("NVIDIA GeForce RTX 4060", None),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx4070tisuper-16g"),
        ("NVIDIA GeForce RTX 4070 Ti", None),
        ("NVIDIA GeForce RTX 4080", "rtx4080-16g"),
        ("NVIDIA GeForce RTX 4080 SUPER", None),
        ("NVIDIA GeForce RTX 5070 Ti", "rtx5070ti-16g"),
        ("NVIDIA GeForce RTX 5070 Ti Laptop GPU", None),
        ("NVIDIA GeForce RTX 5080", "rtx5080-16g"),
        ("NVIDIA RTX 4000 Ada Generation", "rtx4000ada-20g"),
        ("NVIDIA RTX 4000 SFF Ada Generation", None),
        ("Quadro RTX 4000", None),
        ("NVIDIA RTX A4000", "rtxa4000-16g"),
        ("NVIDIA RTX A5000", "rtxa5000-24g"),
        ("NVIDIA RTX A2000", None),
    ],
)
def test_a_card_is_not_taken_for_another_with_the_same_number(name: str, profile: str | None) -> None:
    assert profile_of(name) == profile


def test_every_name_has_a_profile_that_exists() -> None:
    from dsgen import catalog

    named = {*NVIDIA_NAMES.values(), *(profile for _, profile in AMD_DEVICES.values() if profile)}

    assert named <= set(catalog.names("hardware"))


def test_every_card_of_a_built_in_profile_has_a_driver_s_name() -> None:
    """But those that are no card of NVIDIA's or AMD's, and nameless ones."""
    from dsgen import catalog

    named = {*NVIDIA_NAMES.values(), *(profile for _, profile in AMD_DEVICES.values() if profile)}
    others = {name for name in catalog.names("hardware") if name.startswith(("generic-", "gaudi", "cpu"))}

    assert set(catalog.names("hardware")) - others == named


def test_this_machine_answers() -> None:
    said = ask()

    assert said["memory"]["total_bytes"] > 2**30
    assert said["cpus"]["cores"] >= said["cpus"]["allowed_cores"] >= 1
    assert said["cpus"]["sockets"] >= 1
    if not (said["pci"] or said["kfd"] or said["nvml"]["kernel_module"]):  # as machines of CI are
        here = node(said)
        assert (here.gpus, here.card) == (0, None)
        assert here.memory_bytes is not None and here.memory_bytes <= said["memory"]["total_bytes"]
