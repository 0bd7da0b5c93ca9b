"""Quantities as people write them: every spelling, and nothing that could be read two ways."""

from __future__ import annotations

import pytest

from dsgen.shapes.units import BANDWIDTH, BYTES, FLOPS, SECONDS, UNITS, gib, parse


@pytest.mark.parametrize(
    ("text", "unit", "amount"),
    [
        ("40 GiB", BYTES, 40 * 2**30),
        ("40GB", BYTES, 40e9),
        ("1,024 MiB", BYTES, 2**30),
        ("1,024,000.5 KiB", BYTES, 1024000.5 * 2**10),
        ("1_000 B", BYTES, 1000),
        ("1.5 TiB", BYTES, 1.5 * 2**40),
        ("200 Gb/s", BANDWIDTH, 25e9),
        ("25 GB/s", BANDWIDTH, 25e9),
        ("2e3 GB/s", BANDWIDTH, 2e12),
        ("312 TFLOP/s", FLOPS, 312e12),
        ("5 us", SECONDS, 5e-6),
        ("2 min", SECONDS, 120),
    ],
)
def test_a_quantity_is_read(text: str, unit: str, amount: float) -> None:
    assert parse(text, unit) == pytest.approx(amount, rel=1e-12)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("6,5 GiB", "6.5 GiB"), ("6,5GiB", "6.5 GiB"), ("1,0240 MiB", "1.0240 MiB"), ("0,25TB", "0.25 TB")],
)
def test_a_comma_before_other_than_three_digits_is_no_number(written: str, meant: str) -> None:
    """It was left out: 65 GiB."""
    with pytest.raises(ValueError, match=f"a comma stands between thousands; write {meant}"):
        parse(written, BYTES)


@pytest.mark.parametrize("unit", UNITS)
def test_every_spelling_is_read_back(unit: str) -> None:
    for spelling, factor in UNITS[unit].items():
        assert parse(f"3 {spelling}", unit) == 3 * factor


@pytest.mark.parametrize(
    "written",
    [
        "40",
        40,
        40.0,
        None,
        True,
        ["40 GiB"],
        "GiB",
        "-1 GiB",
        "1..5 GiB",
        "9_ GiB",
        "٣ GiB",
        "nan GiB",
        "inf GiB",
        "40 GiB extra",
        "40 GiB\n40 GiB",
        "",
    ],
)
def test_what_is_no_quantity_says_what_one_is(written: object) -> None:
    with pytest.raises(ValueError, match="it must be a number with a unit, such as 40 GiB"):
        parse(written, BYTES)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("40 gib", BYTES),
        ("40 Gb", BYTES),
        ("40 GiB/s", BYTES),
        ("200 Gbps", BANDWIDTH),
        ("312 TFLOPS", FLOPS),
        ("5 µs", SECONDS),
        ("40 GBs", BYTES),
    ],
)
def test_another_unit_is_never_guessed(text: str, unit: str) -> None:
    with pytest.raises(ValueError, match=r"is not one of its units|it must be a number with a unit"):
        parse(text, unit)


@pytest.mark.parametrize("text", ["1e400 GiB", "1" + "0" * 400 + " GiB", "1e308 PB"])
def test_a_quantity_without_end_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="too large"):
        parse(text, BYTES)


@pytest.mark.parametrize(
    ("count", "shown"), [(2**30, "1.0"), (1.25 * 2**30, "1.2"), (600 * 2**20, "0.59"), (2**40, "1,024")]
)
def test_gib_has_the_digits_a_person_needs(count: float, shown: str) -> None:
    assert gib(count) == shown
