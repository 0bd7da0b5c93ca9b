"""The record of older releases: what is listed as upstream's is there in its words, and nothing else failed."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # golden/ is a folder of the checkout, not of the installed package
sys.path.append(str(ROOT / "benchmarks"))

import every_release  # noqa: E402

from golden import releases  # noqa: E402

RECORD: dict[str, Any] = json.loads(every_release.RECORD.read_text("utf-8"))


def test_every_release_is_recorded_with_one_torch() -> None:
    assert tuple(RECORD) == releases.RELEASES
    assert len({one["versions"]["torch"] for one in RECORD.values()}) == 1


@pytest.mark.parametrize("release", RECORD)
def test_what_did_not_start_is_listed_with_its_words(release: str) -> None:
    assert list(every_release.unlisted(release, RECORD[release])) == []


@pytest.mark.parametrize("release", RECORD)
def test_cells_that_were_started_have_every_sibling_and_world(release: str) -> None:
    places = [tuple(place) for place in RECORD[release]["places"]]
    configs = {place: {} for place in places}
    assert len(places) == len(set(places)) >= RECORD[release]["structures"]
    assert set(releases.stands(configs)) <= set(places)


@pytest.mark.parametrize("release", RECORD)
def test_cells_that_were_started_still_have_a_config(release: str) -> None:
    places = [tuple(place) for place in RECORD[release]["places"]]

    assert list(releases.rendered(release, places)) == places


def test_a_failure_that_is_not_listed_is_told() -> None:
    told = copy.deepcopy(RECORD["0.18.9"])
    told["scenes"]["stage-3-7b"] = "step: RuntimeError: out of luck"
    told["not_started"]["t4-16g, 8b, 1 node"] = "stage: not 3 but 2"

    assert [line.split(": ")[1] for line in every_release.unlisted("0.18.9", told)] == [
        "t4-16g, 8b, 1 node", "stage-3-7b",
    ]  # fmt: skip


def test_a_listed_failure_that_is_none_any_more_is_told() -> None:
    told = copy.deepcopy(RECORD["0.17.6"])
    told["scenes"]["stage-0-350m"] = every_release.PROVED

    (line,) = every_release.unlisted("0.17.6", told)
    assert line.endswith("but 'proved'")
