"""The library's face: what `import dsgen` gives, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dsgen
from dsgen.shapes.errors import DsgenError

BASE = dsgen.profile("a100-40g") | dsgen.profile("7b")


def test_the_issue_s_line_renders() -> None:
    composed = dsgen.profile("a100-40g") | dsgen.profile("7b") | {"training": {"seq_len": 8192}}

    config = dsgen.render(composed)

    assert config.plan.job.seq_len == 8192
    assert json.loads(config.to_json()) == config.to_dict()
    assert config.why("zero_optimization.stage").reason
    assert dsgen.render(dsgen.plan(dsgen.job(composed))).to_json() == config.to_json()


def test_every_public_name_is_there() -> None:
    assert set(dsgen.__all__) <= set(dir(dsgen))
    for name in dsgen.__all__:
        assert getattr(dsgen, name).__doc__
    with pytest.raises(AttributeError, match="module 'dsgen' has no attribute 'nonsense'"):
        _ = dsgen.nonsense


def test_a_config_given_away_cannot_be_changed_from_outside() -> None:
    config = dsgen.render(BASE)

    config.to_dict()["bf16"]["enabled"] = "changed"

    assert config.to_dict()["bf16"]["enabled"] is True


def test_nested_dotted_and_tuple_values_are_the_same_as_yaml_s() -> None:
    nested = dsgen.overrides({"training": {"lora_targets": ("q_proj", "v_proj")}})

    assert nested == dsgen.overrides({"training.lora_targets": ["q_proj", "v_proj"]})
    assert dsgen.job(BASE | dsgen.profile("lora") | nested).training.lora_targets == ("q_proj", "v_proj")


def test_null_deletes() -> None:
    assert "bf16" not in dsgen.render(BASE | {"bf16": None}).to_dict()


def test_a_scenario_composes_like_a_profile(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text("hw: a100-40g\nmodel: 7b\nseq_len: 1024\n")

    assert dsgen.job(dsgen.scenario(str(file)) | {"training.seq_len": 512}).seq_len == 512


def test_a_release_is_chosen() -> None:
    assert dsgen.job(BASE, "0.18").version.startswith("0.18.")
    assert dsgen.plan(BASE, deepspeed="0.18").job.version.startswith("0.18.")


def cyclic() -> dict[str, Any]:
    endless: dict[str, Any] = {}
    endless["a"] = endless
    return endless


def deep(levels: int) -> dict[str, Any]:
    tree: dict[str, Any] = {"x": 1}
    for _ in range(levels):
        tree = {"a": tree}
    return tree


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"training": {"lr": object}},
            "python: training.lr is a type; it must be a plain value: text, number, true, false, list",
        ),
        (
            {"training": {"lora_targets": [{1}]}},
            "python: training.lora_targets is a set; it must be a plain value: text, number, true, false, list",
        ),
        ({1: 2}, "python: the key 1 in the dict is not a name; a key must be text"),
        ({"training": {None: 2}}, "python: the key None in training is not a name; a key must be text"),
        ({"training": {"": 2}}, "python: the key '' in training is not a name; a key must be text"),
        ({"training.": 2}, "python: the key 'training.' in the dict is not a name; a key must be text"),
        (cyclic(), "python: the dict nests deeper than 40 levels; a config is a few levels deep"),
        (deep(10_000), "python: the dict nests deeper than 40 levels; a config is a few levels deep"),
        ({"a": [cyclic()]}, "python: the dict nests deeper than 40 levels; a config is a few levels deep"),
    ],
)
def test_what_is_no_plain_dict_is_refused(values: dict[Any, Any], message: str) -> None:
    with pytest.raises(DsgenError) as caught:
        _ = BASE | values

    assert str(caught.value) == message


def test_a_name_instead_of_a_profile_is_a_hint() -> None:
    with pytest.raises(DsgenError) as caught:
        _ = BASE | "7b"  # type: ignore[operator]

    assert str(caught.value) == (
        "'7b' cannot be joined with |; it must be a profile or a dict of overrides\n"
        '  Write dsgen.profile("a100-40g"), not its name.'
    )


def test_overrides_need_a_dict() -> None:
    with pytest.raises(DsgenError, match=r"python \(site\): 3 is no dict; overrides are a dict"):
        dsgen.site(3)  # type: ignore[arg-type]


def test_an_empty_dict_joins_nothing() -> None:
    assert BASE | {} == BASE


def test_the_same_wish_twice_in_python_is_refused_when_it_differs() -> None:
    with pytest.raises(
        DsgenError, match=r"training\.seq_len = 1 \(python\) and 2 \(python\) have the same rank \(user\)"
    ):
        dsgen.job(BASE | {"training.seq_len": 1} | {"training": {"seq_len": 2}})


# The laws of `|`; those of the fold are in test_layers.py.

LAW = settings(deadline=None, max_examples=100)

PROFILES = st.sampled_from(["a100-40g", "7b", "standard", "ethernet-25g"]).map(dsgen.profile)
WISHES = st.dictionaries(
    st.sampled_from(["training.seq_len", "training.micro_batch", "cluster.gpus"]), st.integers(1, 3), max_size=2
)
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
def test_a_dict_joins_from_either_side(wishes: dict[str, Any], part: dsgen.Layers) -> None:
    assert part | wishes == part | dsgen.overrides(wishes)
    assert wishes | part == dsgen.overrides(wishes) | part


@pytest.mark.parametrize("swap", [False, True])
def test_the_rank_decides_and_not_the_order(swap: bool) -> None:
    parts: list[dsgen.Layers | Mapping[str, Any]] = [
        dsgen.profile("a100-40g"),
        dsgen.profile("7b"),
        dsgen.site({"training": {"seq_len": 1024}}),
        dsgen.overrides({"training": {"seq_len": 2048}}),
    ]
    joined = dsgen.Layers()
    for part in parts[::-1] if swap else parts:
        joined = joined | part

    assert dsgen.job(joined).seq_len == 2048


def test_the_output_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "import dsgen; c = dsgen.render(dsgen.profile('a100-40g') | dsgen.profile('mixtral-8x7b') "
        "| dsgen.profile('lora') "
        "| {'training.monitor': 'csv', 'cluster': {'gpus': 32}, 'comms_logger': {'enabled': True, 'verbose': True}});"
        " print(c.to_json(), c.to_hjson(), c.warnings, c.plan.reason, [str(r.strategy) for r in c.plan.runners_up])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        ).stdout
        for seed in ("0", "1", "4242")
    }

    assert len(outputs) == 1
