"""The laws of layers: who wins, whatever the order, and that no loser is forgotten."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dsgen
from dsgen.errors import DsgenError
from dsgen.layers import Fold, Layer, Origin, Override, Rank, fold, leaves, same, show

Tree = dict[str, Any]

LAW = settings(deadline=None, max_examples=100)

# A path is one or the other kind, as in any config: `m` holds maps, `v` values. So no map ever meets a scalar.
NAMES = ("a", "b", "c")
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.floats(-1, 1), st.sampled_from(["", "cpu", "1"]),
                   st.lists(st.integers(0, 1), max_size=2))
PATCHES: st.SearchStrategy[Tree] = st.deferred(
    lambda: st.fixed_dictionaries(
        {},
        optional={
            **{f"v{name}": VALUES for name in NAMES},
            **{f"m{name}": st.none() | PATCHES for name in NAMES[:2]},
        },
    )
)


def layer(name: str, rank: Rank, tree: Tree) -> Layer:
    """One layer whose overrides come from one place per path."""
    overrides = (Override(path, value, Origin(name, line), rank, f"because {name}")
                 for line, (path, value) in enumerate(leaves(tree), 1))
    return Layer(name, rank, tuple(overrides))


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2, as it is written there: the independent reference."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


def without_empty_maps(tree: Tree) -> Tree:
    """A tree without maps that hold nothing: a fold keeps leaves, and a map exists by what is in it."""
    kept = {key: without_empty_maps(value) if isinstance(value, dict) else value for key, value in tree.items()}
    return {key: value for key, value in kept.items() if value != {}}


def ranked(trees: list[Tree]) -> list[Layer]:
    """One layer for each rank from the lowest on: no two can conflict."""
    return [layer(rank.name, rank, tree) for rank, tree in zip(Rank, trees, strict=False)]


ONE_PER_RANK = st.lists(PATCHES, max_size=len(Rank)).map(ranked)


@LAW
@given(ONE_PER_RANK)
def test_a_fold_is_rfc_7396_in_the_order_of_ranks(layers: list[Layer]) -> None:
    expected: Tree = {}
    for each in layers:
        patch: Tree = {}
        for override in each.overrides:
            *parents, key = override.path.split(".")
            node = patch
            for parent in parents:
                node = node.setdefault(parent, {})
            node[key] = override.value
        expected = merge_patch(expected, patch)

    tree = fold(layers).tree

    found, wanted = without_empty_maps(tree), without_empty_maps(expected)
    assert json.dumps(found, sort_keys=True) == json.dumps(wanted, sort_keys=True)


@LAW
@given(ONE_PER_RANK, st.randoms(use_true_random=False))
def test_the_order_of_layers_of_different_ranks_does_not_matter(layers: list[Layer], chance: random.Random) -> None:
    shuffled = list(layers)
    chance.shuffle(shuffled)

    first, second = fold(layers), fold(shuffled)

    assert json.dumps(first.tree) == json.dumps(second.tree), "the order of keys included"
    assert first == second


@LAW
@given(ONE_PER_RANK)
def test_every_leaf_has_a_history_that_ends_with_its_value(layers: list[Layer]) -> None:
    folded = fold(layers)

    for path, value in leaves(folded.tree):
        history = folded.provenance.history(path)
        assert same(history[-1].value, value)
        assert [item.rank for item in history] == sorted(item.rank for item in history)
        assert folded.provenance.where(path) == history[-1].origin


@LAW
@given(ONE_PER_RANK)
def test_no_loser_is_forgotten(layers: list[Layer]) -> None:
    history = fold(layers).provenance.overrides

    for each in layers:
        for override in each.overrides:
            assert override in history.get(override.path, ()) or override.value == {}


@LAW
@given(ONE_PER_RANK, PATCHES)
def test_null_deletes_and_leaves_no_trace_in_the_tree(layers: list[Layer], patch: Tree) -> None:
    top = layer("top", Rank.USER, {path.partition(".")[0]: None for path, _ in leaves(patch)})
    rest = [each for each in layers if each.rank != Rank.USER]

    tree = fold([*rest, top]).tree

    assert not set(tree) & {override.path for override in top.overrides}
    assert None not in [value for _, value in leaves(tree)]


@LAW
@given(PATCHES, PATCHES)
def test_files_of_a_site_win_in_their_order(first: Tree, second: Tree) -> None:
    folded = fold([layer("1.yaml", Rank.SITE, first), layer("2.yaml", Rank.SITE, second)])

    expected = merge_patch(merge_patch({}, first), second)
    assert without_empty_maps(folded.tree) == without_empty_maps(expected)


@LAW
@given(PATCHES, PATCHES, st.sampled_from([rank for rank in Rank if rank != Rank.SITE]))
def test_two_layers_of_one_rank_agree_or_are_refused(first: Tree, second: Tree, rank: Rank) -> None:
    layers = [layer("one", rank, first), layer("two", rank, second)]

    forward, backward = fold_or_refuse(layers), fold_or_refuse(layers[::-1])

    assert (forward is None) == (backward is None), "refusal does not depend on the order"
    if forward is not None and backward is not None:
        assert without_empty_maps(forward.tree) == without_empty_maps(backward.tree)


def fold_or_refuse(layers: list[Layer]) -> Fold | None:
    try:
        return fold(layers)
    except DsgenError as error:
        assert "(one:" in str(error)
        assert "(two:" in str(error)
        return None


def error_of(*layers: Layer) -> str:
    with pytest.raises(DsgenError) as caught:
        fold(layers)
    return str(caught.value)


def test_two_profiles_in_conflict_name_both_places_and_the_ways_out() -> None:
    message = error_of(layer("a.yaml", Rank.TRAINING, {"training": {"lr": 1e-5}}),
                       layer("b.yaml", Rank.TRAINING, {"training": {"lr": 2e-5}}))

    assert message == (
        "training.lr = 1e-05 (a.yaml:1) and 2e-05 (b.yaml:1) have the same rank (training); one value must win\n"
        "  Drop one of the two, or decide it above them: -f a file or --set training.lr=VALUE."
    )


def test_two_overrides_of_a_person_in_conflict() -> None:
    message = error_of(layer("--set", Rank.USER, {"x": 1}), layer("python", Rank.USER, {"x": True}))

    assert message == (
        "x = 1 (--set:1) and true (python:1) have the same rank (user); one value must win\n"
        "  Drop one of the two; the command line and Python may say a thing once."
    )


@pytest.mark.parametrize("order", [1, -1])
def test_deleting_a_section_conflicts_with_setting_a_key_of_it(order: int) -> None:
    layers = [layer("a.yaml", Rank.TRAINING, {"fp16": None}),
              layer("b.yaml", Rank.TRAINING, {"fp16": {"enabled": True}})]

    message = error_of(*layers[::order])

    assert "fp16 = null (a.yaml:1)" in message
    assert "fp16.enabled = true (b.yaml:1)" in message


@pytest.mark.parametrize(("lower", "upper"), [({"z": 3}, {"z": {"stage": 3}}), ({"z": {"stage": 3}}, {"z": 3})])
def test_a_map_meeting_a_scalar_names_both_places(lower: Tree, upper: Tree) -> None:
    message = error_of(layer("low.yaml", Rank.MODEL, lower), layer("high.yaml", Rank.SITE, upper))

    scalar, inner = ("low", "high") if lower == {"z": 3} else ("high", "low")
    assert message == (
        f"z = 3 ({scalar}.yaml:1) is a value, and z.stage = 3 ({inner}.yaml:1) makes it a map; "
        "it must be one or the other\n"
        "  Drop one of the two, or put z: null into a layer between them, such as a -f file."
    )


@pytest.mark.parametrize(("lower", "upper"), [({"z": {}}, {"z": 3}), ({"z": 3}, {"z": {}})])
def test_an_empty_map_is_a_map(lower: Tree, upper: Tree) -> None:
    assert "makes it a map" in error_of(layer("low", Rank.MODEL, lower), layer("high", Rank.SITE, upper))


def test_null_between_lets_a_map_follow_a_scalar() -> None:
    folded = fold([layer("low", Rank.MODEL, {"z": 3}), layer("between", Rank.SITE, {"z": None}),
                   layer("high", Rank.USER, {"z": {"stage": 3}})])

    assert folded.tree == {"z": {"stage": 3}}


def test_an_empty_map_takes_keys_and_changes_no_map() -> None:
    folded = fold([layer("low", Rank.MODEL, {"z": {}}), layer("mid", Rank.TRAINING, {"z": {"stage": 3}}),
                   layer("high", Rank.USER, {"z": {}})])

    assert folded.tree == {"z": {"stage": 3}}
    assert folded.warnings == ("high:1: z = {} changes nothing; it is a map already",)


def test_an_override_without_effect_is_a_warning() -> None:
    folded = fold([layer("profile", Rank.MODEL, {"a": 1, "b": 1}), layer("site.yaml", Rank.SITE, {"a": 1, "b": 1.0}),
                   layer("--set", Rank.USER, {"c": None})])

    assert folded.warnings == ("site.yaml:1: a = 1 changes nothing; it is so already (profile:1)",
                               "--set:1: c = null deletes nothing; no layer sets it")


def test_a_profile_may_repeat_what_another_says() -> None:
    layers = [layer("a", Rank.MODEL, {"a": 1}), layer("b", Rank.MODEL, {"a": 1}), layer("c", Rank.TRAINING, {"a": 1})]

    assert fold(layers).warnings == ()


def test_inside_one_profile_the_child_of_extends_wins_and_the_parent_stays_as_a_loser() -> None:
    parent, child = (Override("a", value, Origin(file, 1), Rank.MODEL) for value, file in ((1, "parent"), (2, "child")))
    profile = Layer("child", Rank.MODEL, (parent, child))

    folded = fold([profile, Layer("child", Rank.MODEL, (parent, child))])  # named twice, as a name and as its alias

    assert folded.tree == {"a": 2}
    assert folded.provenance.history("a")[:2] == (parent, child)


def test_the_winner_of_a_deleted_key_is_who_deleted_its_parent() -> None:
    folded = fold([layer("low", Rank.MODEL, {"z": {"a": 1}}), layer("high", Rank.SITE, {"z": None})])

    winner = folded.provenance.winner("z.a")
    assert winner is not None
    assert (winner.path, winner.value, str(winner.origin)) == ("z", None, "high:1")


@pytest.mark.parametrize(("left", "right"), [(1, True), (1, 1.0), (0, False), ([1], [True]), ([1], [1.0]), ("1", 1)])
def test_equal_is_equal_in_type(left: object, right: object) -> None:
    assert not same(left, right)
    assert same(left, left)


def test_not_a_number_is_itself() -> None:
    assert same(float("nan"), float("nan"))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "null"), (True, "true"), (1.5, "1.5"), ("cpu", "cpu"), ("40 GiB", "40 GiB"), ("32", '"32"'), ("", '""'),
     ("true", '"true"'), ("no", "no"), ("a\nb", '"a\\nb"'), ("\x1b[31m", '"\\u001b[31m"'), (["q", 1], "[q, 1]"),
     ({}, "{}"), ([{"a": "1"}], '[{a: "1"}]')],
)
def test_a_value_is_shown_so_that_its_type_can_be_seen(value: object, shown: str) -> None:
    assert show(value) == shown


# The same laws for `|`, as Python sees them.

PROFILES = st.sampled_from(["a100-40g", "7b", "standard", "ethernet-25g"]).map(dsgen.profile)
WISHES = st.dictionaries(st.sampled_from(["training.seq_len", "training.micro_batch", "cluster.gpus"]),
                         st.integers(1, 3), max_size=2)
PARTS = st.one_of(PROFILES, WISHES.map(dsgen.overrides), WISHES.map(dsgen.site), st.just(dsgen.Layers()))


@LAW
@given(PARTS)
def test_layers_have_an_identity(part: dsgen.Layers) -> None:
    assert dsgen.Layers() | part == part == part | dsgen.Layers()


@LAW
@given(PARTS, PARTS, PARTS)
def test_joining_is_associative(first: dsgen.Layers, second: dsgen.Layers, third: dsgen.Layers) -> None:
    assert (first | second) | third == first | (second | third)


@LAW
@given(PARTS, PARTS)
def test_joining_twice_is_joining_once(first: dsgen.Layers, second: dsgen.Layers) -> None:
    assert first | first == first
    assert first | second | first | second == first | second


@LAW
@given(WISHES, PARTS)
def test_a_dict_joins_from_either_side(wishes: Tree, part: dsgen.Layers) -> None:
    assert part | wishes == part | dsgen.overrides(wishes)
    assert wishes | part == dsgen.overrides(wishes) | part


@pytest.mark.parametrize("swap", [False, True])
def test_the_rank_decides_and_not_the_order(swap: bool, make_job: Callable[..., dsgen.Job]) -> None:
    parts: list[dsgen.Layers | Mapping[str, Any]] = [
        dsgen.profile("a100-40g"), dsgen.profile("7b"), dsgen.site({"training": {"seq_len": 1024}}),
        dsgen.overrides({"training": {"seq_len": 2048}}),
    ]
    joined = dsgen.Layers()
    for part in parts[::-1] if swap else parts:
        joined = joined | part

    assert dsgen.job(joined).seq_len == 2048


def test_the_output_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "import dsgen; c = dsgen.render(dsgen.profile('a100-40g') | dsgen.profile('mixtral-8x7b') | dsgen.profile('lora')"
        " | {'training.monitor': 'csv', 'cluster': {'gpus': 32}, 'comms_logger': {'enabled': True, 'verbose': True}});"
        " print(c.to_json(), c.to_yaml(), c.warnings, c.plan.reason, [str(r.strategy) for r in c.plan.runners_up])"
    )
    outputs = {
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True,
                       env={**os.environ, "PYTHONHASHSEED": seed,
                            "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}).stdout
        for seed in ("0", "1", "4242")
    }

    assert len(outputs) == 1
