"""`dsgen memory --format html`: the page says what the text says, of each phase from load to resume."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

import dsgen
from dsgen.report import memory, memory_page, memory_words

SAID = {"hw": "a100-80g", "gpus": 8, "model": "7b", "zero_stage": 2, "micro_batch": 1, "loading": "fp32"}


def words(page: str) -> str:
    """What a reader sees, with one blank between words."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page[page.index("<body>") :])).split())


@pytest.fixture(scope="module", params=[{}, {"zero_stage": 3, "zero_init": False, "model": "70b"}], ids=["fits", "not"])
def footprint(request: Any) -> Any:
    return dsgen.memory({**SAID, **request.param}, observed={"reserved": 61 * 2**30})


def test_the_page_says_each_line_that_the_text_says(footprint: Any) -> None:
    shown, text = words(memory_page.html(footprint)), " ".join(memory.text(footprint, 500).split())
    told = [*memory_words.warnings(footprint), *(line for _, line in memory_words.observed(footprint.observations))]
    told += [answer for _, answer in memory_words.answers(footprint)]
    assert len(told) > 6
    for line in told:
        assert line in shown
        assert line in text


def test_the_page_has_every_phase_from_load_to_resume(footprint: Any) -> None:
    page = memory_page.html(footprint)
    rows = re.findall(r"<tr><td>([^<]*)</td>", page)
    for phase in ("load", "init", "step 1: forward", "step 1: backward", "evaluate 8 sequences", "save", "resume"):
        assert phase in rows


def test_json_has_the_same_warnings(footprint: Any) -> None:
    data = memory.data(footprint)
    assert data["warnings"] == list(memory_words.warnings(footprint))
    assert set(data["loading"]["notes"]) <= set(data["warnings"])


def test_names_are_escaped(tmp_path: Any) -> None:
    file = tmp_path / "a<b>.yaml"
    file.write_text("extends: 7b\n", encoding="utf-8")
    page = memory_page.html(dsgen.memory({**SAID, "model": str(file)}))
    assert "<b>.yaml" not in page
