"""Every cell of the matrix, started at its declared world size by the real DeepSpeed 0.19, and its numbers parsed."""

from __future__ import annotations

import functools
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from dsgen.proving.worlds import StartVerdict, World, open_world

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # golden/ is a folder of the checkout, not of the installed package

from golden import cells, starts  # noqa: E402

pytestmark = pytest.mark.proof

ALONE = int(os.environ.get("DSGEN_CELLS_ALONE", "12"))  # cells started one by one; `nox -s cells` says 200
WHOLE = "DSGEN_CELLS_ALONE" in os.environ  # all shares, not only a cover of them
SEED = 18


@functools.cache
def configs() -> dict[str, dict[str, Any]]:
    return cells.configs()


@functools.cache
def shares() -> tuple[starts.Share, ...]:
    return starts.shares(configs())


@functools.cache
def started() -> tuple[starts.Share, ...]:
    return shares() if WHOLE else starts.cover(shares(), configs())


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as running:
        yield running


@pytest.fixture(scope="module")
def verdicts(world: World, request: pytest.FixtureRequest) -> dict[str, StartVerdict]:
    """Every share started, but for what came through in an earlier run of the same sources and versions."""
    record = starts.Record(request.config.cache.mkdir("dsgen-cells") / "started.txt", world.versions)
    told = {}
    for share in starts.progress(started()):
        one = starts.start_of(share.cells[0], configs())
        told[share.key] = StartVerdict(error=None) if one in record else world.start(one)
        if not told[share.key].why:
            record.keep(one)
    return told


def test_every_cell_starts_at_its_declared_world_size(verdicts: dict[str, StartVerdict]) -> None:
    wrong = [f"{share.cells[0].name}: {verdicts[share.key].why}" for share in started() if verdicts[share.key].why]
    assert not wrong, f"{len(wrong)} of {len(started())} starts\n" + "\n".join(wrong[:20])


def test_every_cell_has_a_share() -> None:
    assert sorted(map(str, cells.cells())) == sorted(str(cell) for share in shares() for cell in share.cells)


@pytest.mark.parametrize("target", ["deepspeed", "accelerate"])
def test_the_numbers_of_every_cell_are_those_that_deepspeed_parses(world: World, target: str) -> None:
    parsed = starts.parse_all(world, configs(), target)
    wrong = [f"{sha} on {ranks}: {verdict.why}" for (sha, ranks), verdict in parsed.items() if verdict.why]
    assert not wrong, f"{len(wrong)} of {len(parsed)} configs\n" + "\n".join(wrong[:20])
    assert {(cell.sha, starts.worlds(cell)[0]) for cell in cells.cells()} == set(parsed)


def test_cells_that_share_a_start_give_the_same_one_by_one(world: World, verdicts: dict[str, StartVerdict]) -> None:
    shared = [(share, cell) for share in started() for cell in share.cells[1:]]
    unlike = []
    for share, cell in random.Random(SEED).sample(shared, ALONE):
        alone = world.start(starts.start_of(cell, configs()))
        if alone.why != verdicts[share.key].why:
            unlike.append(f"{cell.name}: {alone.why or 'starts'}; its share: {verdicts[share.key].why or 'starts'}")
    assert not unlike, "\n".join(unlike)


def test_a_wrong_number_is_seen_by_the_parser(world: World) -> None:
    cell = next(one for one in cells.cells() if starts.worlds(one)[0] == 32)
    (verdict,) = world.parse([(configs()[cell.sha], 16)])
    assert "train_batch_size" in verdict.why


def test_a_contradiction_is_seen_by_the_start_in_deepspeeds_words(world: World) -> None:
    share = next(one for one in shares() if starts.worlds(one.cells[0])[0] == 32)
    one = starts.start_of(share.cells[0], configs())
    config = {**one.config, "bf16": {"enabled": True}, "fp16": {"enabled": True}}
    verdict = world.start(attrs.evolve(one, config=config))
    assert "bfloat16 and fp16 modes cannot be simultaneously enabled" in verdict.why
