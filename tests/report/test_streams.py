"""A step over time as a drawing: well-formed, within its edges, every queue a row, passes that are alike cut out."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from timed import PASSES, simulation, time_of

from dsgen.report.simulation_page import html
from dsgen.report.streams import streams

SVG = "{http://www.w3.org/2000/svg}"
WIDTH, LEFT, RIGHT = 1080, 100, 1060


def drawn(folder: Path, passes: int = PASSES) -> ElementTree.Element:
    told = simulation(folder, passes)
    return ElementTree.fromstring(streams(told, time_of(told)))


def texts(drawing: ElementTree.Element) -> list[str]:
    return ["".join(one.itertext()) for one in drawing.iter(f"{SVG}text")]


def hovers(drawing: ElementTree.Element) -> list[str]:
    return ["".join(one.itertext()) for one in drawing.iter(f"{SVG}title")]


def test_every_queue_is_a_row(tmp_path: Path) -> None:
    told = simulation(tmp_path)

    drawing = ElementTree.fromstring(streams(told, time_of(told)))

    names = {one.queue for one in time_of(told).intervals}
    assert {"host's phases", "critical path", *names} <= set(texts(drawing))
    assert names == {"compute", "stream 1", "inter-node", "host"}


def test_a_pointer_shows_names_and_modules(tmp_path: Path) -> None:
    shown = "\n".join(hovers(drawn(tmp_path)))

    assert "all-gather" in shown
    assert "model.layers.1.mlp" in shown
    assert "mul <&>" in shown
    assert "GiB" in shown


@pytest.mark.parametrize("passes", [2, PASSES, 1000])
def test_everything_lies_within_the_plot(tmp_path: Path, passes: int) -> None:
    drawing = drawn(tmp_path, passes)

    for one in drawing.iter(f"{SVG}rect"):
        if one.get("class") == "hover":
            x, width = float(one.get("x", "nan")), float(one.get("width", "nan"))
            assert x >= LEFT - 0.1
            assert x + width <= RIGHT + 0.6
    for one in drawing.iter(f"{SVG}path"):
        if one.get("fill"):
            edges = [float(number) for number in re.findall(r"[MH](-?[\d.]+)", one.get("d", ""))]
            assert min(edges) >= LEFT - 0.1 and max(edges) <= RIGHT + 0.6


def test_passes_that_are_added_up_are_cut_out(tmp_path: Path) -> None:
    """A thousand passes do not squeeze the ones that are told."""
    few, many = texts(drawn(tmp_path, 2)), texts(drawn(tmp_path, 1000))

    assert not [one for one in few if one.startswith("passes alike")]
    assert len([one for one in many if one.startswith("passes alike")]) == 1
    assert "backward 1" in many


def test_bytes_lie_on_the_same_axis(tmp_path: Path) -> None:
    assert any("at most 21.0 GiB" in one for one in texts(drawn(tmp_path)))


def test_a_page_without_time_has_no_streams(tmp_path: Path) -> None:
    import attrs

    told = simulation(tmp_path)

    with_time, without = html(told), html(attrs.evolve(told, step_time=None))

    assert "critical path" in with_time and "Micro-steps" in with_time
    assert "critical path" not in without and "Micro-steps" not in without
    assert "http" not in with_time.replace("http://www.w3.org", "")  # it loads nothing
