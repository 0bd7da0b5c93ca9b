"""DeepSpeed trains and saves wrongly what it keeps on the GPU of an offloaded optimizer: why no plan keeps a part."""

from __future__ import annotations

import pytest
from children import answer

pytestmark = pytest.mark.proof

LR = 0.01
WARMED = [0.0, 0.0, 0.0001]  # rates of the steps: DeepSpeed's WarmupLR over 100 steps begins with two at its least
KEPT, OFFLOADED = [0, 1], [2, 3]


def test_what_stays_on_the_gpu_ignores_the_scheduler_and_is_not_saved() -> None:
    """When this fails, DeepSpeed has mended it, and `ratio` may be searched."""
    told = answer("part_offloaded")
    whole, half = told["1.0"], told["0.5"]

    assert whole["rates"] == [[rate] * 4 for rate in WARMED]
    assert half["rates"] == [[LR, LR, rate, rate] for rate in WARMED]
    for run in (whole, half):  # Adam's first steps move by the rate
        for rates, moved in zip(run["rates"], run["moved"], strict=True):
            assert moved == pytest.approx(rates, rel=0.01)
    assert whole["saved"] == whole["loaded"] == [*KEPT, *OFFLOADED]
    assert half["saved"] == half["loaded"] == OFFLOADED
