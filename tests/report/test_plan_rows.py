"""The rows of a plan's table: one that does not surely fit says so itself, and not only the warning below."""

from __future__ import annotations

import dsgen
from dsgen.report import plan as report


def test_a_row_that_may_not_fit_says_so() -> None:
    wanted = {"hw": "rtx3090-24g", "gpus": 4, "model": "qwen2.5-32b", "method": "qlora", "seq_len": 2048}
    plan = dsgen.plan(wanted)

    assert not plan.chosen.sure
    rows = " ".join(report.text(plan).split())
    assert "may not fit; chosen: " in rows
    assert rows.count("may not fit; ") == 1 + len(plan.runners_up)


def test_one_that_fits_is_not_doubted() -> None:
    assert "may not fit; " not in report.text(dsgen.plan({"hw": "a100-80g", "model": "7b"}))
