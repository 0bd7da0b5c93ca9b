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

import dsgen  # noqa: E402
from dsgen.shapes.findings import Severity  # noqa: E402
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


UPSTREAM = [(release, scene, one) for one in every_release.UPSTREAM for release in one.releases for scene in one.scenes]


def said(scene: str, release: str) -> list[str]:
    """The rules that speak of a scene's config on the machine of the record, a CPU with two ranks."""
    name = every_release.UNSWITCHED if scene == every_release.UNLOADED else scene
    config, _ = releases.rendered_scene(name, release)
    found = dsgen.lint(config, target="deepspeed", deepspeed=release, accelerator="cpu", world_size=2).findings
    return [item.rule for item in found if item.severity is not Severity.INFO]


@pytest.mark.parametrize(("release", "scene", "one"), UPSTREAM, ids=lambda value: getattr(value, "rule", value))
def test_lint_foresees_what_a_release_does_not_do(release: str, scene: str, one: every_release.Upstream) -> None:
    """Under that release, and under no other that is recorded; what is torch's alone has no rule."""
    if not one.rule:
        assert "torch" in one.why
        assert {name for name, _, other in UPSTREAM if other is one and name} == {"0.14.5", "0.15.4"}
        return
    silent = [other for other in (*releases.RELEASES, "0.19.8") if other not in one.releases]

    assert one.rule in said(scene, release)
    assert [other for other in silent if one.rule in said(scene, other)] == []


@pytest.mark.parametrize("release", RECORD)
def test_no_rule_of_a_release_speaks_of_what_was_proved(release: str) -> None:
    """The other side of the record: a scene that started has none of these rules."""
    rules = {one.rule for one in every_release.UPSTREAM if one.rule}
    proved = [name for name, words in RECORD[release]["scenes"].items() if words == every_release.PROVED]

    assert {name: told for name in proved if (told := sorted(rules & set(said(name, release))))} == {}


def test_a_render_for_a_release_that_does_not_resume_says_so() -> None:
    """On GPUs the stages start: only what was seen on a CPU is refused there."""
    job = {"hw": "a100-80g", "gpus": 8, "model": "350m", "zero_stage": 0}
    cpu = {"hw": "cpu", "gpus": 2, "model": "125m", "zero_stage": 1}

    assert [item.rule for item in dsgen.render(dsgen.plan(job, "0.17.6")).findings] == ["stage-0-in-bf16-not-resumed"]
    assert [item.rule for item in dsgen.render(dsgen.plan(job, "0.18.0")).findings] == []
    assert [item.rule for item in dsgen.render(dsgen.plan({**job, "zero_stage": 1}, "0.18.9")).findings] == []
    with pytest.raises(dsgen.DsgenError, match="gloo gathers the weights into views"):
        dsgen.plan(cpu, "0.18.9")
    assert [item.rule for item in dsgen.render(dsgen.plan(cpu, "0.18.6")).findings] == []
