"""What no tensor holds on a GPU: published readings, families of GPUs, parts that add up."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

import dsgen
from dsgen import catalog
from dsgen.kernels.architectures import architecture, multiprocessors
from dsgen.memory.overheads import (
    CUBLAS_WORKSPACE_BYTES,
    LOADED_KERNELS_BYTES,
    RECEIVER_BYTES,
    SENDER_BYTES,
    overhead,
)
from dsgen.shapes.profiles import Hardware

MIB = 2**20
REPOSITORY = Path(__file__).resolve().parents[2]
NAMES = catalog.names("hardware")

# Profile -> its family and its streaming multiprocessors, as the makers' white papers have them.
FAMILIES = {
    "v100-16g": ("sm70", 80),
    "t4-16g": ("sm75", 40),
    "rtx2080ti-11g": ("sm75", 68),
    "a100-40g": ("sm80", 108),
    "a100-80g-pcie": ("sm80", 108),
    "a30-24g": ("sm80", 56),
    "a10-24g": ("sm86", 72),
    "a40-48g": ("sm86", 84),
    "rtx3060-12g": ("sm86", 28),
    "rtx3080-10g": ("sm86", 68),
    "rtx3090-24g": ("sm86", 82),
    "rtxa4000-16g": ("sm86", 48),
    "rtxa5000-24g": ("sm86", 64),
    "l4-24g": ("sm89", 58),
    "l40s-48g": ("sm89", 142),
    "rtx4060ti-16g": ("sm89", 34),
    "rtx4070tisuper-16g": ("sm89", 66),
    "rtx4080-16g": ("sm89", 76),
    "rtx4090-24g": ("sm89", 128),
    "rtx4000ada-20g": ("sm89", 48),
    "rtx6000ada-48g": ("sm89", 142),
    "h100-80g": ("sm90", 132),
    "h100-80g-pcie": ("sm90", 114),
    "h200-141g": ("sm90", 132),
    "h20-96g": ("sm90", 78),
    "b200-180g": ("sm100", 148),
    "rtx5070ti-16g": ("sm120", 70),
    "rtx5080-16g": ("sm120", 84),
    "rtx5090-32g": ("sm120", 170),
    "rtxpro6000-96g": ("sm120", 188),
}

# Their memory is no faster than an Ada's, so their rates alone are an Ada's.
AS_AN_ADA = {"rtx5070ti-16g", "rtx5080-16g"}

# Profile -> MiB that nvidia-smi showed of a process with a context alone; the sources stand in the module.
READINGS = {"rtx3090-24g": 256, "rtx6000ada-48g": 426, "rtxpro6000-96g": 555, "b200-180g": 612, "h200-141g": 612}


def hardware(name: str) -> Hardware:
    return dsgen.job(dsgen.profile(name) | dsgen.profile("opt-125m")).hardware


@pytest.mark.parametrize("name", FAMILIES)
def test_a_profile_says_its_family_and_its_multiprocessors(name):
    assert (architecture(hardware(name)).name, multiprocessors(hardware(name))) == FAMILIES[name]


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - AS_AN_ADA))
def test_rates_tell_the_family_and_the_multiprocessors_of_a_card_that_says_neither(name):
    family, count = FAMILIES[name]
    unsaid = attrs.evolve(hardware(name), compute_capability=None, processors=None)

    assert architecture(unsaid).name == family
    assert multiprocessors(unsaid) == pytest.approx(count, rel=0.20)


@pytest.mark.parametrize("name", NAMES)
def test_every_card_of_nvidias_says_both(name):
    card = hardware(name)
    assert (card.compute_capability is None) == (card.vendor != "nvidia")
    assert card.vendor != "nvidia" or card.processors


@pytest.mark.parametrize("name", READINGS)
def test_a_context_is_the_published_reading_and_the_kernels_loaded_later(name):
    context = overhead(hardware(name), world=1).context_bytes - LOADED_KERNELS_BYTES

    assert context == pytest.approx(READINGS[name] * MIB, rel=0.08)


CUDA = ["CUDA context", "NCCL buffers", "cuBLAS workspace"]
# Of the makers whose software has other names for them.
NAMED = {
    "amd": ["HIP context", "RCCL buffers", "hipBLAS workspace"],
    "intel": ["HPU context", "HCCL buffers", "HPU workspace"],
}


@pytest.mark.parametrize("name", NAMES)
def test_the_parts_add_up_for_every_profile(name):
    for world in (1, 2, 8, 64):
        found = overhead(hardware(name), world)

        assert list(found.parts) == NAMED.get(hardware(name).vendor, CUDA)
        assert sum(found.parts.values()) == found.total
        assert found.outside_bytes == found.context_bytes + found.nccl_bytes
        assert found.total < hardware(name).usable_memory_bytes / 5


def test_the_most_outside_torch_is_what_runs_on_an_h200_held_and_no_more_than_that():
    """docs/gpu.md: at least 1309 MiB after two steps, at most 1407, with one rank and NCCL's communicator of it."""
    records = json.loads((REPOSITORY / "benchmarks" / "gpu_memory.json").read_text("utf-8"))["cases"].values()
    held = [record["measured"]["after"]["outside_bytes"] for record in records if "after" in record.get("measured", {})]
    found = overhead(hardware("h200-141g"), world=1)

    assert len(held) >= 38
    assert max(held) <= found.outside_bytes + found.more_bytes <= max(held) + 4 * MIB
    assert found.outside_bytes < min(held)  # none of it is certain of another driver, release or run


@pytest.mark.parametrize(
    ("name", "world", "mib"),
    [("h100-80g", 1, 630), ("h100-80g", 2, 118), ("b200-180g", 1, 624), ("rtx4090-24g", 1, 112), ("a100-80g", 8, 112)],
)
def test_a_communicator_of_one_rank_may_hold_512_mib_on_gpus_of_which_it_was_seen(name, world, mib):
    """The rest is kernels, 276 MiB at most where 164 are expected, and on Hopper 7 MiB that the driver counts."""
    assert overhead(hardware(name), world).more_bytes // MIB == mib


def test_nccl_before_2_22_connects_what_no_collective_has_asked_for():
    """torch 2.6 has NCCL 2.21, which makes rings, trees and NVLink SHARP at once, and 2.0 2.14, which has no SHARP."""

    def mib(name: str, world: int, torch: str | None) -> int:
        return overhead(hardware(name), world, torch=torch).nccl_bytes // MIB

    newest = mib("h100-80g", 8, None)
    assert [mib("h100-80g", 8, torch) - newest for torch in ("2.13.0", "2.7", "2.6.0", "2.1", "2.0")] == [
        0, 0, 16 * 2 * 8, 16 * 2 * 8, 0
    ]  # fmt: skip
    assert mib("a100-80g", 8, "2.6") == mib("a100-80g", 8, None)  # it has no SHARP, and its trees are used
    assert mib("h100-80g", 2, "2.6") == mib("h100-80g", 2, None)


@pytest.mark.parametrize("name", ["mi300x-192g", "gaudi3-128g", "cpu"])
def test_nothing_more_is_known_of_gpus_that_nobody_looked_at(name):
    assert overhead(hardware(name), world=1).more_bytes == 0


def test_what_may_lie_outside_torch_is_in_the_most_and_not_in_what_is_expected():
    made = dsgen.job(dsgen.profile("h200-141g") | dsgen.profile("opt-125m"))
    gpu = dsgen.plan(made).chosen.memory.gpu
    plain = gpu._replace(overhead_more_bytes=0, high_bytes=gpu.high_bytes - gpu.overhead_more_bytes)

    assert gpu.overhead_more_bytes > 100 * MIB
    assert gpu.shown.high == plain.shown.high + gpu.overhead_more_bytes
    assert gpu.shown._replace(high=0) == plain.shown._replace(high=0)
    assert gpu.tensors_high_bytes == plain.tensors_high_bytes
    assert (gpu.needed_bytes, gpu.least_bytes) == (plain.needed_bytes, plain.least_bytes)


def test_a_cpu_has_none_of_it():
    found = overhead(hardware("cpu"), world=2, groups=3)

    assert found.parts == {"CUDA context": 0, "NCCL buffers": 0, "cuBLAS workspace": 0}


@pytest.mark.parametrize(
    ("name", "mib"), [("a100-80g", 8.125), ("t4-16g", 8.125), ("h100-80g", 32), ("b200-180g", 32), ("rtx5090-32g", 32)]
)
def test_forward_and_backward_have_a_workspace_each(name, mib):
    """8,519,680 bytes on Ampere, as torch showed after one matrix product; 32 MiB since Hopper."""
    assert CUBLAS_WORKSPACE_BYTES == 8_519_680
    assert overhead(hardware(name), world=1).workspace_bytes == 2 * mib * MIB


def test_an_instinct_gpu_has_the_workspaces_of_two_libraries():
    older, newer = (overhead(hardware(name), world=1).workspace_bytes for name in ("mi250x-128g", "mi300x-192g"))

    assert older == 2 * (32 + 76) * MIB
    assert newer == 2 * (128 + 76) * MIB


def test_a_connection_is_the_three_fifos_in_pages():
    """LL 8 lines x 512 threads x 8 steps x 16 bytes, LL128 120 x 640 x 8 x 8, Simple 4 MiB; rounded up together."""
    fifos = 8 * 512 * 8 * 16 + 120 * 640 * 8 * 8 + 4 * MIB

    assert RECEIVER_BYTES == -(-fifos // (2 * MIB)) * 2 * MIB == 10_485_760
    assert SENDER_BYTES == 2_097_152


def test_communicators_of_four_a100_are_as_they_were_read():
    """544 MiB for two of them; for all four 688 MiB at the tree's end; inside it there is one neighbour more."""
    four = attrs.evolve(hardware("a100-40g"), gpus_per_node=4)
    channels, direction = 24, 6 * MIB

    assert overhead(four, world=2).nccl_bytes == 544 * MIB
    assert overhead(four, world=4).nccl_bytes == 688 * MIB + channels * direction


def test_a_rank_that_is_alone_has_no_buffers():
    assert overhead(hardware("h100-80g"), world=1, groups=4).nccl_bytes == 0
    assert overhead(hardware("h100-80g"), world=2).nccl_bytes > 0


def test_a_second_node_adds_the_network_and_a_hundredth_nothing():
    one, two, hundred = (overhead(hardware("a100-80g"), world).nccl_bytes for world in (8, 16, 800))

    assert two == one + 160 * MIB
    assert hundred == two


def test_every_communicator_has_buffers_of_its_own():
    for name in ("a100-80g", "l40s-48g"):
        one, three = (overhead(hardware(name), 16, groups).nccl_bytes for groups in (1, 3))

        assert three == 3 * one
    one, three = (overhead(hardware("mi300x-192g"), 16, groups).nccl_bytes for groups in (1, 3))
    assert three == one + 2 * 666 * MIB


def test_fewer_links_mean_fewer_channels():
    a100, a800, pcie = (overhead(hardware(name), 8).nccl_bytes for name in ("a100-80g", "a800-80g", "l40s-48g"))

    assert a100 > a800 > pcie


def test_nvlink_sharp_counts_where_it_is_larger_than_the_tree():
    h100 = attrs.evolve(hardware("h100-80g"), gpus_per_node=8)
    b200 = attrs.evolve(hardware("b200-180g"), gpus_per_node=16)  # an NVLink domain of sixteen

    assert overhead(h100, 8).nccl_bytes == (256 + 24 * 12 + 24 * 12) * MIB
    assert overhead(b200, 16).nccl_bytes == (256 + 32 * 12 + 24 * 2 * 16) * MIB


def test_nvlink_sharp_needs_a_switch():
    """Two GPUs have a link of their own, and cards in PCIe slots none."""
    joined = attrs.evolve(hardware("b200-180g"), gpus_per_node=16)
    slots = attrs.evolve(joined, intra_node_link="pcie")

    assert overhead(joined, 2).nccl_bytes == (256 + 32 * 12) * MIB
    assert overhead(slots, 16).nccl_bytes == (256 + 4 * 12 + 4 * 12) * MIB
