"""`dsgen plan --format svg|html`: what is drawn, and what is refused."""

from __future__ import annotations

from xml.dom import minidom

import pytest

MAIN = ("--hw", "a100-40g", "--model", "7b")


def test_a_plan_is_drawn(run):
    code, svg, _ = run("plan", *MAIN, "--format", "svg")

    assert code == 0
    assert minidom.parseString(svg.encode()).documentElement.tagName == "svg"
    code, html, _ = run("plan", *MAIN, "--format", "html")
    assert code == 0
    assert html.startswith("<!DOCTYPE html>")
    assert html.count("<svg") == 3  # strategies, GPUs, length


def test_the_curve_over_gpus_has_fewer_and_more_nodes_than_were_said(run):
    _, html, _ = run("plan", *MAIN, "--nodes", "2", "--network", "ib-hdr-200g", "--format", "html")
    curve = html[html.index("speed over GPUs") :]
    assert "GPUs in a node" not in html
    assert all(f">{count}<" in curve for count in (4, 8, 16, 32, 64))


def test_a_field_is_drawn(run):
    asked = ("plan", *MAIN, "--what-if", "seq_len=2048,4096,8192")
    code, svg, _ = run(*asked, "--format", "svg")

    assert code == 0
    assert len(minidom.parseString(svg.encode()).getElementsByTagName("circle")) == 3
    assert run(*asked, "--format", "html")[1].count("<svg") == 1


@pytest.mark.parametrize(
    "question", [("--compare", "zero3"), ("--tokens", "1B"), ("--gpus", "auto", "--tokens", "1B", "--deadline", "7d")]
)
@pytest.mark.parametrize("form", ["svg", "html"])
def test_what_is_not_drawn_says_what_is(run, question, form):
    code, out, error = run("plan", *MAIN, *question, "--format", form)

    assert (code, out) == (2, "")
    assert f"--format {form} and --" in error
    assert "a plan and --what-if are drawn" in error


def test_what_fits_nowhere_says_so(run):
    code, out, error = run("plan", "--hw", "rtx3090-24g", "--gpus", "1", "--model", "1t", "--format", "html")

    assert (code, out) == (2, "")
    assert "fits nowhere" in error
