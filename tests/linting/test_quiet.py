"""Quiet: one finding a cause, notes for what does no harm, no two that contradict each other, and the exit code."""

from __future__ import annotations

import difflib
import json
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from lint_samples import put

from dsgen.deepspeed import surface
from dsgen.linting.agreed import wants
from dsgen.linting.files import lint_one
from dsgen.linting.linter import lint_config
from dsgen.linting.rules import RULES
from dsgen.linting.settings import Settings
from dsgen.memory.estimates import ERROR
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.findings import Assign, Finding, Remove, Severity
from dsgen.shapes.near_misses import OFFERED

Run = Callable[..., tuple[int, str, str]]
CONFIGS = Path(__file__).resolve().parents[2] / "golden" / "configs"
BATCH = {"train_micro_batch_size_per_gpu": 1}
EVERYTHING = Settings(severity=Severity.INFO)
_BELOW = "offload-param-below-stage-3"


def said(config: dict[str, Any], rule: str, target: str = "deepspeed") -> list[Finding]:
    findings = lint_one({**BATCH, **config}, Settings(severity=Severity.INFO, target=target)).findings
    return [finding for finding in findings if finding.rule == rule]


@pytest.mark.parametrize(("device", "severity"), [("none", Severity.INFO), ("cpu", Severity.WARNING)])
def test_an_offload_that_is_switched_off_is_no_more_than_a_note(device: str, severity: Severity) -> None:
    """`accelerate config` writes offload_param_device: none into every file, at stage 2 too."""
    zero = {"stage": 2, "offload_param": {"device": device, "pin_memory": True}}

    (one,) = [*said({"zero_optimization": zero}, "key-has-no-effect"), *said({"zero_optimization": zero}, _BELOW)]

    assert (one.path, one.severity) == ("zero_optimization.offload_param", severity)


# --- one cause, one finding


def test_keys_without_effect_for_one_reason_are_one_finding() -> None:
    keys = ("stage3_max_live_parameters", "stage3_max_reuse_distance", "stage3_prefetch_bucket_size")
    config = {"zero_optimization": {"stage": 2, **dict.fromkeys(keys, 7)}}

    (one,) = said(config, "key-has-no-effect")

    assert one.message == (
        f"zero_optimization: {keys[0]}, {keys[1]} and {keys[2]} have no effect unless zero_optimization.stage is 3; "
        "it is 2"
    )
    assert one.path == f"zero_optimization.{keys[0]}"
    assert one.fix is not None
    assert one.fix.edits == tuple(Remove(f"zero_optimization.{key}") for key in keys)


def test_keys_that_belong_in_one_section_are_one_finding() -> None:
    (one,) = said({"overlap_comm": True, "reduce_bucket_size": 500}, "unread-key")

    assert one.message.startswith("overlap_comm and reduce_bucket_size are keys that DeepSpeed ")
    assert one.message.endswith(" never reads: they do nothing here; it belongs in zero_optimization") or (
        "zero_optimization" in one.message
    )
    assert one.fix is not None
    assert one.fix.title == "move overlap_comm and reduce_bucket_size into zero_optimization"


def test_a_misspelt_key_keeps_a_finding_of_its_own() -> None:
    findings = said({"gradient_cliping": 1.0, "our_own": 1, "our_other": 1}, "unread-key")

    assert [finding.path for finding in findings] == ["gradient_cliping", "our_own"]
    assert "gradient_clipping is meant" in findings[0].message
    assert "our_own and our_other are keys" in findings[1].message


def test_a_key_that_is_answered_is_not_in_the_finding(elsewhere: None) -> None:
    put("ds.hjson", "{\n  train_micro_batch_size_per_gpu: 1\n  ours: 1  # dsgen: ignore[unread-key]\n  theirs: 1\n}\n")

    (one,) = lint_one("ds.hjson", Settings()).findings

    assert one.path == "theirs"
    assert "ours" not in one.message


def test_a_comment_is_a_note() -> None:
    findings = said({"_comment": "x", "//": "y", "comment": "z", "real": 1}, "unread-key")

    assert [(finding.path, finding.severity) for finding in findings] == [
        ("_comment", Severity.INFO),
        ("//", Severity.INFO),
        ("comment", Severity.INFO),
        ("real", Severity.WARNING),
    ]


# --- the exit code


@pytest.mark.parametrize("key", ["fail-on", "fail_on"])
def test_the_settings_say_from_where_on_it_fails(run: Run, elsewhere: None, key: str) -> None:
    put("ds.json", '{"train_micro_batch_size_per_gpu": 1, "ours": 1}')
    assert run("lint", "ds.json")[0] == 0

    put("pyproject.toml", f'[tool.dsgen.lint]\n{key} = "warning"\n')
    assert run("lint", "ds.json")[0] == 1
    assert run("lint", "ds.json", "--fail-on", "error")[0] == 0

    put("pyproject.toml", f'[tool.dsgen.lint]\n{key} = "never"\n')
    code, _, err = run("lint", "ds.json")
    assert code == 2
    assert "'never'; it must be one of info, warning, error" in err


def test_what_is_not_shown_fails_too(run: Run, elsewhere: None) -> None:
    put("ds.json", '{"train_micro_batch_size_per_gpu": 1, "_note": 1}')

    assert run("lint", "ds.json")[0] == 0
    assert run("lint", "ds.json", "--fail-on", "info")[0] == 1


# --- what is offered for a name


@pytest.mark.parametrize("name", ["opt_level", "hidden_size", "norm", "save_interval", "train_iters"])
def test_nothing_is_offered_for_a_name_of_another_program(name: str) -> None:
    (finding,) = said({name: 1}, "unread-key")

    assert ";" not in finding.message


def test_a_name_that_several_sections_have_is_offered_for_none_of_them() -> None:
    [finding] = [one for one in lint_config({"pipeline": {"type": "x"}}) if one.rule == "unread-key"]

    assert ";" not in finding.message


@pytest.mark.parametrize("name", ["model-parallel-size", "pipe_parallel_size"])
def test_a_name_with_another_word_in_it_is_no_slip(name: str) -> None:
    [finding] = [one for one in lint_config({name: 2}) if one.rule == "unread-key"]

    assert ";" not in finding.message


def test_almost_every_slip_of_a_key_lies_above_what_is_offered() -> None:
    known = {path.rpartition(".")[2] for path in surface.load().paths}
    names = sorted(name for name in known if len(name) > 3)
    chance = random.Random(16)
    ratios: dict[int, list[float]] = {1: [], 2: []}
    for changes, reached in ratios.items():
        for name in names:
            slip = name
            for _ in range(changes):
                slip = _slipped(slip, chance)
            if slip not in known:
                reached.append(difflib.SequenceMatcher(None, slip, name).ratio())
    share = {changes: sum(ratio >= OFFERED for ratio in reached) / len(reached) for changes, reached in ratios.items()}

    assert share[1] > 0.97
    assert 0.88 < share[2] < 0.97


def _slipped(name: str, chance: random.Random) -> str:
    at, kind = chance.randrange(len(name)), chance.randrange(4)
    letter = chance.choice("abcdefghijklmnopqrstuvwxyz_")
    if kind == 0 and len(name) > 1:
        return name[:at] + name[at + 1 :]
    if kind == 1:
        return name[:at] + letter + name[at:]
    if kind == 2:
        return name[:at] + letter + name[at + 1 :]
    return name[:at] + name[at + 1 : at + 2] + name[at : at + 1] + name[at + 2 :]


# --- no two that contradict each other


def contradictions(findings: tuple[Finding, ...]) -> list[tuple[str, str, str]]:
    """Pairs of findings on one line whose fixes cannot both be right: two values for one key, or kept and taken."""
    known: dict[tuple[int, str], dict[tuple[str, str], str]] = defaultdict(dict)
    pairs = []
    for finding in findings:
        for path, want in wants(finding):
            for other, rule in known[finding.line, path].items():
                if other != want:
                    pairs.append((path, f"{rule}: {other}", f"{finding.rule}: {want}"))
            known[finding.line, path].setdefault(want, finding.rule)
    return pairs


def test_the_search_for_contradictions_sees_one() -> None:
    fixes = said({"zero_optimization": {"stage": 2, "stage3_max_live_parameters": 7}}, "key-has-no-effect")
    (one,) = fixes
    assert one.fix is not None
    keeps = type(one.fix)("keep", (Assign(one.path, 8),))
    assert contradictions((one, attrs.evolve(one, fix=keeps, rule="other")))


@pytest.mark.parametrize("target", ["deepspeed", "hf-trainer"])
def test_no_rules_of_an_example_contradict_each_other(target: str, tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    seen = []
    for rule in RULES:
        if rule.reads == "config" and rule.example:
            file.write_text(rule.example)
            seen += [(rule.name, pair) for pair in contradictions(lint_one(file, _for(target)).findings)]

    assert seen == []


@pytest.mark.parametrize("target", ["deepspeed", "hf-trainer"])
def test_no_findings_of_configs_made_at_random_contradict_each_other(target: str) -> None:
    chance = random.Random(16)
    examples = [_parsed(rule.example) for rule in RULES if rule.reads == "config" and rule.example]
    configs = [config for config in examples if config]
    configs += [json.loads(file.read_text()) for file in sorted(CONFIGS.rglob("*.json"))[:20]]
    seen = []
    for _ in range(150):
        config = _mixed(chance.sample(configs, 3))
        try:
            findings = lint_config(config, target=target)
        except DsgenError:
            continue
        seen += [pair for path in {one.path for one in findings} for pair in contradictions(_at(findings, path))]

    assert seen == []


def _for(target: str) -> Settings:
    return Settings(severity=Severity.INFO, target=target)


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        config = json.loads(text)
    except ValueError:
        return None
    return config if isinstance(config, dict) else None


def _mixed(configs: list[dict[str, Any]]) -> dict[str, Any]:
    """Several configs in one: sections are joined, and of two values the later counts."""
    whole: dict[str, Any] = {}
    for config in configs:
        for key, value in config.items():
            both = isinstance(value, dict) and isinstance(whole.get(key), dict)
            whole[key] = {**whole[key], **value} if both else value
    return whole


def _at(findings: tuple[Finding, ...], path: str) -> tuple[Finding, ...]:
    """Those that point at one key: a config that no file holds has a single line."""
    return tuple(finding for finding in findings if finding.path == path)


# --- what a cold start loads


def test_a_file_without_profiles_loads_neither_memory_nor_cost_model(tmp_path: Path) -> None:
    put(str(tmp_path / "ds.json"), '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}')
    asks = (
        "import sys\nfrom dsgen.cli import main\nsys.argv = ['dsgen', 'lint', sys.argv[1]]\ntry:\n    main()\n"
        "except SystemExit:\n    pass\n"
        "print([name for name in sys.modules if name.startswith(('dsgen.memory', 'dsgen.cost', 'dsgen.kernels'))])"
    )

    program = [sys.executable, "-c", asks, str(tmp_path / "ds.json")]
    done = subprocess.run(program, check=True, capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == "[]"


def test_the_rule_says_the_error_of_the_memory_model() -> None:
    (rule,) = (rule for rule in RULES if rule.name == "does-not-fit")

    assert f"within {100 * ERROR:g} % of" in rule.evidence[0]


def test_the_placeholders_of_a_template_are_one_finding(tmp_path: Path) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text('{"train_batch_size": BATCH,\n"steps_per_print": STEPS,\n"zero_optimization": {"stage": ZERO\n}}\n')
    findings = lint_one(file, Settings(severity=Severity.INFO, target="deepspeed")).findings
    told = [finding for finding in findings if finding.rule == "template-placeholder"]

    assert [finding.path for finding in told] == ["train_batch_size"]
    names = "train_batch_size, steps_per_print and zero_optimization.stage are still placeholders"
    assert told[0].message.startswith(names)


@pytest.mark.parametrize(("value", "severity"), [(False, Severity.INFO), (True, Severity.WARNING)])
def test_an_old_key_that_says_what_is_so_without_it_is_a_note(value: bool, severity: Severity) -> None:
    (finding,) = said({"zero_optimization": {"stage": 2, "cpu_offload": value}}, "deprecated-key")
    assert finding.severity is severity


def test_what_the_program_brings_is_no_default_of_deepspeeds() -> None:
    """Lightning sets its own clipping where the config has none: 1.0, DeepSpeed's default, is another run."""
    for target, safe in (("deepspeed", True), ("lightning", False)):
        (finding,) = said({"gradient_clip": 1.0}, "unread-key", target)
        assert finding.fix is not None
        assert finding.fix.safe is safe, target


@pytest.mark.parametrize("name", ["Stage", "stage_3", "zero_stage"])
def test_a_stage_under_another_name_is_not_missing(name: str) -> None:
    assert said({"zero_optimization": {name: 3}}, "stage-missing") == []
