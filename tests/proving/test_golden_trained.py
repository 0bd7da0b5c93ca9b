"""The structures of the golden matrix train as plain PyTorch does: ten steps on real ranks, and resumed with them."""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from children import answer

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # golden/ is a folder of the checkout, not of the installed package

from golden import cells, starts, trained  # noqa: E402
from golden.structures import structure  # noqa: E402

pytestmark = pytest.mark.proof

WHOLE = "DSGEN_CELLS_ALONE" in os.environ  # `nox -s cells` trains all, `nox` these
SOME = (
    "stage 0, bf16",
    "stage 1, AutoTP 2 x 2, fp32",
    "stage 1, optimizer on cpu, round_robin_gradients, fp16",
    "stage 2, AutoTP 2 x 2, optimizer on cpu, round_robin_gradients, fp16",
    "stage 2, optimizer on cpu, fp32",
    "stage 3, fp16",
    "stage 3, no overlap, fp32",
    "stage 3, optimizer on cpu, parameters on cpu, bf16",
)
# Of losses of about 5.5. In fp32 only the order of sums differs: 4e-7 was seen. 16-bit gradients are rounded before
# ranks and micro-steps add them up, and an expert may be chosen by a rounded number: 8e-3 was seen in bf16, in a
# mixture (8e-4 without one), and 2e-4 in fp16.
TOLERANCE = {"fp32": 1e-5, "bf16": 1e-2, "fp16": 1e-3}
# The first loss of a resumed engine is that of the same state. Later ones differ by the order in which stage 3 adds
# rounded gradients up.
SAME, RESUMED = 1e-6, {"fp32": 2e-6, "bf16": 1e-2, "fp16": 1e-3}
FALLEN = 0.3  # at least, in ten steps on one batch


@functools.cache
def all_of_them() -> dict[str, trained.Case]:
    configs = cells.configs()
    return {case.name: case for case in trained.cases(starts.shares(configs), configs)}


@functools.cache
def chosen() -> tuple[str, ...]:
    return tuple(all_of_them()) if WHOLE else SOME


@functools.cache
def answers() -> dict[str, dict[str, Any]]:
    """All cases in one process, which imports torch once; each on forked ranks."""
    asked = [attrs.asdict(all_of_them()[name]) for name in chosen()]
    return dict(zip(chosen(), answer("trained_alike", asked=asked, seconds=3600), strict=True))


@pytest.mark.parametrize("name", chosen())
def test_a_structure_has_the_losses_of_plain_pytorch_and_resumes_with_them(name: str) -> None:
    told, precision = answers()[name], all_of_them()[name].precision
    assert not told["error"], told["error"]
    assert told["engine"] == pytest.approx(told["plain"], abs=TOLERANCE[precision])
    if all_of_them()[name].resumes:
        assert told["resumed"][0] == pytest.approx(told["engine"][5], abs=SAME)
        assert told["resumed"] == pytest.approx(told["engine"][5:], abs=RESUMED[precision])
    else:  # the day it is right, the list of what DeepSpeed cannot do is out of date
        assert told["resumed"][0] != pytest.approx(told["engine"][5], abs=FALLEN)
    assert told["plain"][0] - told["plain"][-1] > FALLEN  # what is compared is training, not noise


def test_every_structure_of_the_matrix_is_trained_or_stood_for() -> None:
    structures = {structure(config) for config in cells.configs().values()}
    assert sum(case.stands_for for case in all_of_them().values()) == len(structures)


def test_every_structure_is_trained_in_fp32_too() -> None:
    names = set(all_of_them())
    assert not {name for name in names if not {name, _in_fp32(name)} <= names}


def _in_fp32(name: str) -> str:
    """The same case in fp32; the precision is followed by a family where there is one."""
    return re.sub(r"\b(bf16|fp16)\b", "fp32", name)


def test_the_siblings_are_of_every_family_of_the_matrix() -> None:
    families = {json.loads(starts.model_of(cell.model))["model_type"] for cell in cells.cells()}
    assert families == {case.model["model_type"] for case in all_of_them().values()}
