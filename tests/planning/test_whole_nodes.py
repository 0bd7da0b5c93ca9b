"""Some GPUs of a node that a profile describes whole: a plan that takes more than their share of RAM says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dsgen

ONE = {"hw": "rtx4090-24g", "gpus": 1, "model": "qwen2.5-7b"}  # all weights of it, with the optimizer in RAM


def said(wanted: dict[str, Any]) -> list[str]:
    plan, footprint = dsgen.plan(wanted), dsgen.memory(wanted)
    warned = [one for one in plan.warnings if "RAM are counted on" in one]
    assert warned == [one for one in footprint.question.notes if "RAM are counted on" in one]
    return warned


def test_a_card_that_borrows_the_ram_of_seven_others_is_told() -> None:
    (warning,) = said(ONE)

    assert warning.endswith("the 486 are of a node with 8 GPUs, 60.8 for one; say yours with --host-memory")


@pytest.mark.parametrize(
    "more",
    [
        {"gpus": 8},  # the node is whole
        {"host_memory": "256 GiB"},  # a person says what there is
        {"method": "qlora"},  # it takes less than its share
    ],
)
def test_nobody_else_is(more: dict[str, Any]) -> None:
    assert said({**ONE, **more}) == []


def test_a_profile_of_a_machine_that_is_there_says_its_own(tmp_path: Path) -> None:
    path = tmp_path / "box.yaml"
    path.write_text("kind: hardware\nextends: rtx4090-24g\nhardware:\n  host_memory: 256 GiB\n")

    assert said({**ONE, "hw": str(path)}) == []
