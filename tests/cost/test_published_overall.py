"""What the speed model is worth without a source, all that is fitted at once, and what pairs of stages are made of."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from dsgen.cost.steps import LOW


@pytest.fixture(scope="module")
def cases(module: Any) -> Any:
    """Every record with what became of it."""
    return module("published_speed_cases").speed_cases()


def test_rows_under_the_constants_as_they_are_are_those_of_the_page(module: Any, cases: Any) -> None:
    fits, facts = module("published_speed_fits"), module("published_speed_facts")
    compared = [case for case in cases if case.kind == "compared"]

    for case in compared:
        same = fits.under(case, facts.OLDER_DISPATCH, 1.0)
        assert (same.speed, same.within) == (pytest.approx(case.speed), case.within)
        assert fits.lies_in(same, LOW) is case.within
        assert fits.under(case, facts.OLDER_DISPATCH, 0.5).speed >= case.speed


def test_a_share_is_fitted_by_the_rows_that_it_moves(module: Any, cases: Any) -> None:
    """Half of it makes a step shorter by half its collectives; of those that hide little of a step none has a part."""
    compared = [case for case in cases if case.kind == "compared" and not case.held_back]
    gathered = [case for case in compared if case.setup["stage"] == 3]
    for least in (0.025, 0.05):
        rows = module("published_speed_fits").fits(compared, least)[1].rows
        weighty = [one for one in gathered if one.ours.parts["communication"] / 2 > least * one.ours.seconds]

        assert [case.name for case in rows] == [case.name for case in weighty]
        assert 50 < len(rows) < len(gathered) / 1.5


def test_all_that_is_fitted_is_fitted_without_the_source_that_it_judges(module: Any, cases: Any) -> None:
    """With a tenth more measured by one source its own constants stay, and those of the others move."""
    overall, named = module("published_speed_overall"), ("qwen", "fms", "dsaz", "coast")
    compared = [case for case in cases if case.kind == "compared" and case.source in named]
    moved = [attrs.evolve(one, measured=1.1 * one.measured) if one.source == "qwen" else one for one in compared]
    found, other = overall.without(compared), overall.without(moved)

    assert set(found) == set(named)
    assert found["qwen"] == other["qwen"]
    assert any(found[source] != other[source] for source in named[1:])
    for case in compared:
        said, inside = overall.judged(case, found[case.source])
        assert inside is module("published_speed_fits").lies_in(said, found[case.source].low)


def test_the_page_has_one_number_of_sources_never_seen(module: Any, cases: Any) -> None:
    compared = [case for case in cases if case.kind == "compared"]
    told = module("published_speed_overall").lines(compared)
    (row,) = [line for line in told if line.startswith("| all | ")]
    _, _, count, _, absolute, inside, now, share, _ = (cell.strip() for cell in row.split("|"))

    assert int(count) == len(compared)
    assert inside.endswith(f" of {count}")
    assert float(now.removesuffix(" %")) < float(absolute.removesuffix(" %")) < 10
    assert int(inside.split()[0]) < int(share.split()[0])


def test_the_page_says_that_pairs_of_stages_are_of_rows_apart(module: Any, cases: Any) -> None:
    tables = module("published_speed_tables")
    rows = [case for case in cases if case.kind != "left out"]
    told = " ".join(tables.order_tables(rows))

    assert "All 3 pairs that differ in the stage alone have rows that are shown apart: a sum of timings" in told
    alone = module("published_speed_figures").pairs(rows, "stage")
    assert all(case.kind == "apart" for case in rows if case.name in {name for one in alone for name in one[1:3]})
