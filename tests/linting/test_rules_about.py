"""Which rules can speak of some keys: the record is current, and asking only those says what asking all says."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dsgen.linting.linter import lint_config
from dsgen.linting.rules import READS, RULES, about
from dsgen.rendering import Config
from dsgen.rendering.judgement import WEIGHED, facts
from dsgen.shapes.findings import Finding, Severity

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # golden/ is a folder of the checkout, not of the installed package

from golden import rule_reads, scenes  # noqa: E402

CAUSES = ROOT / "tests" / "causes"
MOST = 900  # changes of one key that are tried, each in one golden config


@pytest.fixture(scope="module")
def configs() -> list[Config]:
    return [scenes.scene(name).config for name in scenes.names()]


def leaves(config: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Every dotted key that is no section, with its value."""
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def written() -> list[tuple[str, Any]]:
    """Keys with values that people write, right and wrong: those of the causes and of every rule's example."""
    texts = [rule.example for rule in RULES if rule.reads == "config"]
    texts += [path.read_text("utf-8") for path in sorted(CAUSES.glob("*.json"))]
    found: dict[str, tuple[str, Any]] = {}
    for text in texts:
        try:
            config = json.loads(text)
        except ValueError:
            continue  # a cause about the text itself
        for path, value in leaves(config) if isinstance(config, Mapping) else ():
            for said in (value, None):
                if said != "auto":  # a config with one is for another program, and then all rules are asked
                    found[f"{path}={json.dumps(said)}"] = (path, said)
    return list(found.values())


def changed(config: Mapping[str, Any], path: str, value: Any) -> dict[str, Any] | None:
    """The config with one key written, or taken out with None; None where something else stands around it."""
    tree: dict[str, Any] = copy.deepcopy(dict(config))
    here = tree
    *sections, name = path.split(".")
    for section in sections:
        here = here.setdefault(section, {})
        if not isinstance(here, dict):
            return None
    if value is None:
        here.pop(name, None)
    else:
        here[name] = value
    return tree


def loud(found: tuple[Finding, ...]) -> list[tuple[str, str, str]]:
    """What a person is shown of it, without what a plan weighs itself."""
    shown = (item for item in found if item.severity >= Severity.WARNING and item.rule not in WEIGHED)
    return sorted((item.rule, item.path, item.message) for item in shown)


def test_the_record_is_what_the_rules_read_now(configs: list[Config]) -> None:
    how = "Update it: python golden/run.py --update --scenarios-only"
    assert READS.read_text("utf-8") == rule_reads.text(configs), how


def test_every_rule_is_recorded_in_its_order() -> None:
    assert tuple(json.loads(READS.read_text("utf-8"))) == RULES.files
    assert len(RULES) > 200


def test_asking_the_rules_about_a_key_says_what_asking_all_says(configs: list[Config]) -> None:
    draw = random.Random(20261123)
    changes = written()
    draw.shuffle(changes)
    spoken: set[str] = set()
    for path, value in changes[:MOST]:
        config = draw.choice(configs)
        tree = changed(config.tree, path, value)
        if tree is None or loud(config.findings):
            continue
        known, version = facts(config.plan.job), config.plan.job.version

        every = loud(lint_config(tree, deepspeed=version, facts=known))
        some = loud(lint_config(tree, deepspeed=version, facts=known, rules=about([path], tree)))

        assert some == every, (path, value)
        spoken |= {rule for rule, _, _ in every}
    assert len(spoken) > 60


def test_a_section_that_a_key_makes_is_noticed_by_who_asks_for_the_section() -> None:
    made = about(["aio.block_size"], {"aio": {"block_size": 1}})
    there = about(["aio.block_size"], {"aio": {"block_size": 1, "queue_depth": 8}})

    assert {rule.name for rule in made} - {rule.name for rule in there} == {"gds-without-cuda"}


def test_a_render_with_a_key_of_a_person_loads_few_rules() -> None:
    code = (
        "import sys, dsgen; dsgen.render(dsgen.profile('a100-40g') | dsgen.profile('7b') | {'steps_per_print': 50});"
        "print(*[name for name in sys.modules if name.startswith('dsgen.linting.rules.') and name.count('.') == 4])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert 0 < len(answer) < len(RULES) / 4
    assert "dsgen.linting.rules.sections.chatty_output" in answer
