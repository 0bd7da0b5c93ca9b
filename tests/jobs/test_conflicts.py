"""Layers that contradict each other, override nothing, or follow each other inside one profile."""

from __future__ import annotations

from typing import Any

import pytest

from dsgen.shapes.errors import DsgenError
from dsgen.shapes.layers import Layer, Origin, Override, Rank, fold, leaves, same, show

Tree = dict[str, Any]


def layer(name: str, rank: Rank, tree: Tree) -> Layer:
    """One layer whose overrides come from one place per path."""
    overrides = (
        Override(path, value, Origin(name, line), rank, f"because {name}")
        for line, (path, value) in enumerate(leaves(tree), 1)
    )
    return Layer(name, rank, tuple(overrides))


def error_of(*layers: Layer) -> str:
    with pytest.raises(DsgenError) as caught:
        fold(layers)
    return str(caught.value)


def test_two_profiles_in_conflict_name_both_places_and_the_ways_out() -> None:
    message = error_of(
        layer("a.yaml", Rank.TRAINING, {"training": {"lr": 1e-5}}),
        layer("b.yaml", Rank.TRAINING, {"training": {"lr": 2e-5}}),
    )

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
    layers = [
        layer("a.yaml", Rank.TRAINING, {"fp16": None}),
        layer("b.yaml", Rank.TRAINING, {"fp16": {"enabled": True}}),
    ]

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
    folded = fold(
        [
            layer("low", Rank.MODEL, {"z": 3}),
            layer("between", Rank.SITE, {"z": None}),
            layer("high", Rank.USER, {"z": {"stage": 3}}),
        ]
    )

    assert folded.tree == {"z": {"stage": 3}}


def test_an_empty_map_takes_keys_and_changes_no_map() -> None:
    folded = fold(
        [
            layer("low", Rank.MODEL, {"z": {}}),
            layer("mid", Rank.TRAINING, {"z": {"stage": 3}}),
            layer("high", Rank.USER, {"z": {}}),
        ]
    )

    assert folded.tree == {"z": {"stage": 3}}
    assert folded.warnings == ("high:1: z = {} changes nothing; it is a map already",)


def test_an_override_without_effect_is_a_warning() -> None:
    folded = fold(
        [
            layer("profile", Rank.MODEL, {"a": 1, "b": 1}),
            layer("site.yaml", Rank.SITE, {"a": 1, "b": 1.0}),
            layer("--set", Rank.USER, {"c": None}),
        ]
    )

    assert folded.warnings == (
        "site.yaml:1: a = 1 changes nothing; it is so already (profile:1)",
        "--set:1: c = null deletes nothing; no layer sets it",
    )


@pytest.mark.parametrize("option", ["--lora-rank", "--set"])
def test_an_option_may_say_on_purpose_what_a_profile_has(option: str) -> None:
    """But not what a person's own file says already."""
    said = Layer("command line", Rank.USER, (Override("a", 1, Origin(option), Rank.USER),))
    profile, site = layer("profile", Rank.TRAINING, {"a": 1}), layer("site.yaml", Rank.SITE, {"a": 1})

    assert fold([profile, said]).warnings == ()
    assert len(fold([site, said]).warnings) == 1


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
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        ("cpu", "cpu"),
        ("40 GiB", "40 GiB"),
        ("32", '"32"'),
        ("", '""'),
        ("true", '"true"'),
        ("no", "no"),
        ("a\nb", '"a\\nb"'),
        ("\x1b[31m", '"\\u001b[31m"'),
        (["q", 1], "[q, 1]"),
        ({}, "{}"),
        ([{"a": "1"}], '[{a: "1"}]'),
    ],
)
def test_a_value_is_shown_so_that_its_type_can_be_seen(value: object, shown: str) -> None:
    assert show(value) == shown
