"""Whatever is written, a run ends with a config or with a DsgenError: files, `--set`, scenarios, profiles, dicts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from command_line import MAIN, refused
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import dsgen
from dsgen import catalog
from dsgen.deepspeed import surface
from dsgen.documents.hjson import reader as hjson
from dsgen.documents.yaml.reader import entries
from dsgen.jobs import scenarios
from dsgen.jobs.assembly import assemble
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.layers import Layer
from dsgen.shapes.profiles import SECTIONS, yaml_name

FUZZ = settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
BASE = dsgen.profile("a100-40g") | dsgen.profile("1b")

FACTS = [f"{name}.{yaml_name(field.name)}" for name, shape in SECTIONS.items() for field in attrs.fields(shape)]
KEYS = [path for path in surface.load().paths if "<" not in path and "[" not in path]
PATHS = st.sampled_from([*FACTS, *KEYS, *(f"deepspeed.{key}" for key in KEYS)])
ODD = st.sampled_from(
    [
        "",
        "auto",
        "none",
        "cpu",
        "nvme",
        "bf16",
        "true",
        "no",
        "~",
        "40 GiB",
        "0 GiB",
        "1e400 GiB",
        "200 Gb/s",
        "5 us",
        "inf",
    ]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.integers(),
    st.floats(),
    ODD,
    st.text(max_size=8),
    st.sampled_from([10**9, 10**18, 1e9, 2.0, -1]),
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=4)
MEANT = {
    "boolean": st.booleans(),
    "integer": st.sampled_from([0, 1, 2, 3, 4, 8, 100, 10**6, 5e8]),
    "number": st.sampled_from([0, 1e-8, 0.5, 0.9, 1, 2.5, 1e9]),
    "string": st.sampled_from(["cpu", "none", "nvme", "fp16", "/x", "AdamW", "WarmupLR"]),
    "array": st.lists(st.sampled_from([0.9, 1, "a"]), max_size=2),
    "null": st.none(),
    "object": st.just({}),
}


def values(path: str) -> st.SearchStrategy[Any]:
    """Values for a path: mostly such as its key takes, so that the plan and the rendering are reached."""
    key = surface.load().key(path.removeprefix("deepspeed."))
    if key is None:
        return SCALARS | ODD
    return st.sampled_from(key.enum) if key.enum else st.one_of(MEANT[name] for name in key.types or ("integer",))


ANYTHING = VALUES | st.dictionaries(st.text(max_size=5), VALUES, max_size=2)
ENTRIES = PATHS.flatmap(lambda path: st.tuples(st.just(path), values(path) | ANYTHING))
TREES = st.lists(ENTRIES, max_size=4).map(dict)


def survives(work: Callable[[], object]) -> bool:
    """Whether the work succeeds; a DsgenError is a clear no, and anything else fails the test."""
    try:
        work()
    except DsgenError as error:
        assert str(error).strip()
        return False
    return True


def render(layers: dsgen.Layers) -> None:
    config = dsgen.render(layers)
    text = config.to_json()
    text.encode("utf-8")
    json.loads(text, parse_constant=pytest.fail)
    assert hjson.read(config.to_hjson(), "fuzz").config == hjson.read(text, "fuzz").config
    for path in config.paths():
        assert config.why(path).reason


def as_yaml(tree: dict[str, Any]) -> str:
    """Nested YAML of dotted paths; JSON's scalars are YAML's, but for the numbers JSON has not."""
    return json.dumps(tree).replace("NaN", ".nan").replace("-Infinity", "-.inf").replace("Infinity", ".inf")


@FUZZ
@given(TREES)
@example({"deepspeed.train_micro_batch_size_per_gpu": 2.0})
@example({"train_batch_size": 10**18})
@example({"tensor_parallel.autotp_size": -1})
@example({"bfloat16.enabled": True})
@example({"zero_optimization": True})
@example({"compression_training": {"x": "\ud800"}})
@example({"hardware.gpu_memory": "1e400 GiB"})
@example({"training.zero_stage": 4})
@example({"cluster.gpus": 999_999_937})
@example({"training": {"": 1}})
def test_any_dict_renders_or_is_refused(tree: dict[str, Any]) -> None:
    survives(lambda: render(BASE | tree))


@FUZZ
@given(TREES)
def test_any_override_file_renders_or_is_refused(tmp_path: Path, tree: dict[str, Any]) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(as_yaml(tree))

    survives(lambda: render(BASE | dsgen.Layers((catalog.override_layer(str(file)),))))


@FUZZ
@given(
    TREES,
    st.sampled_from(["a100-40g", "7b", "standard", "./profile.yaml", "", None]),
    st.sampled_from(list(catalog.KINDS)),
)
def test_any_profile_renders_or_is_refused(tmp_path: Path, tree: dict[str, Any], parent: str | None, kind: str) -> None:
    file = tmp_path / "profile.yaml"
    file.write_text(as_yaml({"kind": kind, **({"extends": parent} if parent is not None else {}), **tree}))

    survives(lambda: render(BASE | dsgen.profile(str(file))))


FIELDS = st.sampled_from(
    [*scenarios.FIELDS, "hw", "model", "network", "training", "deepspeed", "file", "set", "seq-len"]
)
NAMES = st.sampled_from(["a100-40g", "1b", "lora", "ib-hdr-200g", "0.19", "./scenario.yaml", "nope", ""])


@FUZZ
@given(st.dictionaries(FIELDS, VALUES | NAMES | TREES, max_size=5))
@example({"seq_len": 1, "seq-len": 2})
@example({"deepspeed": ["0.19", 3]})
@example({"set": "x"})
def test_any_scenario_renders_or_is_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(as_yaml({"hw": "a100-40g", "model": "1b", **fields}))

    def run() -> None:
        scenario = scenarios.read(str(file))
        render(dsgen.Layers(tuple(scenarios.layers(scenario))))
        assemble(scenarios.layers(scenario), scenario.deepspeed)

    survives(run)


@FUZZ
@given(st.text(max_size=40) | st.builds("{}={}".format, PATHS, SCALARS | st.text(max_size=12)))
@example('training.nvme_path="\\u0000"')
@example('compression_training.x="\\ud800"')
@example("compression_training.x=" + "[" * 500 + "]" * 500)
@example("zero_optimization.reduce_bucket_size=1e400")
@example("training.lr=NaN")
def test_any_set_renders_or_is_refused(text: str) -> None:
    def run() -> None:
        path, setting = scenarios.parse_set(text)
        render(BASE | {path: setting.value})

    survives(run)


# Structure broken on purpose: what YAML is made of, in any order.
TOKENS = st.one_of(
    st.sampled_from([*"a1{}[],'|>~\n\t\r\u2028", '"']),
    st.sampled_from(["a: ", "b:", "- ", "? ", "<<: ", ": ", "# c", "\n  "]),
    st.sampled_from(["&x ", "*x", "!!int ", "!t ", "0x", "1e3", ".inf", "\\ud800"]),
    st.sampled_from(["---\n", "...\n", "%YAML 1.1\n"]),
)
BROKEN = st.one_of(
    st.lists(TOKENS, max_size=15).map("".join),
    st.text(max_size=60),
    st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "replace")),
)


@settings(FUZZ, max_examples=400)
@given(BROKEN)
@example("&x a: &x ")
@example("{}")
@example("%YAML 1.1\n---\na: yes\n")
@example("? [a]\n: 1\n")
@example("a: &x [*x]")
@example("a: !!bool x")
@example("a: !!float x")
@example("a: !!null x")
@example("a: !!timestamp x")
@example("a: 0b")
@example("<<: {a: 1}")
@example("a: |\n # c\n")
@example("\ufeff")
def test_any_text_is_read_or_refused(text: str) -> None:
    found: list[Any] = []
    if survives(lambda: found.extend(entries(text, "x.yaml"))):
        assert found
        assert len({entry.path for entry in found}) == len(found)
        assert all(1 <= entry.line <= text.count("\n") + text.count("\r") + text.count("\u2028") + 1 for entry in found)


@FUZZ
@given(BROKEN)
def test_any_text_as_a_profile_or_a_scenario_is_read_or_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text, encoding="utf-8", errors="replace", newline="")

    survives(lambda: catalog.profile(str(file)))
    survives(lambda: scenarios.layers(scenarios.read(str(file))))
    survives(lambda: assemble((*BASE.layers, catalog.override_layer(str(file)))))


@FUZZ
@given(st.text(max_size=30) | st.sampled_from(["..", "/", "~", "a/b", "\0", "\udcff", "con", "*", "7B "]))
def test_any_name_is_found_or_refused(name: str) -> None:
    survives(lambda: catalog.profile(name))
    for kind in catalog.KINDS:
        survives(lambda kind=kind: catalog.find(kind, name))


@FUZZ
@given(TREES, TREES)
def test_what_is_refused_is_refused_in_any_order(first: dict[str, Any], second: dict[str, Any]) -> None:
    outcomes = []
    for order in ((first, second), (second, first)):
        joined: list[Layer] = []
        if survives(lambda order=order, joined=joined: joined.extend((BASE | order[0] | order[1]).layers)):
            outcomes.append(survives(lambda joined=joined: assemble(joined)))

    assert len(set(outcomes)) <= 1


STRANGE = [
    ["--hw", "x" * 100_000, "--model", "7b"],
    ["--hw", "a\0b", "--model", "7b"],
    ["--hw", "./a\0b", "--model", "7b"],
    ["--hw", "\udcff", "--model", "7b"],
    ["--hw", "./\udcff.yaml", "--model", "7b"],
    [*MAIN, "-f", "\udcff.yaml"],
    [*MAIN, "-f", "x" * 5000],
    [*MAIN, "--set", "\udcff=3"],
    [*MAIN, "--set", "training.nvme_path=\udcff"],
    [*MAIN, "--set", 'training.nvme_path="\\u0000"'],
    [*MAIN, "--set", 'training.nvme_path="\\ud800"'],
    [*MAIN, "--set", "a" * 100_000 + "=3"],
    [*MAIN, "--set", ".".join(["a"] * 10_000) + "=3"],
    [*MAIN, "--set", "compression_training." + ".".join(["a"] * 10_000) + "=3"],
    [*MAIN, "--set", "compression_training.x=" + "[" * 10_000],
    [*MAIN, "--set", "compression_training.x=" + "[" * 200 + "]" * 200],
    [*MAIN, "--set", "training.seq_len=" + "9" * 400],
    [*MAIN, "--set", "training.seq_len=" + "9" * 5000],
    [*MAIN, "--set", "train_batch_size=" + "9" * 400],
    [*MAIN, "--seq-len", "9" * 400],
    [*MAIN, "--gpus", "9" * 5000],
    [*MAIN, "--precision", "\udcff"],
    [*MAIN, "--deepspeed", "\udcff"],
    [*MAIN, "--deepspeed", ""],
    [*MAIN, "--\udcff"],
    ["\udcff.yaml"],
    ["a\0b.yaml"],
    ["/dev/zero"],
    ["x" * 5000],
]


@pytest.mark.parametrize("arguments", STRANGE)
def test_nothing_is_too_strange_for_a_short_message(arguments: list[str], tmp_path: Path) -> None:
    message = refused("render", *arguments, "-o", str(tmp_path / "ds_config.json"))

    assert list(tmp_path.iterdir()) == []
    assert len(message) < 1500
    assert all(letter == "\n" or letter.isprintable() for letter in message)
