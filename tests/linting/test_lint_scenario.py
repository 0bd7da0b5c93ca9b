"""Lint with the job that a config is for: what is trained and how, from options, settings or a scenario file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import dsgen
from dsgen.cli import lint_options
from dsgen.linting import said_jobs
from dsgen.shapes.errors import DsgenError

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "scenarios"
CARD = ("--hw", "rtx3090-24g", "--world-size", "1", "--model", "llama-3.1-8b")
SCENARIO = "hw: rtx3090-24g\ngpus: 1\nmodel: llama-3.1-8b\nmethod: lora\nchunked_loss: true\n"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lora(elsewhere: None) -> str:
    """dsgen's own LoRA config for one card of 24 GB, beside its scenario."""
    Path("lora.yaml").write_text(SCENARIO)
    dsgen.render(dsgen.scenario("lora.yaml")).write("ds_config.json")
    return "ds_config.json"


def test_without_a_word_on_adapters_all_parameters_are_trained(run: Run, lora: str) -> None:
    code, out, _ = run("lint", lora, *CARD)

    assert code == 1
    assert "training all its parameters takes at least 172 GiB of a GPU with 23.7" in " ".join(out.split())


def test_the_options_say_what_is_trained(run: Run, lora: str) -> None:
    assert run("lint", lora, *CARD, "--method", "lora", "--chunked-loss")[0] == 0

    code, out, _ = run("lint", lora, *CARD, "--method", "lora", "--fail-on", "warning")

    assert code == 1
    assert "warning does-not-fit" in out
    assert "logits and loss" in out


def test_the_scenario_says_it_and_options_win_over_it(run: Run, lora: str) -> None:
    assert run("lint", lora, "--scenario", "lora.yaml")[0] == 0
    assert run("lint", lora, "--scenario", "lora.yaml", "--method", "full", "--fail-on", "warning")[0] == 1
    assert run("lint", lora, "--scenario", "lora.yaml", "--no-chunked-loss", "--fail-on", "warning")[0] == 1


def test_without_checkpointing_the_message_says_so(run: Run, lora: str) -> None:
    _, out, _ = run("lint", lora, "--scenario", "lora.yaml", "--checkpointing", "none")

    assert "training adapters without checkpointing takes at least" in " ".join(out.split())


def test_adapters_of_a_model_that_is_too_large_are_an_error_that_names_them(run: Run, lora: str) -> None:
    code, out, _ = run("lint", lora, "--scenario", "lora.yaml", "--model", "llama-3.1-70b")

    assert code == 1
    assert "error does-not-fit" in out
    assert "training adapters takes at least" in " ".join(out.split())


def test_settings_of_the_folder_say_it(run: Run, lora: str) -> None:
    Path("pyproject.toml").write_text('[tool.dsgen.lint]\nscenario = "lora.yaml"\n')
    assert run("lint", lora)[0] == 0

    Path("pyproject.toml").write_text(
        '[tool.dsgen.lint]\nhw = "rtx3090-24g"\nmodel = "llama-3.1-8b"\nworld-size = 1\n'
        'method = "lora"\nchunked-loss = true\n'
    )
    assert run("lint", lora)[0] == 0
    assert run("lint", lora, "--no-chunked-loss", "--fail-on", "warning")[0] == 1


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('method = "lor"', "pyproject.toml: tool.dsgen.lint.method: method: training.method is lor"),
        ('lora-rank = "x"', "training.lora_rank"),
        ('scenario = "nowhere.yaml"', "tool.dsgen.lint.scenario: nowhere.yaml: no such file"),
    ],
)
def test_a_wrong_setting_is_said_with_its_place(run: Run, lora: str, line: str, what: str) -> None:
    Path("pyproject.toml").write_text(f"[tool.dsgen.lint]\n{line}\n")

    code, _, err = run("lint", lora)

    assert code == 2
    assert what in err


def test_python_says_it_too(lora: str) -> None:
    card = {"hardware": "rtx3090-24g", "world_size": 1, "model": "llama-3.1-8b"}

    assert dsgen.lint(lora, **card, method="lora", chunked_loss=True).findings == ()  # type: ignore[arg-type]
    assert dsgen.lint(lora, scenario="lora.yaml").findings == ()
    assert dsgen.lint(lora, scenario=Path("lora.yaml"), method="full").findings != ()
    with pytest.raises(DsgenError, match=r"training\.method is lor; it must be one of full, lora, qlora"):
        dsgen.lint(lora, method="lor")
    with pytest.raises(DsgenError, match="must be a list"):
        dsgen.lint(lora, lora_targets="q_proj")


def test_what_nobody_can_use_is_said_to_do_nothing(run: Run, lora: str) -> None:
    _, _, err = run("lint", lora, "--method", "lora")

    assert "--method does nothing" in err


def test_a_scenario_that_is_broken_is_the_users_mistake(run: Run, lora: str) -> None:
    Path("lora.yaml").write_text("hw: rtx3090-24g\nmodell: 7b\n")

    code, _, err = run("lint", lora, "--scenario", "lora.yaml")

    assert code == 2
    assert "lora.yaml:2: unknown field modell" in err


def test_the_options_are_the_fields_that_runs_knows() -> None:
    assert lint_options._WISHES == said_jobs.WISHES


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*lora*.yaml")), ids=lambda path: path.stem)
def test_dsgen_s_own_configs_of_adapters_fit_their_scenario(path: Path, elsewhere: None) -> None:
    dsgen.render(dsgen.scenario(path)).write("ds_config.json")

    assert [item for item in dsgen.lint("ds_config.json", scenario=path).findings if item.code == "DSG800"] == []
