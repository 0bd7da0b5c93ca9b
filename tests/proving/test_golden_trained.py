"""What is golden trains as plain PyTorch does: ten steps on real ranks, and resumed with them."""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest
from children import answer

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # golden/ is a folder of the checkout, not of the installed package

from golden import cells, starts, trained, trained_scenes  # noqa: E402
from golden.structures import structure  # noqa: E402

pytestmark = pytest.mark.proof

WHOLE = "DSGEN_CELLS_ALONE" in os.environ  # `nox -s cells` trains all, `nox` these
SIDES = 2 if WHOLE else 1  # processes: ranks that wait for each other leave a second core idle
SOME = (
    "stage 0, bf16",
    "stage 1, AutoTP 2 x 2, fp32",
    "stage 1, optimizer on cpu, round_robin_gradients, fp16",
    "stage 2, AutoTP 2 x 2, optimizer on cpu, round_robin_gradients, fp16",
    "stage 2, optimizer on cpu, fp32",
    "stage 3, fp16",
    "stage 3, no overlap, fp32",
    "stage 3, optimizer on cpu, parameters on cpu, bf16",
    "stage 2, fp32, 4 ranks",
    "optimizer-muon-stage-1, fp32",
    "desk-rtx4070tisuper-16g, bf16",
)
# Of losses of about 5.5. In fp32 only the order of sums differs. 16-bit gradients are rounded before ranks and
# micro-steps add them up, and an expert may be chosen by a rounded number.
TOLERANCE = {"fp32": 1e-5, "bf16": 1e-2, "fp16": 1e-3}
# bitsandbytes rounds moments to 8 bits in blocks of 256 elements of the tensor that it is given: under ZeRO a rank's
# part of all weights, in the plain loop one weight. With its 32-bit states the difference is that of fp32.
EIGHT_BITS = 5e-4
# The first loss of a resumed engine is that of the same state. Later ones differ by the order in which stage 3 adds
# rounded gradients up.
SAME, RESUMED = 1e-6, {"fp32": 2e-6, "bf16": 1e-2, "fp16": 1e-3}
UNREAD_BY = ("stage 1, bf16", "stage 3, fp32", *(["stage 2, bf16", "stage 3, bf16"] if WHOLE else []))
# At least, in ten steps on one batch; adapters on two matrices of each block can do less.
FALLEN, FEW_FALLEN = 0.3, 0.2


@functools.cache
def all_of_them() -> dict[str, trained.Case]:
    configs = cells.configs()
    matrix = trained.cases(starts.shares(configs), configs)
    return {case.name: case for case in (*matrix, *trained_scenes.cases(matrix))}


@functools.cache
def matrix() -> dict[str, trained.Case]:
    return {name: case for name, case in all_of_them().items() if name not in of_scenes()}


@functools.cache
def of_scenes() -> tuple[str, ...]:
    return tuple(name for name in all_of_them() if name.split(",")[0] in trained_scenes.configs())


@functools.cache
def chosen() -> tuple[str, ...]:
    return tuple(all_of_them()) if WHOLE else SOME


@functools.cache
def answers() -> dict[str, dict[str, Any]]:
    """All cases in a process or two, which import torch once; each on forked ranks."""
    sides = [chosen()[side::SIDES] for side in range(SIDES)]
    with ThreadPoolExecutor(SIDES) as pool:
        told = [
            dict(zip(names, found, strict=True)) for names, found in zip(sides, pool.map(_trained, sides), strict=True)
        ]
    return {name: found for one in told for name, found in one.items()}


def _trained(names: tuple[str, ...]) -> list[dict[str, Any]]:
    return _told([attrs.asdict(all_of_them()[name]) for name in names])


def _told(asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = answer("trained_alike", asked=asked, seconds=3600)
    return made


def tolerance(case: trained.Case) -> float:
    """How far losses may be from those of plain PyTorch."""
    eight = EIGHT_BITS if case.optimizer.endswith("8bit") else 0.0
    return max(TOLERANCE[case.precision], eight)


@pytest.mark.parametrize("name", chosen())
def test_a_structure_has_the_losses_of_plain_pytorch_and_resumes_with_them(name: str) -> None:
    told, case = answers()[name], all_of_them()[name]
    assert not told["error"], told["error"]
    assert told["engine"] == pytest.approx(told["plain"], abs=tolerance(case))
    if case.saved and case.resumes:
        assert told["resumed"][0] == pytest.approx(told["engine"][5], abs=SAME)
        assert told["resumed"] == pytest.approx(told["engine"][5:], abs=RESUMED[case.precision])
    elif case.saved:  # the day it is right, the list of what DeepSpeed cannot do is out of date
        assert told["resumed"][0] != pytest.approx(told["engine"][5], abs=FALLEN)
    fallen = FALLEN if case.adapters is None or "all-linear" in case.adapters["lora_targets"] else FEW_FALLEN
    assert told["plain"][0] - told["plain"][-1] > fallen  # what is compared is training, not noise


def test_keys_that_are_said_not_to_reach_training_do_not(tmp_path: Path) -> None:
    """All of them at once, none at its default: the losses are the same to the digit."""
    cases = [attrs.evolve(all_of_them()[name], saved=False) for name in UNREAD_BY]
    told = iter(
        _told([attrs.asdict(one) for case in cases for one in (case, trained.with_unread(case, f"{tmp_path}"))])
    )

    for case in cases:
        plain, unread = next(told), next(told)
        assert not (plain["error"] or unread["error"])
        assert plain["engine"] == unread["engine"], case.name
    assert list(tmp_path.glob("unread/*.csv"))  # the monitor was there


def test_every_structure_of_the_matrix_is_trained_or_stood_for() -> None:
    structures = {structure(config) for config in cells.configs().values()}
    assert sum(case.stands_for for case in matrix().values()) == len(structures)


def test_every_structure_of_the_matrix_is_trained_in_fp32_too() -> None:
    names = set(matrix())
    assert not {name for name in names if not {name, _in_fp32(name)} <= names}


def _in_fp32(name: str) -> str:
    """The same case in fp32; the precision is followed by a family where there is one."""
    return re.sub(r"\b(bf16|fp16)\b", "fp32", name)


def test_all_but_autotp_is_trained_on_two_ranks_and_on_four() -> None:
    for name, case in all_of_them().items():
        two, four = name.removesuffix(", 4 ranks"), f"{name.removesuffix(', 4 ranks')}, 4 ranks"
        if "tensor_parallel" in case.config:
            assert case.ranks == 4
        else:
            assert (all_of_them()[two].ranks, all_of_them()[four].ranks) == (2, 4)


def test_every_scenario_is_trained_in_its_precision_and_in_fp32_or_stood_for() -> None:
    trained_forms = {trained_scenes.form(case) for case in all_of_them().values()}
    for name, config in trained_scenes.configs().items():
        if name not in trained_scenes.NEEDS_GPU:
            wanted = {trained_scenes.form(case) for case in trained_scenes.alone(name, config)}
            assert wanted <= trained_forms, name


def test_lora_and_qlora_are_trained_as_adapters() -> None:
    kinds = {case.adapters["method"] for case in all_of_them().values() if case.adapters}
    assert kinds == {"lora", "qlora"}
    for name in trained_scenes.adapted():
        assert all(case.adapters for case in trained_scenes.alone(name, trained_scenes.configs()[name]))


def test_the_siblings_are_of_every_family_of_the_matrix() -> None:
    families = {json.loads(starts.model_of(cell.model))["model_type"] for cell in cells.cells()}
    assert families == {case.model["model_type"] for case in matrix().values()}
