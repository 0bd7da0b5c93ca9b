"""The laws of layers: who wins, whatever the order, and that no loser is forgotten."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dsgen.shapes.errors import DsgenError
from dsgen.shapes.layers import Fold, Layer, Origin, Override, Rank, fold, leaves, same

Tree = dict[str, Any]

LAW = settings(deadline=None, max_examples=100)

# A path is one or the other kind, as in any config: `m` holds maps, `v` values. So no map ever meets a scalar.
NAMES = ("a", "b", "c")
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.floats(-1, 1),
    st.sampled_from(["", "cpu", "1"]),
    st.lists(st.integers(0, 1), max_size=2),
)
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
    overrides = (
        Override(path, value, Origin(name, line), rank, f"because {name}")
        for line, (path, value) in enumerate(leaves(tree), 1)
    )
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
