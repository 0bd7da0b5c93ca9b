"""The profile of a detected machine: what it extends, what differs, and what later commands take of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import answers, file, machine

import dsgen
from dsgen import catalog, detecting
from dsgen.catalog.detected import detected
from dsgen.catalog.measured import measured_facts
from dsgen.detecting.measuring import DriveRates, LinkRates, MemoryRate
from dsgen.kernels import rates
from dsgen.shapes.errors import DsgenError


def facts(name: str) -> dict[str, str]:
    return {fact.name: fact.value for fact in detected(machine(name)).facts}


@pytest.mark.parametrize(
    ("name", "extends"),
    [("dgx-a100-40g", "a100-40g"), ("h100-8", "h100-80g"), ("rtx4090-desktop", "rtx4090-24g"), ("t4-cloud", "t4-16g"),
     ("a40-pairs", "a40-48g"), ("rtx3090-x4-slot", "rtx3090-24g"), ("mi300x-8", "mi300x-192g")],
)  # fmt: skip
def test_a_card_finds_its_profile(name: str, extends: str) -> None:
    assert detected(machine(name)).extends == extends


def test_a_machine_as_its_profile_has_it_differs_in_nothing() -> None:
    assert facts("dgx-a100-40g") == facts("h100-8") == {}


def test_a_desktop_differs_in_what_it_lacks() -> None:
    assert facts("rtx4090-desktop") == {
        "gpus_per_node": "1",
        "host_memory": "62.7 GiB",
        "cpu_cores": "16",
        "numa_domains": "1",
        "host_memory_bandwidth": "51.2 GB/s",
        "nvme_capacity": "2 TB",
    }


def test_a_narrow_slot_is_told_to_the_host_and_between_cards() -> None:
    said = facts("rtx3090-x4-slot")

    assert said["host_link_bandwidth"] == said["intra_node_bandwidth"] == "4 GB/s"
    assert "intra_node_link" not in said


def test_a_bridge_over_two_cards_makes_them_an_nvlink_node() -> None:
    two = detected(machine("a40-pairs", environment={"CUDA_VISIBLE_DEVICES": "0,1"}))
    said = {fact.name: fact.value for fact in two.facts}

    assert (said["intra_node_link"], said["intra_node_bandwidth"]) == ("nvlink", "56.25 GB/s")
    assert said["intra_node_latency"] == "1.9 us"


def test_a_node_without_drives_has_none() -> None:
    said = facts("a40-pairs")

    assert {said[f"nvme_{what}"] for what in ("read_bandwidth", "write_bandwidth")} == {"0 GB/s"}
    assert said["nvme_capacity"] == "0 TB"


def test_fewer_drives_are_slower_in_proportion() -> None:
    one = machine("h100-8", disks=answers("h100-8")["disks"][:2])
    said = {fact.name: fact for fact in detected(one).facts}

    assert said["nvme_read_bandwidth"].value == "14 GB/s"  # of 56 with eight
    assert said["nvme_read_bandwidth"].source.startswith("derived")


def test_a_desktop_has_one_numa_domain_and_a_node_that_says_none_those_of_its_profile() -> None:
    assert facts("rtx4090-desktop")["numa_domains"] == "1"
    assert "numa_domains" not in facts("dgx-a100-40g")


def test_every_fact_has_its_source_and_the_profile_reads(tmp_path: Path) -> None:
    path = tmp_path / "my-box.yaml"
    detected(machine("rtx3090-x4-slot")).write(str(path))
    profile = catalog.find("hardware", str(path))

    assert (profile.name, profile.extends) == ("my-box", "rtx3090-24g")
    assert profile.source_of("gpus_per_node") == "detected: NVML, driver 595.58.03, on threadripper, 2026-05-04"
    assert {profile.source_of(fact.partition(".")[2]) for fact in profile.own} - {None}
    job = dsgen.job({"hw": str(path), "model": "7b"})
    assert (job.world, job.hardware.cpu_cores, job.hardware.host_link_bandwidth_bytes_per_second) == (4, 16, 4e9)


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "box.yaml"
    path.write_text("mine")
    made = detected(machine("dgx-a100-40g"))

    with pytest.raises(DsgenError, match="there already"):
        made.write(str(path))
    assert path.read_text() == "mine"
    made.write(str(path), force=True)
    assert "extends: a100-40g" in path.read_text()
    with pytest.raises(DsgenError, match=r"ends in \.yaml"):
        made.write(str(tmp_path / "box.json"))


def test_a_card_without_a_profile_says_what_to_do() -> None:
    with pytest.raises(DsgenError) as caught:
        detected(machine("quadro-rtx4000"))

    assert caught.value.what == "no built-in profile is of Quadro RTX 4000 (8 GiB), and notebook has 1"
    assert "--gpu-memory 8GiB --gpus 1" in str(caught.value.todo)


def test_a_card_of_half_the_memory_by_the_same_name_is_told_how_to_say_it() -> None:
    """As the RTX 4060 Ti is sold with 8 GB and with 16."""
    said = answers("rtx4090-desktop")
    said["nvml"]["gpus"][0] |= {"name": "NVIDIA GeForce RTX 4060 Ti", "total_bytes": 8585740288, "reserved_bytes": None}

    with pytest.raises(DsgenError, match="has 8 GiB, and its profile 16 GiB") as caught:
        detected(detecting.node(said))

    assert "--hw rtx4060ti-16g --gpu-memory 8GiB --gpus 1" in str(caught.value.todo)


def test_a_workstation_s_card_is_its_profile() -> None:
    found = detected(machine("a4000"))

    assert found.extends == "rtxa4000-16g"
    assert {fact.name: fact.value for fact in found.facts} == {
        "usable_memory": "15.67 GiB", "gpus_per_node": "1", "host_memory": "64.0 GiB", "cpu_cores": "64",
        "nvme_capacity": "0 TB", "nvme_read_bandwidth": "0 GB/s", "nvme_write_bandwidth": "0 GB/s",
    }  # fmt: skip


def test_a_card_with_another_memory_is_refused() -> None:
    said = answers("rtx4090-desktop")
    said["nvml"]["gpus"][0]["total_bytes"] *= 2

    with pytest.raises(DsgenError, match="has 48 GiB, and its profile 24 GiB"):
        detected(detecting.node(said))


def test_no_gpu_is_said_and_what_to_say_instead() -> None:
    with pytest.raises(DsgenError) as caught:
        detected(
            machine(
                "rtx4090-desktop", nvml={"kernel_module": "", "error": "no library", "driver": "", "gpus": []}, pci=[]
            )
        )

    assert "tower has RAM of 63 GiB and 16 cores, and no GPU" in caught.value.what
    assert "--hw a100-40g" in str(caught.value.todo)
    assert "--hw cpu" in str(caught.value.todo)


def test_auto_is_the_machine_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detecting, "ask", lambda: answers("rtx3090-x4-slot"))

    job = dsgen.job({"hw": "auto", "model": "7b", "method": "qlora"})

    assert (job.names["hardware"], job.world) == ("auto", 4)
    assert job.provenance.where("hardware.cpu_cores").source == "dsgen hardware detect"  # type: ignore[union-attr]
    assert dsgen.detect().extends == "rtx3090-24g"
    assert dsgen.detect(file("mi300x-8")).extends == "mi300x-192g"
    assert dsgen.profile("auto") == dsgen.profile("auto")


def test_what_is_measured_is_what_the_models_take() -> None:
    node = machine("dgx-a100-40g")
    measured = measured_facts(
        node,
        MemoryRate(bytes_per_second=200e9, threads=64),
        DriveRates(
            folder="/scratch", write_bytes_per_second=4e9, read_bytes_per_second=10e9, total_bytes=1, direct=True
        ),
        LinkRates(to_device_bytes_per_second=26e9, to_host_bytes_per_second=25e9, missing=""),
    )
    made = detected(node, measured)
    values = {fact.name: float(fact.value.split()[0]) for fact in made.facts}

    assert values["host_memory_bandwidth"] * 0.74 == pytest.approx(200, rel=1e-3)
    assert values["nvme_read_bandwidth"] * 0.85 == pytest.approx(10, rel=1e-3)
    assert values["host_link_bandwidth"] * 0.82 == pytest.approx(25, rel=1e-3)
    assert all(fact.source.startswith("measured on dgx01") for fact in made.facts)
    assert rates  # the laws that take these shares


def test_a_link_that_was_not_measured_says_nothing() -> None:
    none = LinkRates(to_device_bytes_per_second=None, to_host_bytes_per_second=None, missing="torch sees no GPU")

    assert measured_facts(machine("dgx-a100-40g"), None, None, none) == ()
