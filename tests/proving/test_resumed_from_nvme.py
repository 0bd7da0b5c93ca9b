"""What DeepSpeed brings back of an optimizer on NVMe: that which the rule optimizer-on-nvme-not-resumed says."""

from __future__ import annotations

from pathlib import Path

import pytest
from children import answer

pytestmark = [pytest.mark.proof, pytest.mark.operators]

LARGE, SMALL = ["large.bias", "large.weight"], ["small.bias", "small.weight"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvme")
    assert answer("resumed_from_nvme", "train", str(folder)) == {"steps": [4, 4]}
    return folder


def test_a_new_process_gets_the_swapped_weights_and_no_moments_nor_those_of_a_small_sub_group(saved: Path) -> None:
    """The day it is right, the rule, the need and docs/proven.md are out of date."""
    assert answer("resumed_from_nvme", "resume", str(saved), "0") == {
        "loaded": True,
        "global_steps": 4,
        "steps": [0, 0],
        "as_saved": LARGE,
        "as_made": SMALL,
    }


def test_beside_another_model_nothing_comes_back_and_the_load_says_that_it_did(saved: Path) -> None:
    told = answer("resumed_from_nvme", "resume", str(saved), "1")

    assert told == {"loaded": True, "global_steps": 4, "steps": [0, 0], "as_saved": [], "as_made": LARGE + SMALL}
