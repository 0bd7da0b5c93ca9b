"""What stands beside the linter: the pages of its rules, the pre-commit hook, and the GitHub Action."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lint_samples import dsgen

from dsgen.documents.yaml import documents
from dsgen.linting import setting_files
from dsgen.linting.rules import RULES
from dsgen.report.reference.rules import rule_pages

REPOSITORY = Path(__file__).resolve().parents[2]


def test_every_rule_has_a_page_that_shows_its_finding() -> None:
    pages = rule_pages()

    assert pages.keys() == {"rules/index.md", *(f"rules/{rule.name}.md" for rule in RULES)}
    for rule in RULES:
        page = pages[f"rules/{rule.name}.md"]
        assert page.startswith(f"# {rule.name} ({rule.code})\n")
        assert f"| {rule.code} | [{rule.name}]({rule.name}.md) |" in pages["rules/index.md"]
        assert not rule.example or f"{rule.name} ({rule.code})\n" in page.partition("it says:")[2], rule.name


def test_the_index_explains_a_broken_rule_and_how_to_silence() -> None:
    index = rule_pages()["rules/index.md"]

    assert "## DSG000: rule-broke\n" in index
    assert "## Silence a finding\n" in index


def test_the_settings_of_the_index_are_real(tmp_path: Path) -> None:
    """The first block is a pyproject.toml, the second a sidecar; both are read."""
    settings, sidecar_text = re.findall(r"```toml\n(.*?)```", rule_pages()["rules/index.md"], re.DOTALL)
    (tmp_path / "pyproject.toml").write_text(settings, encoding="utf-8")
    (tmp_path / "ds.json.dsgen.toml").write_text(sidecar_text, encoding="utf-8")

    assert setting_files.read(tmp_path).world_size == 16
    assert len(setting_files.sidecar(str(tmp_path / "ds.json"))) == 2


def yaml(name: str) -> Any:
    return documents.read((REPOSITORY / name).read_text("utf-8"), name).config


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run words that start with `dsgen`; gives the exit code and what was printed."""

    def call(*words: str) -> tuple[int, str]:
        assert words[0] == "dsgen"
        code, out, err = dsgen(capsys, *words[1:])
        return code, out + err

    return call


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("ds_config.json", True),
        ("configs/ds_z3_offload_config.json", True),
        ("deepspeed_config.hjson", True),
        ("train/zero3.json", True),
        ("zero_stage2_config.json", True),
        ("sp-alst.ds-config.json", True),
        ("deepspeed/stage3.yaml", True),
        ("deepspeed_configs/bf16.json", True),
        ("config.json", False),
        ("tokenizer.json", False),
        ("ads_report.json", False),
        ("ds_config.py", False),
        ("deepspeed/engine.py", False),
        ("schema/deepspeed/0.19.schema.json", False),
    ],
)
def test_the_hook_takes_config_files(name: str, ours: bool) -> None:
    hook = yaml(".pre-commit-hooks.yaml")[0]

    taken = re.search(hook["files"], name) is not None and re.search(hook["exclude"], name) is None

    assert taken is ours


def test_the_hook_runs(run: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    hook = yaml(".pre-commit-hooks.yaml")[0]
    good, bad = tmp_path / "ds_config.json", tmp_path / "ds_bad.json"
    good.write_text('{"train_micro_batch_size_per_gpu": 1}', encoding="utf-8")
    bad.write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stgae": 2}}', encoding="utf-8")

    assert hook["id"] == "dsgen-lint"
    assert hook["language"] == "python"
    assert run(*shlex.split(hook["entry"]), str(good))[0] == 0
    assert run(*shlex.split(hook["entry"]), str(good), str(bad))[0] == 1


def test_the_hook_of_scenarios_runs(
    run: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = yaml(".pre-commit-hooks.yaml")[1]
    monkeypatch.chdir(tmp_path)
    Path("lora.scenario.yaml").write_text("hw: rtx3090-24g\ngpus: 1\nmodel: llama-3.1-8b\nmethod: lora\n")
    words = shlex.split(hook["entry"])

    assert (hook["id"], hook["pass_filenames"]) == ("dsgen-check", False)
    for name in ("lora.scenario.yaml", "lora.json", "jobs/train.sh", "pyproject.toml"):
        assert re.search(hook["files"], name)
    assert run(*words)[0] == 1
    assert run("dsgen", "render", "lora.scenario.yaml", "-q", "-o", "lora.json")[0] == 0
    assert run(*words) == (0, "")


def test_the_action_checks_scenarios_where_it_is_told_to(run: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    step = next(step for step in yaml("action.yml")["runs"]["steps"] if "SCENARIOS" in step.get("env", {}))
    words = shlex.split(step["run"].strip())

    assert step["if"] == "inputs.scenarios != ''"
    assert words[1:] == ["render", "--check", "--", "$SCENARIOS"]
    assert run("dsgen", *words[1:4], str(tmp_path))[0] == 2


def test_the_action_names_real_inputs_and_options(run: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    action = yaml("action.yml")
    steps = action["runs"]["steps"]
    written = json.dumps(action)
    bad = tmp_path / "ds_bad.json"
    bad.write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stgae": 2}}', encoding="utf-8")
    command = next(line for line in steps[-1]["run"].splitlines() if "dsgen" in line)
    words = ["dsgen", *shlex.split(command)[1:]]

    assert action["runs"]["using"] == "composite"
    assert set(re.findall(r"inputs\.([\w-]+)", written)) == set(action["inputs"])
    assert all("${{" not in step.get("run", "") for step in steps), "text of a workflow must not become a command"
    assert words[1:4] == ["lint", "--format", "github"]
    assert words[4:] == ["${args[@]}", "--", "${files[@]}"]
    code, said = run(*words[:4], "--world-size", "8", "--", str(bad))
    assert code == 1
    assert said.startswith(("::error file=", "::warning file="))


@pytest.mark.parametrize(
    ("given", "args"), [("", []), ("--world-size 8\n--exit-zero\n", ["--world-size", "8", "--exit-zero"])]
)
def test_the_action_splits_what_it_is_given(given: str, args: list[str], tmp_path: Path) -> None:
    """The script of the last step with a dsgen that prints its arguments."""
    script = yaml("action.yml")["runs"]["steps"][-1]["run"]
    program = tmp_path / "dsgen" / "bin" / "dsgen"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    files = "a.json $(id)\n*.json\n"
    said = {"RUNNER_TEMP": str(tmp_path), "FILES": files, "ARGS": given, "PATH": os.environ["PATH"]}

    done = subprocess.run(["bash", "-e", "-c", script], env=said, check=True, capture_output=True, text=True)

    assert done.stdout.splitlines() == ["lint", "--format", "github", *args, "--", "a.json", "$(id)", "*.json"]


def test_the_page_of_a_rule_says_how_grave_it_is_for_each_program() -> None:
    text = rule_pages()["rules/auto-not-filled.md"]

    assert "warning; DeepSpeed: every known release; dsgen: from 0.1.0 on." in text
    assert "| the Hugging Face Trainer | error | safe |" in text
    assert "| plain DeepSpeed | nothing to say |" in text
