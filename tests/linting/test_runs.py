"""Safe fixes keep the run; what would change it is an offer that says both runs, and leaves nothing half emptied."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safe_fixes import DEVICES, Pair, changed, within

from dsgen import targets
from dsgen.deepspeed import surface
from dsgen.documents.document import unwritten
from dsgen.documents.editor import apply_to_config
from dsgen.documents.hjson import reader
from dsgen.linting import fixes, linter
from dsgen.linting.rules import RULES
from dsgen.linting.subjects import Facts, Subject
from dsgen.shapes.findings import Finding, Severity

MICRO = {"train_micro_batch_size_per_gpu": 1}
OFFLOAD = {"device": "cpu"}
KNOWN = surface.load()


def one(config: dict[str, Any], rule: str, target: str = "deepspeed") -> Finding:
    [finding] = [item for item in linter.lint_config({**MICRO, **config}, target=target) if item.rule == rule]
    assert finding.fix is not None
    return finding


def fixed(config: Mapping[str, Any], *, unsafe: bool) -> Any:
    text = json.dumps(config, indent=2)
    lint = functools.partial(linter.lint, target="deepspeed")
    return json.loads(fixes.fix(reader.read(text, "ds.json"), unsafe=unsafe, lint=lint, read=reader.read).text)


OFFERS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"zero_optimisation": {"stage": 3}}, "unread-key", "deepspeed", "today ZeRO 0, with it ZeRO 3"),
    ({"zero_optimization": {"stage": 2}, "offload_optimizer": OFFLOAD}, "unread-key", "deepspeed", "with it cpu"),
    ({"bfloat16": {"enabled": True}, "zero_optimization": {}}, "bfloat16-hidden", "hf-trainer", "without --bf16 stops"),
    ({"amp": {"enabled": True, "opt_level": "O1"}}, "removed-key", "deepspeed", "the run is fp32"),
]


@pytest.mark.parametrize(("config", "rule", "target", "said"), OFFERS)
def test_what_changes_the_run_is_an_offer_that_says_so(
    config: dict[str, Any], rule: str, target: str, said: str
) -> None:
    fix = one(config, rule, target).fix

    assert fix is not None and not fix.safe
    assert said in fix.title


def test_what_would_change_nothing_stays_safe() -> None:
    fix = one({"gradiant_clipping": KNOWN.default("gradient_clipping")}, "unread-key").fix

    assert fix is not None and fix.safe


@pytest.mark.parametrize(("count", "whole", "safe"), [(15099494.4, 15099494, True), (1.6, 2, False)])
def test_a_count_of_elements_loses_its_fraction_safely_where_it_is_as_many(
    count: float, whole: int, safe: bool
) -> None:
    """Of 0.9 * hidden * hidden, at which the parse stops."""
    fix = one({"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": count}}, "rejected-value").fix

    assert fix is not None and (fix.title, fix.safe) == (f"write {whole}", safe)


def test_no_other_number_is_rounded() -> None:
    [finding] = [
        item
        for item in linter.lint_config({**MICRO, "zero_optimization": {"stage": 2.5}})
        if item.rule == "rejected-value"
    ]

    assert finding.fix is None


@pytest.mark.parametrize("section", ["bf16", "bfloat16"])
def test_the_loss_scale_of_bf16_goes_safely(section: str) -> None:
    """The parse stops at each key, and no release ever read one; of a name that may be a slip nothing is known."""
    copied = {"enabled": True, "loss_scale": 0, "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1}

    assert fixed({**MICRO, section: copied}, unsafe=False) == {**MICRO, "bf16": {"enabled": True}}
    slip = {**MICRO, "bf16": {"enabled": True, "loss_scal": 128}}
    assert fixed(slip, unsafe=False) == slip


@pytest.mark.parametrize(("key", "value"), [("debug", False), ("seed", 42)])
def test_no_section_is_made_and_switched_on_for_a_key_that_stands_elsewhere(key: str, value: Any) -> None:
    config = {**MICRO, "gradient_clipping": 1.0, key: value}

    assert "has a key of that name" in one(config, "unread-key").message
    assert fixed(config, unsafe=False) == config
    assert fixed(config, unsafe=True) == {**MICRO, "gradient_clipping": 1.0}


def test_a_key_goes_to_a_section_that_is_there() -> None:
    config = {**MICRO, "gradient_clipping": 1.0, "comms_logger": {"enabled": True}, "debug": False}

    assert fixed(config, unsafe=False)["comms_logger"] == {"enabled": True, "debug": False}


def test_lightning_keeps_its_activation_checkpoints() -> None:
    section = {"activation_checkpointing": {"partition_activations": True}}
    safe = {
        item.fix.safe
        for item in linter.lint_config({**MICRO, **section}, target="lightning")
        if item.path == "activation_checkpointing" and item.fix is not None
    }

    assert True not in safe


def test_a_misplaced_key_is_lifted_and_what_has_no_place_goes() -> None:
    base = {**MICRO, "gradient_clipping": 1.0}
    assert fixed({**base, "log": {"steps_per_print": 50}}, unsafe=True) == {**base, "steps_per_print": 50}
    assert fixed({**base, "log": {"steps_per_print": 50, "x": 1}}, unsafe=True) == {**base, "steps_per_print": 50}
    assert fixed({**base, "log": {"x": 1}}, unsafe=True) == base


def test_a_section_that_a_fix_has_emptied_goes_with_it() -> None:
    assert fixed({**MICRO, "fp16": {"auto_cast": True}}, unsafe=False) == MICRO


def test_a_comment_keeps_the_section_that_it_stands_in() -> None:
    text = '{\n  "train_batch_size": 1,\n  "fp16": {\n    // ours\n    "auto_cast": true\n  }\n}\n'
    lint = functools.partial(linter.lint, target="deepspeed")

    new = fixes.fix(reader.read(text, "ds.json"), unsafe=False, lint=lint, read=reader.read).text

    assert "// ours" in new
    assert "auto_cast" not in new


NAMES = ["stage", "stagee", "overlap_comm", "reduce_bucket_size", "gradient_clipping", "gradiant_clipping", "enabled"]
NAMES += ["offload_optimizer", "cpu_offload", "steps_per_print", "legacy_stage1", "device", "lr", "type", "params"]
SECTIONS = [
    "zero_optimization",
    "zero_optimisation",
    "bf16",
    "bfloat16",
    "fp16",
    "optimizer",
    "scheduler",
    "log",
    "aio",
]
VALUES = st.sampled_from([0, 1, 2, 3, 1.0, 5_000_000, True, False, "auto", "cpu", "AdamW", {}, OFFLOAD])
FLAT = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4)
CONFIGS = st.builds(
    lambda top, sections: {**MICRO, **top, **sections},
    FLAT,
    st.dictionaries(st.sampled_from(SECTIONS), FLAT, max_size=4),
)


@settings(deadline=None, max_examples=150)
@given(CONFIGS, st.sampled_from([target.name for target in targets.TARGETS]))
def test_a_safe_fix_leaves_every_other_value_in_force(config: dict[str, Any], target: str) -> None:
    """Of what runs: all known keys but the finding's own, asked one by one."""
    document = unwritten(config)
    for finding in linter.lint(document, target=target):
        if finding.fix is None or not finding.fix.safe or finding.severity is Severity.ERROR:
            continue
        before = Subject(config=config, surface=KNOWN, target=targets.find(target), document=document)
        after = attrs.evolve(before, config=apply_to_config(config, finding.fix.edits))
        for path in KNOWN.paths:
            own = within(path, finding.path) or within(finding.path, path)
            if not own and path not in KNOWN.sections and path not in DEVICES:
                assert before.value(path) == after.value(path), (finding, path)
        assert before.stage == after.stage
        for what in DEVICES.values():
            assert before.offload(what) == after.offload(what), (finding, what)


@settings(deadline=None, max_examples=60)
@given(CONFIGS, st.booleans())
def test_fixing_random_configs_once_is_enough(config: dict[str, Any], unsafe: bool) -> None:
    once = fixed(config, unsafe=unsafe)

    assert fixed(once, unsafe=unsafe) == once


def pairs() -> Iterator[Pair]:
    """Every safe fix of a rule's example alone."""
    fields = {field.name for field in attrs.fields(Facts)}
    for rule in RULES:
        document = reader.read(rule.example, "example")
        if rule.reads == "launch" or not isinstance(document.config, dict) or rule.given.get("deepspeed"):
            continue
        target = rule.given.get("target") or targets.guess(document.config).name
        facts = Facts(**{name: value for name, value in rule.given.items() if name in fields})
        for finding in linter.lint(document, target=target, facts=facts):
            if finding.fix is not None and finding.fix.safe:
                yield Pair(finding, target, document.config, apply_to_config(document.config, finding.fix.edits))


@pytest.mark.proof
def test_the_real_deepspeed_holds_the_same_after_a_safe_fix() -> None:
    """Of every example that it takes: all values in force but the finding's own."""
    compared, wrong = changed(pairs())

    assert wrong == []
    assert compared > 15
