"""A person's own profiles: by path, through DSGEN_PROFILE_PATH, and what they extend."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from profile_files import error_of, value, write

import dsgen
from dsgen import catalog


def test_an_own_profile_extends_a_built_in_one(tmp_path: Path) -> None:
    path = write(
        tmp_path / "my-box.yaml",
        "kind: hardware\nextends: a100-40g\nsource: we measured\nhardware:\n  host_memory: 512 GiB  # what is in it\n",
    )

    found = catalog.find("hardware", str(path))

    assert (found.name, found.extends, found.source_of("host_memory")) == ("my-box", "a100-40g", "we measured")
    job = dsgen.job(dsgen.profile(str(path)) | dsgen.profile("7b"))
    assert job.hardware.host_memory_bytes == 512 * 2**30
    assert job.hardware.gpu_memory_bytes == 40 * 2**30
    assert found.source_of("gpu_memory") == catalog.find("hardware", "a100-40g").source_of("gpu_memory")
    *losers, winner = job.provenance.history("hardware.host_memory")
    assert (str(winner.origin), winner.reason) == (f"{path}:5", "what is in it")
    assert [loser.origin.source for loser in losers] == ["profiles/hardware/a100-40g.yaml"]


def test_extends_is_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "base" / "box.yaml", "kind: hardware\nextends: a100-40g\nhardware:\n  cpu_cores: 7\n")
    path = write(
        tmp_path / "mine" / "box.yaml", "kind: hardware\nextends: ../base/box.yaml\nhardware: {gpus_per_node: 2}\n"
    )
    monkeypatch.chdir("/")

    found = catalog.find("hardware", str(path))

    assert (value(found, "hardware.cpu_cores"), value(found, "hardware.gpus_per_node")) == (7, 2)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a person's own profiles, beside one that does not exist."""
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setenv(catalog.lookup.PATH_VARIABLE, os.pathsep.join([str(tmp_path / "missing"), str(folder), ""]))
    return folder


def test_an_own_profile_is_found_by_file_name_name_and_alias(own: Path) -> None:
    write(own / "Box.yaml", "kind: hardware\nname: big-box\naliases: [BB]\nextends: a100-40g\n")

    assert {catalog.find("hardware", name).file for name in ("box", "Box", "big-box", "bb")} == {str(own / "Box.yaml")}
    assert "big-box" in catalog.names("hardware")
    assert "big-box" not in catalog.names("model")
    assert "did you mean Box" in error_of("hardware", "boxx")


def test_an_own_profile_shadows_a_built_in_one_and_may_extend_it(own: Path) -> None:
    write(own / "hardware" / "a100-40g.yml", "extends: a100-40g\nhardware:\n  cpu_cores: 7\n")

    found = catalog.find("hardware", "A100-40G")

    assert value(found, "hardware.cpu_cores") == 7
    assert value(found, "hardware.gpu_memory") == "40 GiB"


def test_a_file_of_another_kind_is_passed_by(own: Path) -> None:
    write(own / "7b.yaml", "kind: hardware\nextends: a100-40g\n")

    assert catalog.find("model", "7b").file == "profiles/model/7b.yaml"


def test_a_broken_own_profile_matters_only_to_who_asks_for_it(own: Path) -> None:
    write(own / "broken.yaml", "kind: hardware\nhardware: [\n")

    assert catalog.find("hardware", "a100-40g").name == "a100-40g"
    assert error_of("hardware", "nowhere").startswith("no hardware profile named 'nowhere'")
    assert error_of("hardware", "broken").startswith(f"{own / 'broken.yaml'}:3:1: not YAML")


def test_own_names_with_versions_are_sorted_too(own: Path) -> None:
    for name in ("v-1.2.3", "v-1.2", "v-.", "v-1..b"):
        write(own / "network" / f"{name}.yaml", "network: {fabric: ethernet}\n")

    assert {"v-1.2.3", "v-1.2", "v-.", "v-1..b"} < set(catalog.names("network"))


@pytest.mark.parametrize("reference", ["./b.yaml", "../{folder}/b.yaml"])
def test_extends_in_a_circle_is_said(tmp_path: Path, reference: str) -> None:
    path = write(tmp_path / "a.yaml", f"kind: hardware\nextends: {reference.format(folder=tmp_path.name)}\n")
    write(tmp_path / "b.yaml", "kind: hardware\nextends: ./a.yaml\n")

    message = error_of("hardware", str(path))

    assert message.endswith("b.yaml: extends runs in a circle: a -> b -> a\n  Remove one of the extends.")


def test_a_profile_that_extends_itself_is_a_circle(tmp_path: Path, own: Path) -> None:
    path = write(tmp_path / "a.yaml", "kind: hardware\nextends: a.yaml\n")
    write(own / "me.yaml", "kind: hardware\nextends: me\n")

    assert "circle: a -> a" in error_of("hardware", str(path))
    assert error_of("hardware", "me") == f"{own / 'me.yaml'}: extends runs in a circle: me -> me\n  Remove the extends."


def test_a_chain_of_extends_has_an_end(tmp_path: Path) -> None:
    for number in range(30):
        write(tmp_path / f"{number}.yaml", f"kind: hardware\nextends: ./{number + 1}.yaml\n")

    assert "more than 20 profiles extend each other: 0 -> 1 -> 2" in error_of("hardware", str(tmp_path / "0.yaml"))
