"""What dsgen itself writes, under its own linter: as a file without more, and with the job it was rendered for."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen import catalog
from dsgen.cli import main
from dsgen.linting.linter import lint_config
from dsgen.memory import Verdict
from dsgen.rendering import Config
from dsgen.rendering.judgement import WEIGHED, facts
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.findings import Finding, Severity
from golden import scenes

CONFIGS = sorted((Path(__file__).resolve().parents[2] / "golden" / "configs").glob("**/*.json"))
# A scenario that asks for a switch for debugging: the linter says what it costs, and render says the same.
ASKED_FOR = {"profiler-and-comms": ["profiler-left-on"]}
ON_NVME = "optimizer-on-nvme-not-resumed"  # what DeepSpeed does not do of it, whoever asked for it
PARAMETERS_ON_NVME = "parameters-on-nvme-not-resumed"

WISHES: tuple[dict[str, Any], ...] = (
    {},
    {"training": {"method": "lora"}},
    {"training": {"method": "qlora"}},
    {"training": {"zero_stage": 3}},
    {"training": {"offload": "nvme"}},
    {"training": {"optimizer": "Muon"}},
    {"training": {"optimizer": "SGD", "scheduler": "none"}},
    {"training": {"precision": "fp32"}},
    {"training": {"precision": "fp16"}},
    {"training": {"tp": 4, "checkpointing": "full"}},
    {"training": {"scheduler": "WarmupCosineLR", "total_steps": 1000}},
    {"training": {"seq_len": 32768, "chunked_loss": True}},
    {"training": {"monitor": "wandb", "flops_profiler": True}},
    {"training": {"comms_logger": True}},
    {"cluster": {"gpus": 1}},
    {"cluster": {"nodes": 4}},
    {"zero_optimization": {"stage": 1}},
    {"wall_clock_breakdown": True, "steps_per_print": 50},
)
MOST = 60  # configs of the spread


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def render(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    """The answer of `dsgen render` for a small scenario, its stderr on one line."""
    code, out, err = run(capsys, "render", "--hw", "a100-40g", "--model", "7b", *options)
    return code, out, " ".join(err.split())


def loud(found: tuple[Finding, ...]) -> list[tuple[str, str, str]]:
    """What a person is shown, in an order of its own."""
    return sorted((item.rule, item.path, item.message) for item in found if item.severity >= Severity.WARNING)


def with_its_job(config: Config) -> tuple[Finding, ...]:
    """Every rule but those of what the plan itself weighs, whoever wrote the config's keys."""
    found = lint_config(config, deepspeed=config.plan.job.version, facts=facts(config.plan.job))
    return tuple(item for item in found if item.rule not in WEIGHED)


@pytest.fixture(scope="module")
def spread() -> list[Config]:
    """Configs of hardware, models, wishes and releases drawn from a seed."""
    draw = random.Random(20261123)
    hardware, models = catalog.names("hardware"), catalog.names("model")
    found: list[Config] = []
    while len(found) < MOST:
        layers = dsgen.profile(draw.choice(hardware)) | dsgen.profile(draw.choice(models)) | draw.choice(WISHES)
        try:
            found.append(dsgen.render(layers, draw.choice((None, "0.14", "0.16", "0.18"))))
        except DsgenError:  # it fits nowhere
            continue
    return found


def test_there_are_configs() -> None:
    assert len(CONFIGS) > 100


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_golden_config_is_clean_under_plain_lint(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "lint", str(path), "--format", "json", "--fail-on", "warning")

    section = json.loads(path.read_text("utf-8")).get("zero_optimization", {}).get("offload_optimizer", {})
    asked = [ON_NVME] if section.get("device") == "nvme" else ASKED_FOR.get(path.stem, [])
    found = json.loads(out)["files"][0]["findings"]
    assert {item["rule"] for item in found if item["severity"] != "info"} == set(asked)
    assert code == (1 if asked else 0), out
    assert [word for word in asked if f'"{word}"' not in out] == []


def test_a_config_that_is_rendered_now_is_clean_under_plain_lint_but_for_what_was_asked(spread: list[Config]) -> None:
    for config in spread:
        asked = {
            "profiler-left-on": "comms_logger.enabled",
            ON_NVME: "zero_optimization.offload_optimizer.device",
            PARAMETERS_ON_NVME: "zero_optimization.offload_param.device",
        }
        for rule, path, message in loud(lint_config(config, deepspeed=config.plan.job.version)):
            assert asked.get(rule) == path, message
            told = any(message in warning for warning in config.warnings)
            ruled_out = rule == PARAMETERS_ON_NVME and rule not in {one[0] for one in loud(with_its_job(config))}
            assert told is not ruled_out  # plain lint knows no model, whose adapters may lie in RAM


@pytest.mark.parametrize("name", scenes.names())
def test_a_render_says_what_every_rule_says_of_it_with_its_job(name: str) -> None:
    config = scenes.scene(name).config

    assert loud(config.findings) == loud(with_its_job(config))


def test_a_rule_calls_nothing_too_large_that_the_plan_says_fits(spread: list[Config]) -> None:
    for config in spread:
        found = lint_config(config, deepspeed=config.plan.job.version, facts=facts(config.plan.job))
        if config.plan.chosen.memory.verdict is Verdict.FITS:
            assert not {item.rule for item in found if item.severity >= Severity.WARNING} & WEIGHED


def test_a_spread_of_renders_says_what_every_rule_says_of_it(spread: list[Config]) -> None:
    for config in spread:
        assert loud(config.findings) == loud(with_its_job(config))
    assert {rule for config in spread for rule, _, _ in loud(config.findings)} >= {
        "fp32-on-tensor-cores",
        "profiler-left-on",
        ON_NVME,
    }


def test_adapters_of_a_base_on_nvme_are_told_what_the_linter_tells() -> None:
    """Their optimizer is small and stays on the GPU, which a rule warns of that is asked for a key of the planner's."""
    for room, rules in ((10**9, []), (1000, [PARAMETERS_ON_NVME])):  # what lies in RAM resumes
        kept = {"zero_optimization": {"offload_param": {"max_in_cpu": room}}}
        wishes = {"training": {"method": "lora"}, "deepspeed": kept}
        config = dsgen.render(dsgen.profile("generic-24g") | dsgen.profile("175b") | wishes)

        assert [item.rule for item in config.findings] == rules
        assert loud(config.findings) == loud(with_its_job(config))


def test_what_the_linter_calls_an_error_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "ds_config.json"

    code, out, err = render(capsys, "--set", "deepspeed.optimizer.params.max_grad_norm=1.0", "-o", str(output))

    assert (code, out) == (2, "")
    assert "--set: optimizer.params.max_grad_norm = 1.0" in err
    assert "dsgen rule DSG507 explains" in err
    assert not output.exists()


def test_an_error_names_the_line_of_the_file_that_caused_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("# ours\ndeepspeed:\n  optimizer:\n    params:\n      max_grad_norm: 1.0\n", "utf-8")

    code, _, err = render(capsys, "-f", str(site))

    assert code == 2
    assert f"{site}:5: optimizer.params.max_grad_norm" in err


def test_the_library_refuses_what_the_command_refuses() -> None:
    layers = dsgen.profile("a100-40g") | dsgen.profile("7b")

    with pytest.raises(DsgenError, match="gradient_clipping"):
        dsgen.render(layers | {"optimizer": {"params": {"max_grad_norm": 1.0}}})

    assert dsgen.render(layers | {"gradient_clipping": 1.0}).findings == ()


def test_a_warning_is_in_the_summary_with_its_place_and_its_rule(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = render(capsys, "--set", "comms_logger.enabled=true")

    assert code == 0
    assert "warning: --set: comms_logger" in err
    assert "(DSG713)" in err


def test_a_warning_about_a_wish_names_where_the_wish_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = render(capsys, "--set", "training.comms_logger=true")

    assert "warning: --set: comms_logger.enabled waits for the GPU" in err


def test_a_warning_about_a_section_names_its_line_and_not_what_emptied_the_config_before(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    scenario = tmp_path / "adopted.yaml"
    scenario.write_text(
        "hw: a100-80g\nmodel: 7b\nset:\n  deepspeed: null\n  train_micro_batch_size_per_gpu: 1\n"
        "  zero_optimization:\n    stage: 2\n    offload_param:\n      device: cpu\n  bf16:\n    enabled: true\n",
        "utf-8",
    )

    _, _, err = run(capsys, "render", str(scenario))

    assert "adopted.yaml:9: parameter offload works at stage 3 only" in " ".join(err.split())


@pytest.mark.parametrize("pins", [{}, {"zero_optimization.stage": 3}])
def test_a_render_whose_pins_the_plan_follows_loads_no_rule(pins: dict[str, Any]) -> None:
    code = (
        f"import sys, dsgen; dsgen.render(dsgen.profile('a100-40g') | dsgen.profile('7b') | {pins!r});"
        "print([name for name in sys.modules if name.startswith('dsgen.linting.rules')])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout == "[]\n"
