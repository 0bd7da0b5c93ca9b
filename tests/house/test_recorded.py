"""benchmarks/data/: whole, as its checksums say, and each file described."""

from __future__ import annotations

import hashlib

import pytest
from recorded import DATA, allocations, kernel_rows, key_facts, probes, published, published_gathered, published_later

SUMS = dict(reversed(line.split("  ")) for line in (DATA / "SHA256SUMS").read_text(encoding="utf-8").splitlines())


def test_every_file_has_a_checksum() -> None:
    assert sorted(SUMS) == sorted(path.name for path in DATA.glob("*.json"))
    assert {path.name for path in DATA.iterdir()} == {*SUMS, "SHA256SUMS", "README.md"}


@pytest.mark.parametrize("name", sorted(SUMS))
def test_a_file_is_what_its_checksum_says(name: str) -> None:
    assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == SUMS[name]


def test_the_readme_describes_each_file_and_every_field_of_it() -> None:
    text = (DATA / "README.md").read_text(encoding="utf-8")
    runs = [*published(), *published_later(), *published_gathered()]
    parts = [run[part] for run in runs for part in ("config", "measured")]
    fields = {
        field for record in (*probes(), *key_facts(), *runs, *parts, *kernel_rows(), *allocations()) for field in record
    }

    assert [name for name in SUMS if f"## {name}\n" not in text] == []
    assert [field for field in fields if f"`{field}`" not in text] == []


def test_nothing_is_recorded_twice_or_lost() -> None:
    names = [probe["id"] for probe in probes()]
    paths = [key["path"] for key in key_facts()]
    runs = [run["id"] for run in (*published(), *published_later(), *published_gathered())]

    counts = (417, 382, 923 + 624 + 95 + 56 + 35 + 51 + 65 + 69 + 57 + 66 + 72)
    assert (len(names), len(paths), len(runs)) == counts
    assert (len(set(names)), len(set(paths)), len(set(runs))) == counts
    assert all(key["source"].startswith("deepspeed/") for key in key_facts())
