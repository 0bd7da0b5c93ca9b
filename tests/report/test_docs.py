"""The docs: nothing is missing, links lead somewhere, and what `nox -s docs` compares by is right."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from dsgen import catalog
from dsgen.cli import COMMANDS, cli
from dsgen.linting.rules import RULES, Rule
from dsgen.report.reference import commands_page, pages, rules

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
BY_HAND = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/index.md", "docs/memory.md", "docs/simulate.md")
LINK = re.compile(r"\]\(([^)#\s]+)")


@pytest.fixture(autouse=True)
def _only_built_in_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSGEN_PROFILE_PATH", raising=False)


def test_a_stale_page_and_a_wrong_output_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    import generate

    from examples import with_real_outputs

    page = tmp_path / "page.md"
    page.write_text("old\n", encoding="utf-8")
    scenario = "```yaml\n# mine.yaml\nhw: a100-40g\nmodel: 7b\n```\n"
    shown = f"{scenario}\n```console\n$ dsgen why training.lr mine.yaml\nlies\n```\n"

    real = with_real_outputs(shown)

    assert "-old\n+new" in generate.stale({page: "new\n"})[page]
    assert "lies" not in real
    assert "training.lr = 2e-05" in real
    assert with_real_outputs(real) == real


def test_no_example_crashes() -> None:
    for name in BY_HAND:
        assert "Traceback" not in (REPOSITORY / name).read_text("utf-8")


def test_every_profile_has_a_page_and_every_page_its_sources() -> None:
    written = pages()

    for kind in catalog.KINDS:
        names = catalog.names(kind)
        assert {f"{kind}/{name}.md" for name in names} < written.keys()
        assert all(f"({name}.md)" in written[f"{kind}/index.md"] for name in names)
    for name, text in written.items():
        if not name.endswith("index.md"):
            assert "\n## Sources\n\n1. " in text, name
            assert "[](#sources)" not in text


def test_a_page_states_what_is_computed() -> None:
    written = pages()

    assert "46,702,792,704" in written["model/mixtral-8x7b.md"]  # the published size of Mixtral 8x7B
    assert "| [7b](../model/7b.md) | ZeRO-" in written["hardware/a100-40g.md"]
    assert "[standard](standard.md)" in written["training/lora.md"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_page_of_a_rule_shows_what_the_linter_says_of_its_example(rule: Rule) -> None:
    assert rules.page(rule) == (DOCS / "rules" / f"{rule.name}.md").read_text("utf-8")


def test_every_command_and_option_is_documented() -> None:
    page = commands_page(cli)
    context = click.Context(cli, info_name="dsgen")

    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        assert command.help, name
        assert f"## dsgen {name}\n" in page
        for option in command.params:
            assert all(opt in page for opt in option.opts if opt.startswith("-")), name


@pytest.mark.parametrize("name", BY_HAND)
def test_a_link_leads_somewhere(name: str) -> None:
    page = REPOSITORY / name
    targets = [target for target in LINK.findall(page.read_text("utf-8")) if "://" not in target]

    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_generated_links_lead_somewhere() -> None:
    for name, text in pages().items():
        page = DOCS / name
        for target in LINK.findall(text):
            assert "://" in target or (page.parent / target).exists(), f"{name}: {target}"
