"""The instant model beside the engines of DeepSpeed 0.14 to 0.18, as docs/memory-releases.md has it."""

from __future__ import annotations

import importlib
import statistics
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from dsgen.memory import estimate
from dsgen.memory.older_releases import leaves_embeddings, makes_buckets_early, moves_first, returns_wide

REPOSITORY = Path(__file__).resolve().parents[2]
RELEASES = ("0.14.5", "0.15.4", "0.16.9", "0.17.6", "0.18.9")
LORA_CHECKPOINTED = "mistral-7b v8"  # at stage 3, in the kind that is not reentrant: refused before 0.19.3
ON_THE_CPU = "llama-3.2-3b v16"  # ZeRO-2 with the optimizer there: the page says what is not known


@pytest.fixture(scope="module")
def module() -> Any:
    sys.path.insert(0, str(REPOSITORY / "benchmarks"))
    try:
        return importlib.import_module("memory_releases")
    finally:
        sys.path.remove(str(REPOSITORY / "benchmarks"))


@pytest.fixture(scope="module")
def rows(module: Any) -> list[Any]:
    return module.rows()  # type: ignore[no-any-return]


def test_every_release_has_every_scenario(module: Any, rows: list[Any]) -> None:
    names = [case.name for case in module.cases()]
    assert [(row.release, row.case.name) for row in rows] == [(release, name) for release in RELEASES for name in names]


def test_adapters_that_are_checkpointed_are_what_no_release_of_these_runs(rows: list[Any]) -> None:
    failed = {(row.release, row.case.name) for row in rows if "error" in row.simulated}
    assert failed == {(release, LORA_CHECKPOINTED) for release in RELEASES}
    assert all(
        row.simulated["error"].startswith("CheckpointError") for row in rows if row.case.name == LORA_CHECKPOINTED
    )


def test_what_is_allocated_is_the_engine_s(rows: list[Any]) -> None:
    errors = {(row.release, row.case.name): row.errors[0] for row in rows if row.errors}
    far = {place: round(error, 2) for place, error in errors.items() if abs(error) > 0.003}
    assert far == {}
    assert statistics.median(map(abs, errors.values())) < 1e-3


@pytest.mark.parametrize("index", [1, 2], ids=["default", "growing"])
def test_what_is_reserved_is_near_the_engine_s(rows: list[Any], index: int) -> None:
    errors = [row.errors[index] for row in rows if row.errors and row.case.name != ON_THE_CPU]
    assert statistics.median(map(abs, errors)) < 0.01
    assert sum(abs(error) <= 0.035 for error in errors) >= 0.9 * len(errors)
    assert all(abs(error) <= 0.15 for error in errors)


def test_a_release_tells(rows: list[Any]) -> None:
    """What the newest release takes is another number in most scenarios: a wrong one is not right by chance."""
    told = {row.case.name: {} for row in rows}  # type: ignore[var-annotated]
    for row in rows:
        if row.errors:
            told[row.case.name][row.release] = row.simulated["allocated"], row.simulated["reserved"]
    assert sum(len(set(by_release.values())) > 1 for by_release in told.values()) >= 8


@pytest.mark.parametrize(
    ("release", "buckets", "embeddings"),
    [("0.16", True, True), ("0.17", False, True), ("0.18", False, True), ("0.19", False, False)],
)
def test_which_releases_do_what(release: str, buckets: bool, embeddings: bool) -> None:
    assert makes_buckets_early(release) == buckets
    assert leaves_embeddings(release) == embeddings


@pytest.mark.parametrize(
    ("release", "wide", "first"),
    [
        ("0.14.0", False, True),
        ("0.14.1", True, True),
        ("0.14", True, True),
        ("0.16", True, True),
        ("0.17", False, True),
        ("0.18.2", False, True),
        ("0.18.3", False, False),
        ("0.19", False, False),
    ],
)
def test_which_releases_send_weights_how(release: str, wide: bool, first: bool) -> None:
    assert returns_wide(release) == wide
    assert moves_first(release) == first


# Bytes that the engines of these releases allocate on one GPU in init and in a step, where the optimizer is on the CPU.
SIMULATED = {
    "0.14.0": (7_213_504_768, 7_213_523_196),
    "0.14.1": (7_213_504_768, 20_064_522_488),
    "0.18.2": (7_213_504_768, 7_213_523_196),
    "0.18.3": (12_850_999_552, 7_213_523_192),
}


@pytest.mark.parametrize("release", SIMULATED)
def test_copies_on_the_gpu_beside_an_optimizer_on_the_cpu(module: Any, release: str) -> None:
    """Those that a release makes of the weights: 16-bit ones in init, or fp32 ones behind a step."""
    case = next(case for case in module.cases() if case.name == ON_THE_CPU)
    job, strategy = attrs.evolve(case, gpus=1).strategy()
    told = {one.phase: one.gpu_bytes for one in estimate(attrs.evolve(job, version=release), strategy).phases}
    assert (told["init"], told["step"]) == pytest.approx(SIMULATED[release], rel=1e-5)


def test_the_page_is_of_this_record(module: Any) -> None:
    assert module.PAGE.read_text("utf-8") == module.page()
