"""The hardware and network profiles against their shapes, their sources and facts that anyone can look up."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest
from ruamel.yaml import YAML

from dsgen.shapes.profiles import Hardware, Network, type_name, yaml_name
from dsgen.shapes.units import UNITS, parse

PROFILES = Path(__file__).resolve().parents[2] / "profiles"
SHAPES: dict[str, type] = {"hardware": Hardware, "network": Network}
HEADER = {"name", "kind", "title", "aliases", "extends", "source"}
FILES = [(kind, path) for kind in SHAPES for path in sorted((PROFILES / kind).glob("*.yaml"))]
NAMES = [(kind, path.stem) for kind, path in FILES]
HARDWARE = [name for kind, name in NAMES if kind == "hardware"]

# Turing and Volta; every later card has it
NO_BF16 = {"rtx2080ti-11g", "t4-16g", "v100-16g", "v100-16g-pcie", "v100-32g", "v100-32g-pcie"}
ECC_SHARE = 0.85  # what the driver may keep: ECC in GDDR6 costs a sixteenth, and a T4 shows 0.91 of what is sold
SHARED = {"mi300a-128g": 0.75}  # the CPU has a part of the same memory
ROUNDING = 1.001  # usable memory is printed with two digits

GUESSED = (
    "a100-40g", "a100-80g", "a100-40g-pcie", "a100-80g-pcie", "rtx3090-24g", "h100-80g", "h100", "h100-sxm", "l4-24g",
    "24g", "80g", "h200", "t4", "l4", "4090", "3060", "rtx3060", "2080ti", "4060ti", "rtx-4070-ti-super", "a4000",
    "rtxa5000", "mi300x", "gb200", "b300", "gaudi2", "cpu",
    "single-node", "ethernet-25g", "eth-25g", "roce-100g", "ib-hdr-200g", "hdr-200g", "ib-hdr", "ib-ndr-400g",
    "ndr-400g", "8x-ndr-400g", "ib-8x-ndr", "efa-3200g",
)  # fmt: skip

# (profile, fact, what it is): from the vendors' own documents; FLOP/s dense, bandwidths one direction.
WELL_KNOWN = (
    ("h100-80g", "bf16", "989.4 TFLOP/s"),
    ("h100-80g", "memory_bandwidth", "3350 GB/s"),
    ("h100-80g", "intra_node_bandwidth", "450 GB/s"),
    ("h100-80g-pcie", "bf16", "756 TFLOP/s"),
    ("h800-80g", "intra_node_bandwidth", "200 GB/s"),
    ("h20-96g", "bf16", "148 TFLOP/s"),
    ("h200-141g", "memory_bandwidth", "4800 GB/s"),
    ("a100-40g", "memory_bandwidth", "1555 GB/s"),
    ("a100-40g", "bf16", "312 TFLOP/s"),
    ("a100-80g", "memory_bandwidth", "2039 GB/s"),
    ("a100-80g-pcie", "memory_bandwidth", "1935 GB/s"),
    ("a800-80g", "intra_node_bandwidth", "200 GB/s"),
    ("v100-32g", "fp16", "125 TFLOP/s"),
    ("rtx4090-24g", "bf16", "165.2 TFLOP/s"),
    ("rtx3090-24g", "memory_bandwidth", "936 GB/s"),
    ("rtx2080ti-11g", "fp16", "56.9 TFLOP/s"),
    ("rtx2080ti-11g", "memory_bandwidth", "616 GB/s"),
    ("rtx3060-12g", "gpu_memory", "12 GiB"),
    ("rtx3060-12g", "memory_bandwidth", "360 GB/s"),
    ("rtx3080-10g", "memory_bandwidth", "760 GB/s"),
    ("rtx4060ti-16g", "memory_bandwidth", "288 GB/s"),
    ("rtx4060ti-16g", "host_link_bandwidth", "16 GB/s"),  # eight lanes
    ("rtx4070tisuper-16g", "gpu_memory", "16 GiB"),
    ("rtx4070tisuper-16g", "memory_bandwidth", "672 GB/s"),
    ("rtx4080-16g", "bf16", "97.5 TFLOP/s"),
    ("rtx5070ti-16g", "memory_bandwidth", "896 GB/s"),
    ("rtx5080-16g", "host_link_bandwidth", "64 GB/s"),
    ("rtxa4000-16g", "bf16", "76.7 TFLOP/s"),
    ("rtxa5000-24g", "bf16", "111.1 TFLOP/s"),
    ("rtxa5000-24g", "memory_bandwidth", "768 GB/s"),
    ("rtx4000ada-20g", "memory_bandwidth", "360 GB/s"),
    ("l4-24g", "memory_bandwidth", "300 GB/s"),
    ("mi300x-192g", "gpu_memory", "192 GiB"),
    ("mi300x-192g", "memory_bandwidth", "5.3 TB/s"),
    ("b200-180g", "memory_bandwidth", "8 TB/s"),
    ("gaudi2-96g", "bf16", "432 TFLOP/s"),
    ("ethernet-25g", "bandwidth", "3.125 GB/s"),
    ("ib-edr-100g", "bandwidth", "12.5 GB/s"),
    ("ib-hdr-200g", "bandwidth", "25 GB/s"),
    ("ib-ndr-400g", "bandwidth", "50 GB/s"),
    ("ib-ndr-3200g", "bandwidth", "400 GB/s"),
    ("efa-3200g", "bandwidth", "400 GB/s"),
)


@functools.cache
def document(kind: str, name: str) -> dict[str, Any]:
    """One profile file as plain YAML."""
    loaded: dict[str, Any] = YAML(typ="safe").load((PROFILES / kind / f"{name}.yaml").read_text("utf-8"))
    return loaded


@functools.cache
def resolved(kind: str, name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The facts and the sources of a profile with those of its parents below; the child wins."""
    own = document(kind, name)
    facts, sources = resolved(kind, own["extends"]) if "extends" in own else ({}, {})
    return {**facts, **own.get(kind, {})}, {**sources, **own["source"]}


def unit_of(field: str) -> str | None:
    """The inner unit of a field (`gpu_memory_bytes` -> bytes); None where it has none."""
    suffix = field.removeprefix(yaml_name(field))
    return suffix.removeprefix("_") or None


def quantity(kind: str, name: str, fact: str) -> float:
    """A fact in its inner unit."""
    units = {yaml_name(field.name): unit_of(field.name) for field in attrs.fields(SHAPES[kind])}
    unit = units[fact]
    assert unit is not None
    return parse(resolved(kind, name)[0][fact], unit)


def test_there_are_enough_of_them() -> None:
    counts = Counter(kind for kind, _ in FILES)
    assert counts["hardware"] >= 36
    assert counts["network"] >= 14


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_header(kind: str, name: str) -> None:
    own = document(kind, name)
    assert own["name"] == name
    assert own["kind"] == kind
    assert own["title"]
    assert set(own) <= HEADER | {kind, "training", "deepspeed"}
    for alias in own.get("aliases", []):
        assert isinstance(alias, str), f"{alias!r} needs quotes"
        assert alias == alias.casefold()


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_every_fact_fits_its_field(kind: str, name: str) -> None:
    facts, _ = resolved(kind, name)
    fields = {yaml_name(field.name): field for field in attrs.fields(SHAPES[kind])}
    assert set(facts) <= set(fields)
    assert {key for key, field in fields.items() if field.default is attrs.NOTHING} <= set(facts)
    for key, written in facts.items():
        field, bounds = fields[key], fields[key].metadata
        unit = unit_of(field.name)
        if unit is not None:
            value = parse(written, unit)
            assert bounds["minimum"] is None or value >= bounds["minimum"], key
            assert bounds["above"] is None or value > bounds["above"], key
        elif bounds["choices"]:
            assert written in bounds["choices"], key
        else:
            kind = type_name(field).removesuffix(" | None")
            assert type(written) is {"int": int, "bool": bool, "float": float}[kind], key


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_every_fact_has_a_source(kind: str, name: str) -> None:
    facts, sources = resolved(kind, name)
    assert set(document(kind, name)["source"]) <= {"default", *facts}
    assert "default" in sources or set(facts) <= set(sources)
    assert all(isinstance(source, str) and len(source) >= len("by definition") for source in sources.values())


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, name in NAMES if "extends" in document(kind, name)])
def test_a_child_says_only_what_differs_and_where_it_is_from(kind: str, name: str) -> None:
    own = document(kind, name)
    inherited, _ = resolved(kind, own["extends"])
    links = {"intra_node_link"}  # which link it is follows from the source of its bandwidth
    for fact, value in own.get(kind, {}).items():
        assert inherited[fact] != value, f"{fact} is what {own['extends']} says already"
        assert fact in {*own["source"], *links}, f"{fact} would be credited to the parent's source"


@pytest.mark.parametrize("name", HARDWARE)
def test_usable_memory_is_below_what_is_sold(name: str) -> None:
    sold, usable = quantity("hardware", name, "gpu_memory"), quantity("hardware", name, "usable_memory")
    assert (SHARED.get(name) or ECC_SHARE) * sold <= usable < ROUNDING * sold


@pytest.mark.parametrize("name", [name for name in HARDWARE if name.startswith("generic-")])
def test_a_generic_card_shows_no_more_memory_than_any_named_one(name: str) -> None:
    sold = quantity("hardware", name, "gpu_memory")
    peers = [peer for peer in HARDWARE if not peer.startswith("generic-")]
    same = [peer for peer in peers if quantity("hardware", peer, "gpu_memory") == sold]
    least = min(quantity("hardware", peer, "usable_memory") for peer in same)
    assert quantity("hardware", name, "usable_memory") == least


@pytest.mark.parametrize("name", HARDWARE)
def test_bf16_is_missing_exactly_where_the_chip_has_none(name: str) -> None:
    assert (quantity("hardware", name, "bf16") == 0) == (name in NO_BF16)
    wished, parent = document("hardware", name), name
    while "training" not in wished and "extends" in document("hardware", parent):
        parent = document("hardware", parent)["extends"]
        wished = document("hardware", parent)
    assert wished.get("training", {}).get("precision") == ("fp16" if name in NO_BF16 else None)


@pytest.mark.parametrize("name", HARDWARE)
def test_rates_rise_as_the_dtype_shrinks(name: str) -> None:
    """fp32 <= tf32 <= 16 bit <= fp8 on every chip that has them: a peak with sparsity in one row would break it."""
    fp32, tf32, fp16, bf16, fp8 = (quantity("hardware", name, f) for f in ("fp32", "tf32", "fp16", "bf16", "fp8"))
    half = max(fp16, bf16)
    present = [rate for rate in (fp32, tf32, half, fp8) if rate]
    assert present == sorted(present)
    assert fp8 in (0, half) or 1.9 < fp8 / half < 2.1
    assert tf32 in (0, fp32) or tf32 <= 0.51 * half


@pytest.mark.parametrize("name", HARDWARE)
def test_the_link_and_the_node_agree(name: str) -> None:
    facts, _ = resolved("hardware", name)
    alone = facts["intra_node_link"] == "none"
    assert alone == (facts["gpus_per_node"] == 1)
    assert alone == (quantity("hardware", name, "intra_node_bandwidth") == 0)
    has_nvme = quantity("hardware", name, "nvme_capacity") > 0
    assert has_nvme == (quantity("hardware", name, "nvme_read_bandwidth") > 0)
    assert has_nvme == (quantity("hardware", name, "nvme_write_bandwidth") > 0)


@pytest.mark.parametrize("name", [name for kind, name in NAMES if kind == "network"])
def test_rdma_where_the_fabric_has_it(name: str) -> None:
    facts, _ = resolved("network", name)
    assert facts["rdma"] == (facts["fabric"] in {"roce", "infiniband", "efa"})
    assert (facts["fabric"] == "none") == (quantity("network", name, "bandwidth") == 0)


def test_no_name_means_two_profiles() -> None:
    every = [path.stem for path in PROFILES.glob("*/*.yaml")]
    for path in PROFILES.glob("*/*.yaml"):
        every += document(path.parent.name, path.stem).get("aliases", [])
    assert [name for name, count in Counter(every).items() if count > 1] == []


@pytest.mark.parametrize("guess", GUESSED)
def test_the_names_people_guess_are_there(guess: str) -> None:
    owners = [name for kind, name in NAMES if guess in {name, *document(kind, name).get("aliases", [])}]
    assert len(owners) == 1


def test_an_ambiguous_name_is_nobodys() -> None:
    known = {alias for kind, name in NAMES for alias in (name, *document(kind, name).get("aliases", []))}
    assert known.isdisjoint({"a100", "v100", "a800", "gh200"})


@pytest.mark.parametrize(("name", "fact", "known"), WELL_KNOWN)
def test_well_known_facts(name: str, fact: str, known: str) -> None:
    kind = "network" if ("network", name) in NAMES else "hardware"
    unit = next(unit for unit in UNITS if known.split()[1] in UNITS[unit])
    assert quantity(kind, name, fact) == pytest.approx(parse(known, unit), rel=1e-3)
