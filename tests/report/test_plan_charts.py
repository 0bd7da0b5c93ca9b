"""A plan drawn: every strategy is a point where its numbers are, and the page says what the planner does."""

from __future__ import annotations

import re
from xml.dom import minidom

import attrs
import pytest

import dsgen
from dsgen.asking.plan_questions.curves import curves
from dsgen.jobs import scenarios
from dsgen.planning.candidates import search
from dsgen.planning.planner import plan
from dsgen.report import plan_charts
from dsgen.report.bars import rounded
from dsgen.report.charts import CHOSEN, MAY_FIT, TOO_LARGE, Mark, curve, scatter

SCENARIO = {"hw": "a100-40g", "model": "7b"}


def circles(drawing: str) -> list[tuple[float, float, str]]:
    document = minidom.parseString(drawing.encode())
    found = document.getElementsByTagName("circle")
    return [(float(one.getAttribute("cx")), float(one.getAttribute("cy")), one.getAttribute("class")) for one in found]


def test_every_strategy_is_one_point_and_the_chosen_one_is_marked(make_job):
    planned = plan(make_job("a100-40g", "7b"))
    everything = search(planned.job)
    lacking = [item for item in everything.rejections if item.place == "gpu"]

    drawn = circles(plan_charts.svg(planned))

    assert len(drawn) == len(everything.fitting) + len(everything.uncertain) + len(lacking)
    assert [kind for _, _, kind in drawn].count(CHOSEN) == 1
    assert [kind for _, _, kind in drawn].count(MAY_FIT) == len(everything.uncertain) > 0
    assert [kind for _, _, kind in drawn].count(TOO_LARGE) == len(lacking) > 0


def test_points_stand_in_the_order_of_their_numbers():
    marks = [Mark(x, y, 0.8 * y, 1.25 * y, "a", "a") for x, y in ((10, 300), (20, 100), (30, 200))]

    drawn = circles(scatter("title", "GiB", "tokens/s", marks, 40.0, "card"))

    by_x = sorted(drawn)
    assert [place[0] for place in by_x] == sorted({place[0] for place in drawn})
    heights = [place[1] for place in by_x]
    assert heights[0] < heights[2] < heights[1]  # down is more px
    assert (heights[1] - heights[2]) == pytest.approx(heights[2] - heights[0], abs=0.2)


def test_what_needs_far_more_stands_at_the_edge():
    near, far = Mark(10, 1, 1, 1, "a", "a"), Mark(10_000, 1, 1, 1, "b", "b", TOO_LARGE)

    drawn = circles(scatter("title", "GiB", "tokens/s", [near, far], 40.0, "card"))

    assert max(x for x, _, _ in drawn) <= 960
    assert min(x for x, _, _ in drawn) > 76


def test_the_page_says_the_numbers_of_the_planner_and_loads_nothing(make_job):
    job = make_job("a100-40g", "7b")
    planned = plan(job)
    told = list(curves(scenarios.of(SCENARIO, "test"), job))

    page = plan_charts.html(planned, told)

    assert [answer.field for answer in told] == ["gpus", "seq_len"]  # one node has no network
    assert not re.search(r"(src|href)=|https?://(?!www\.w3\.org/2000/svg)|<script|@import|url\(", page)
    assert "prefers-color-scheme:dark" in page
    for answer in told:
        for case in answer.cases:
            if case.plan is not None:
                assert f"<td>{rounded(case.plan.chosen.speed)}</td>" in page
                assert str(case.plan.chosen.strategy) in page
    asked = next(case for case in told[0].cases if case.value == job.world)
    assert asked.plan is not None
    assert asked.plan.chosen.strategy == planned.chosen.strategy


def test_networks_are_drawn_between_nodes(make_job):
    said = scenarios.of({**SCENARIO, "hw": "a100-80g", "gpus": 32, "network": "ib-hdr-200g"}, "test")
    job = dsgen.job({**SCENARIO, "hw": "a100-80g", "gpus": 32, "network": "ib-hdr-200g"})

    networks = next(answer for answer in curves(said, job) if answer.field == "network")

    speeds = [case.plan.chosen.speed for case in networks.cases if case.plan is not None]
    assert len(speeds) == len(networks.cases) >= 7
    assert speeds[0] < speeds[-1]


def test_names_are_escaped(make_job):
    job = make_job("a100-40g", "7b")
    named = attrs.evolve(job, names={**job.names, "model": '<b>&"'})

    page = plan_charts.html(plan(named), [])
    drawing = curve("a <title> & more", "x", "y", [Mark(0, 1, 1, 1, "a", "<&>")], ["<b>"])

    assert "<b>" not in page
    assert "&lt;b&gt;&amp;" in page
    assert minidom.parseString(drawing.encode()).getElementsByTagName("title")[0].firstChild.data == "a <title> & more"


def test_a_line_is_dashed_where_another_strategy_wins():
    marks = [Mark(0, 1, 1, 1, name, name) for name in ("a", "a", "b")] + [Mark(0, 0, 0, 0, "", "none")]

    drawing = curve("title", "x", "y", marks, ["1", "2", "3", "4"])

    assert drawing.count('class="step"') == 1
    assert len(circles(drawing)) == 3
