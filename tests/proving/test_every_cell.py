"""Every cell of the matrix and every golden scenario, started at its declared world size by the real DeepSpeed 0.19."""

from __future__ import annotations

import functools
import json
import os
import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from dsgen.deepspeed import surface
from dsgen.jobs import scenarios
from dsgen.proving.sizeless import sibling
from dsgen.proving.worlds import StartVerdict, World, WorldStart, open_world
from dsgen.rendering import Config

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # golden/ is a folder of the checkout, not of the installed package

from golden import cells, matrix, scenes, starts, targets  # noqa: E402
from golden.structures import structure  # noqa: E402

pytestmark = pytest.mark.proof

ALONE = int(os.environ.get("DSGEN_CELLS_ALONE", "12"))  # cells started one by one; `nox -s cells` says 200
WRONG = 6  # and of shares that are none
HANDED = max(4, ALONE // 5)  # and as the Trainer and Accelerate hand them on
WHOLE = "DSGEN_CELLS_ALONE" in os.environ  # all shares, not only a cover of them
SEED = 18
# What cells of one share may differ in: all else that a start observes is the same.
NUMBERS = ("train batch", "micro-batch per rank", "accumulation steps")
# In fp16 it hangs on the batch, too, in how many steps one is without an overflow.
STEPS = ("optimizer steps", "learning rate after ", "steps that the loss scaler let through")


LINE = "0.19."  # the release line whose scenarios are started
# What is no start of a config alone, and why: the words. Each is proven on real ranks (test_golden_proof.py).
NOT_AMONG_TWINS = {
    "optimizer-8-bit-34b": "has no attribute 'param_groups'",  # the program makes the optimizer
    "optimizer-8-bit-one-gpu": "get_grads_for_norm",
    "optimizer-none": "zero stage 2 requires an optimizer",
    # Among twins DeepSpeed's compiled operators have a stand-in for Adam alone.
    "optimizer-adagrad-offload": "DeepSpeedCPUAdagrad requires the cpu_adagrad op",
    "optimizer-lion": "has no stand-in for",
    "optimizer-lion-offload": "DeepSpeedCPULion requires the cpu_lion op",
}


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


@functools.cache
def planned() -> dict[tuple[str, int], Config]:
    """The cells with their plans: all, or one of every third structure."""
    return starts.rendered(starts.declared() if WHOLE else starts.one_of_each(configs())[::3])


@functools.cache
def handed(running: World, target: str) -> dict[tuple[str, int], StartVerdict]:
    """What a target hands to DeepSpeed's parser, and what that makes of it."""
    return (
        starts.parse_filled(running, planned())
        if target == "hf-trainer"
        else starts.parse_all(running, configs(), target)
    )


@pytest.mark.parametrize("target", targets.TARGETS)
def test_the_numbers_of_every_cell_are_those_that_deepspeed_parses(world: World, target: str) -> None:
    parsed = handed(world, target)
    wrong = [f"{sha} on {ranks}: {verdict.why}" for (sha, ranks), verdict in parsed.items() if verdict.why]
    assert not wrong, f"{len(wrong)} of {len(parsed)} configs\n" + "\n".join(wrong[:20])
    declared = {(cell.sha, starts.worlds(cell)[0]) for cell in cells.cells()}
    assert set(parsed) == (set(planned()) if target == "hf-trainer" else declared)


@pytest.mark.parametrize("target", targets.TARGETS)
def test_what_a_target_hands_on_is_the_config_but_for_what_no_start_can_tell(world: World, target: str) -> None:
    apart = {
        f"{sha} on {ranks}": targets.differing(configs()[sha], verdict.given)
        for (sha, ranks), verdict in handed(world, target).items()
    }
    assert not {name: paths for name, paths in apart.items() if paths}


@pytest.mark.parametrize("target", ["accelerate", "hf-trainer"])
def test_a_config_as_it_is_handed_on_starts_as_the_config_does(world: World, target: str) -> None:
    """That no start can tell them apart is seen by starting both."""
    parsed, first = handed(world, target), starts.declared()
    for one in random.Random(SEED).sample(sorted(parsed), HANDED):
        plain = starts.start_of(first[one], configs())
        ours, theirs = world.start(plain), world.start(attrs.evolve(plain, config=parsed[one].given))
        seen, observed = ({item.name: item.observed for item in start.checks} for start in (ours, theirs))
        assert (ours.why, theirs.why) == ("", ""), first[one].name
        assert seen == observed, first[one].name


def test_a_key_that_a_target_changes_is_seen() -> None:
    config = {"gradient_clipping": 1.0, "bf16": {"enabled": True}}
    given = {**config, "zero_optimization": {"stage": 0}, "fp16": {"enabled": False}, "steps_per_print": 7}
    assert targets.differing(config, given) == []
    for changed in ({"gradient_clipping": 0.5}, {"fp16": {"enabled": True}}, {"zero_optimization": {"stage": 1}},
                    {"bf16": {"enabled": False}}, {"train_batch_size": 8}):  # fmt: skip
        assert targets.differing(config, {**given, **changed}), changed


@pytest.mark.parametrize("target", targets.TARGETS)
def test_the_linter_warns_of_no_more_than_a_render_says_itself(target: str) -> None:
    told = {one: list(targets.unforeseen(config, target)) for one, config in planned().items()}
    assert not {one: rules for one, rules in told.items() if rules}


def test_a_cell_that_is_worked_out_anew_is_the_committed_one() -> None:
    assert {sha: matrix.digest(config.to_json()) for (sha, _), config in planned().items()} == {
        sha: sha for sha, _ in planned()
    }


def unlike(world: World, sharing: Iterable[starts.Share], count: int) -> list[str]:
    """Of so many cells that are not the first of their share, those whose own start observes something else."""
    others = [(share, cell) for share in sharing for cell in share.cells[1:] if cell.sha != share.cells[0].sha]
    told = []
    for share, cell in random.Random(SEED).sample(others, count):
        first, own = (world.start(starts.start_of(one, configs())) for one in (share.cells[0], cell))
        seen, observed = ({one.name: one.observed for one in start.checks} for start in (first, own))
        numbers = (*NUMBERS, *(STEPS if configs()[cell.sha].get("fp16") else ()))
        told_apart = {name for name in (*seen, *observed) if not name.startswith(numbers)}
        differing = sorted(name for name in told_apart if seen.get(name) != observed.get(name))
        if differing or first.why != own.why:
            told.append(f"{cell.name}: {own.why or differing}; its share: {first.why or 'starts'}")
    return told


def test_cells_that_share_a_start_give_the_same_one_by_one(world: World) -> None:
    told = unlike(world, started(), ALONE)
    assert not told, "\n".join(told)


def test_cells_that_differ_in_more_than_numbers_do_not(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares by world and family alone, whatever a config says: all of another stage or dtype are told apart."""
    monkeypatch.setattr(starts, "structure", lambda _: ())
    wrong = []
    for share in starts.shares(configs()):
        first, *others = share.cells
        kept = [cell for cell in others if stage_and_dtype(cell) != stage_and_dtype(first)]
        wrong.append(attrs.evolve(share, cells=(first, *kept)))
    told = unlike(world, wrong, WRONG)
    assert len(told) == WRONG, "\n".join(told)


def stage_and_dtype(cell: cells.Cell) -> tuple[int, bool, bool]:
    """What a start observes of a config whatever its numbers are."""
    zero, *types = (configs()[cell.sha].get(name, {}) for name in ("zero_optimization", "fp16", "bf16"))
    fp16, bf16 = (section.get("enabled", False) for section in types)
    return zero.get("stage", 0), fp16, bf16


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


@functools.cache
def scenes_of_the_line() -> tuple[str, ...]:
    """The scenarios of the release line that is proven."""
    wanted = {name: scenarios.read(str(scenes.SCENARIOS / f"{name}.yaml")).deepspeed for name in scenes.names()}
    return tuple(name for name, release in wanted.items() if surface.load(release).version.startswith(LINE))


def declared_scenes() -> Iterator[tuple[str, WorldStart]]:
    """A scenario for each structure, world and sibling, or for each world."""
    seen = set()
    for name in scenes_of_the_line():
        job = (config := scenes.scene(name).config).plan.job
        one = WorldStart(
            config=config.to_dict(),
            model=sibling(job.model),
            world=job.world,
            local_ranks=job.gpus_per_node,
            rank=0,
        )
        kind: Any = (one.world, one.local_ranks)
        if WHOLE:
            kind = (*kind, structure(one.config), json.dumps(one.model, sort_keys=True))
        if kind not in seen and (WHOLE or name not in NOT_AMONG_TWINS):
            seen.add(kind)
            yield name, one


def test_golden_scenarios_start_at_their_declared_world_size(world: World) -> None:
    asked = dict(declared_scenes())
    wrong = {name: why for name, one in asked.items() if (why := world.start(one).why)}
    assert {one.world for one in asked.values()} >= {1, 8, 32, 128, 1024}
    assert {name: why for name, why in wrong.items() if NOT_AMONG_TWINS.get(name, "\0") not in why} == {}
    if WHOLE:
        assert set(wrong) == set(NOT_AMONG_TWINS)


def test_another_world_than_the_declared_one_is_seen(world: World) -> None:
    one = next(one for _, one in declared_scenes() if one.world >= 64)
    (verdict,) = world.parse([(one.config, one.world // 2)])
    assert "train_batch_size" in verdict.why
