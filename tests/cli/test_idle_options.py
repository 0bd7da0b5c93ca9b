"""Options that do nothing where they stand are said, and say nothing where they do something."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import MAIN, run
from lint_samples import GOOD, put

from dsgen.linting import settings

RULES = Path(settings.__file__).parent / "rules"
ADAPTERS = (
    ["--lora-rank", "8"],
    ["--lora-targets", "q_proj"],
    ["--lora-dropout", "0.1"],
    ["--lora-train-embeddings"],
)


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    put("ds.json", GOOD)


@pytest.mark.parametrize("option", ADAPTERS, ids=lambda option: option[0])
@pytest.mark.parametrize("command", ["plan", "memory"])
def test_what_only_adapters_have(command: str, option: list[str]) -> None:
    idle = run(command, *MAIN, *option)
    used = run(command, *MAIN, "--method", "lora", *option)

    assert f"{option[0]}: training.{option[0][2:].replace('-', '_')} does nothing" in " ".join(
        (idle.out + idle.err).split()
    )
    assert "does nothing" not in used.out + used.err


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (("total_steps=9", "scheduler=WarmupLR"), "training.total_steps does nothing"),
        (("warmup_steps=9", "scheduler=none"), "training.warmup_steps does nothing"),
        (("warmup_steps=9", "total_steps=99"), ""),
    ],
)
def test_steps_of_no_schedule(sets: tuple[str, ...], said: str) -> None:
    done = run("plan", *MAIN, *(word for item in sets for word in ("--set", f"training.{item}")))

    assert said in done.err
    assert said or "does nothing" not in done.err


@pytest.mark.parametrize(("option", "idle"), [(["--global-batch", "64"], True), (["--micro-batch", "1"], False)])
def test_what_a_config_says_itself(option: list[str], idle: bool) -> None:
    done = run("memory", "--config", "ds.json", *MAIN, *option)

    assert ("does nothing beside a config" in " ".join(done.out.split())) is idle


def test_stdin_filename_without_the_standard_input() -> None:
    done = run("lint", "ds.json", "--stdin-filename", "x.json")

    assert done.code == 2
    assert "--stdin-filename names the standard input, which is not read" in done.err


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--missing", "wandd"], "--missing wandd does nothing: no rule asks for it; did you mean wandb?"),
        (["--missing", "wandb"], ""),
        (["--calls", "engine.compil"], "--calls engine.compil does nothing"),
        (["--calls", "engine.compile"], ""),
        (["--seq-len", "4096"], "--seq-len does nothing"),
        (["--seq-len", "4096", *MAIN], ""),
    ],
)
def test_facts_that_no_rule_asks_for(option: list[str], said: str) -> None:
    done = run("lint", "ds.json", *option)

    assert said in done.err
    assert said or not done.err


def test_the_names_that_rules_ask_for_are_all_of_them() -> None:
    source = "".join(path.read_text("utf-8") for path in RULES.rglob("*.py"))
    asked = re.findall(r'"([^"]+)" (?:not )?in subject\.facts\.(calls|missing)', source)

    assert len(asked) >= 5
    for name, field in asked:
        assert name in (settings.CALLS if field == "calls" else settings.PACKAGES)
    for name in (*settings.CALLS, *settings.PACKAGES):
        assert f'"{name}"' in source or name == "checkpointing.checkpoint"  # any call of that module counts


def test_migrate_writes_or_shows() -> None:
    done = run("migrate", "ds.json", "--to", "0.19", "--diff", "--write")

    assert done.code == 2
    assert "--diff and --write exclude each other" in done.err


def test_all_rejections_in_json() -> None:
    said = "--all does nothing"

    assert said in run("plan", *MAIN, "--all", "--format", "json").err
    assert said not in run("plan", *MAIN, "--all").err


@pytest.mark.parametrize("command", ["memory", "simulate"])
def test_two_options_for_the_number_of_gpus(command: str) -> None:
    done = run(command, *MAIN, "--gpus", "4", "--world-size", "8")

    assert done.code == 2
    assert "--gpus 4 and --world-size 8 mean the same" in done.err
