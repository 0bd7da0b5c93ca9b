"""Every rule: its names, its documentation, its example with and without the fault, and no JSON value breaks it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsgen.deepspeed import surface
from dsgen.documents.document import Document
from dsgen.documents.hjson import reader
from dsgen.linting import launch_files, wrapped_configs
from dsgen.linting.linter import lint, lint_config
from dsgen.linting.rules import RULES, Rule
from dsgen.linting.subjects import Facts
from dsgen.shapes.findings import Assign, Finding, Severity

RULES_FOLDER = Path(__file__).resolve().parents[2] / "dsgen" / "linting" / "rules"
LONGEST_RULE = 80  # lines
FIELDS = {field.name for field in attrs.fields(Facts)}
BY_NAME = {rule.name: rule for rule in RULES}


def document(rule: Rule, text: str) -> Document:
    """A rule's example as the reader of its kind of file reads it."""
    if text.startswith(("distributed_type", "train_micro_batch_size_per_gpu", "per_device_train_batch_size")):
        return wrapped_configs.read(text, "example.yaml").document
    read = launch_files.read if rule.reads == "launch" else reader.read
    return read(text, "example")


def asked(rule: Rule, text: str) -> list[Finding]:
    """What the linter says of a rule's example under that very rule."""
    known = {name: rule.given[name] for name in ("target", "deepspeed") if name in rule.given}
    facts = Facts(**{name: value for name, value in rule.given.items() if name in FIELDS})
    return [item for item in lint(document(rule, text), facts=facts, **known) if item.rule == rule.name]


def test_codes_and_names_are_used_once_and_in_order() -> None:
    codes = [rule.code for rule in RULES]

    assert codes == sorted(set(codes))
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert [rule.name for rule in RULES if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)] == []
    assert [code for code in codes if not re.fullmatch(r"DSG[0-9]{3}", code)] == []


def test_every_rule_has_a_file_of_its_own_name() -> None:
    files = {path.stem for path in RULES_FOLDER.glob("*/*.py") if path.stem != "__init__"}

    assert files == {rule.name.replace("-", "_") for rule in RULES}


@pytest.mark.parametrize("path", sorted(RULES_FOLDER.glob("*/*.py")), ids=lambda path: path.stem)
def test_a_rule_is_short(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= LONGEST_RULE


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_documented(rule: Rule) -> None:
    for text in (rule.what, rule.why):
        assert text.strip().endswith("."), text
    assert rule.evidence
    assert set(rule.given) <= FIELDS | {"target", "deepspeed"}
    for release in (rule.since, rule.until):
        assert release is None or surface.load(release)


# A rule without an example is about files that are no text.
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.example], ids=lambda rule: rule.name)
def test_the_example_has_the_fault_and_the_other_has_not(rule: Rule) -> None:
    assert asked(rule, rule.example) != []
    assert asked(rule, rule.instead) == []


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.reads == "config"], ids=lambda rule: rule.name)
def test_what_to_write_instead_has_no_error_at_all(rule: Rule) -> None:
    known = {name: rule.given[name] for name in ("target", "deepspeed") if name in rule.given}
    facts = Facts(**{name: value for name, value in rule.given.items() if name in FIELDS})

    found = lint(document(rule, rule.instead), facts=facts, **known)

    assert [item for item in found if item.severity is Severity.ERROR] == []


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(("auto", "cpu", "3")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
PATHS = sorted(set(surface.load().paths) | set(surface.load().sections))


def planted(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A config with a value at a path, whatever stood on the way."""
    here = config
    *parents, last = path.split(".")
    for part in parents:
        if not isinstance(here.get(part), dict):
            here[part] = {}
        here = here[part]
    here[last] = value
    return config


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_rule_breaks_on_any_value_at_any_key(data: st.DataObject) -> None:
    config: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1}
    for path in data.draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=6)):
        planted(config, path, data.draw(JSON))
    target = data.draw(st.sampled_from(("deepspeed", "hf-trainer", "accelerate", "lightning")))
    release = data.draw(st.sampled_from(surface.known_versions()))
    facts = Facts(
        world_size=data.draw(st.none() | st.integers(1, 16)),
        accelerator=data.draw(st.sampled_from((None, "cpu", "cuda"))),
        client_optimizer=data.draw(st.sampled_from((None, "none", "torch", "deepspeed"))),
        missing=frozenset(data.draw(st.sampled_from(((), ("libaio", "wandb"))))),
        calls=frozenset(data.draw(st.sampled_from(((), ("engine.compile", "checkpointing.configure"))))),
        parameters=data.draw(st.sampled_from((None, (), ("a.weight", "b.bias")))),
    )

    found = lint_config(config, target=target, deepspeed=release, facts=facts)

    assert [item.message for item in found if item.rule == "rule-broke"] == []


def written(value: Any, before: str = "") -> Iterator[str]:
    """The dotted paths of a config."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield f"{before}{name}"
            yield from written(inner, f"{before}{name}.")


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.reads == "config"], ids=lambda rule: rule.name)
def test_a_fix_touches_what_is_there(rule: Rule) -> None:
    paths = set(written(document(rule, rule.example).config))
    for finding in asked(rule, rule.example):
        if finding.fix is None:
            continue
        for edit in finding.fix.edits:
            assert isinstance(edit, Assign) or re.sub(r"\[\d+\].*", "", edit.path) in paths
            json.dumps(attrs.asdict(edit))


def test_a_rule_that_breaks_is_a_finding_and_the_others_still_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> Iterator[Any]:
        raise RuntimeError("by design")
        yield

    bad = attrs.evolve(BY_NAME["unread-key"], check=broken)
    monkeypatch.setattr("dsgen.linting.linter.RULES", (bad, BY_NAME["removed-key"]))

    found = lint_config({"amp": {}})

    assert [(item.rule, item.severity) for item in found] == [
        ("rule-broke", Severity.WARNING),
        ("removed-key", Severity.ERROR),
    ]
    assert "unread-key" in found[0].message and "by design" in found[0].message
